"""Owns the rules on operations: what a run may not do unannounced, read from `pulumi preview --json`.

Leaves the desired state to the other rules; a policy pack sees resources and not steps. One idea: what serves or
holds data is neither replaced nor deleted unless a person has named it, however the step came about (a diff, a
replaced provider, a trigger, `--replace`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spec import names

_HARMLESS: Final = frozenset({"create", "update", "same", "refresh", "read", "import", "discard", "discard-replaced"})
_REPLACING: Final = frozenset(
    {"replace", "create-replacement", "delete-replaced", "read-replacement", "import-replacement"}
)
_DELETING: Final = frozenset({"delete", "remove-pending-replace"})
_HOLDS_DATA: Final = frozenset({"Secret", "PersistentVolumeClaim", "PersistentVolume"})
_SERVES: Final = frozenset({"Deployment", "StatefulSet", "DaemonSet", "LeaderWorkerSet", "Service"})
REPLACE: Final = "replace"
DELETE: Final = "delete"
_PROVIDER: Final = "pulumi:providers:kubernetes"
# It answers no request, and is there while a file asks for it or a group is left.
_ON_DEMAND: Final = "knobless:serving:LeaderWorkerSets$"


@dataclass(frozen=True)
class Verdict:
    """What was found about one resource; `allowed` where a person has announced it."""

    operation: str
    kind: str
    name: str
    urn: str
    allowed: bool
    message: str

    def __str__(self) -> str:
        state = "announced" if self.allowed else "refused"
        return f"{state}: {self.operation} of {self.kind} {self.name}: {self.message}"


def read_steps(preview: str) -> list[Mapping[str, Any]]:
    """The steps of `pulumi preview --json`; a ValueError where the text is something else."""
    try:
        steps = json.loads(preview).get("steps", [])
    except (ValueError, AttributeError) as error:
        raise ValueError("this is not the output of pulumi preview --json") from error
    if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ValueError("this is not the output of pulumi preview --json: steps is no list of objects")
    return steps


def judge(steps: Iterable[Mapping[str, Any]], announced: Collection[str] = frozenset()) -> list[Verdict]:
    """A verdict on every resource whose step needs one; the rest is allowed in silence.

    `announced` names what a person has agreed to: URNs, logical names, or `<kind> <logical name>`. Several steps of
    one resource (a replace is three) make one verdict.
    """
    verdicts: dict[str, Verdict] = {}
    for step in steps:
        verdict = _judge_step(step, announced)
        if verdict is not None:
            verdicts.setdefault(verdict.urn, verdict)
    return list(verdicts.values())


def refused(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """The verdicts that stop a run."""
    return [verdict for verdict in verdicts if not verdict.allowed]


def _judge_step(step: Mapping[str, Any], announced: Collection[str]) -> Verdict | None:
    operation, urn = step.get("op"), step.get("urn")
    if not isinstance(operation, str) or not isinstance(urn, str):
        return Verdict(str(operation), "step", str(urn), str(urn), False, "the step names no operation or no resource")
    if operation in _HARMLESS:
        return None
    kind, name = _kind(step, urn), urn.split("::", 3)[-1]
    word = REPLACE if operation in _REPLACING else DELETE if operation in _DELETING else operation
    message = _objection(word, kind, _object(step), urn)
    if message is None:
        return None
    allowed = bool({urn, name, f"{kind} {name}"} & set(announced))
    return Verdict(word, kind, name, urn, allowed, message)


def _objection(operation: str, kind: str, obj: Mapping[str, Any], urn: str) -> str | None:
    """Why the operation must not happen unannounced, or None where it may."""
    if operation not in (REPLACE, DELETE):
        return "this operation is unknown to the rules, so it is not let through"
    metadata = obj.get("metadata")
    namespace = str(metadata.get("namespace", "")) if isinstance(metadata, Mapping) else ""
    if kind == names.KIND:
        return "the endpoint would stop answering; to take it out of service, remove its file"
    if kind == "CustomResourceDefinition":
        return "all objects of the kind would go with it"
    if kind == "Namespace":
        return "everything in the namespace would go with it"
    if kind in _HOLDS_DATA:
        return "what it holds would be lost"
    needed = namespace == names.SYSTEM_NAMESPACE and _ON_DEMAND not in urn
    if kind in _SERVES and (operation == REPLACE or needed):
        return "under the same name the old one is deleted first, or the new one by mistake: it would stop serving"
    if operation == REPLACE and _type(urn) == _PROVIDER:
        return "a replaced provider replaces everything that it manages"
    return None


def _type(urn: str) -> str:
    """Type token of a URN, without its parents: `kubernetes:apps/v1:Deployment`."""
    parts = urn.split("::")
    return parts[2].rsplit("$", 1)[-1] if len(parts) > 3 else ""


def _kind(step: Mapping[str, Any], urn: str) -> str:
    kind = _object(step).get("kind")
    return kind if isinstance(kind, str) and kind else _type(urn).rsplit(":", 1)[-1]


def _object(step: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object's inputs, as it is now or else as it will be."""
    for state in ("oldState", "newState"):
        held = step.get(state)
        inputs = held.get("inputs") if isinstance(held, Mapping) else None
        if isinstance(inputs, Mapping) and inputs:
            return inputs
    return {}
