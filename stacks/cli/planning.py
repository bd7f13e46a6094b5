"""The plan: what each stack would change, what is removed, and whether the rules on operations allow it.

Owns the order (platform first, removals last) and the text. Leaves the differences to Pulumi, the verdicts to
`policies.operations`. One idea: nothing is applied that was not previewed and judged in the same run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from spec import names
from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.pulumi_output import Preview

VERBS = {"create": "create", "update": "update", "delete": "delete", "replace": "replace"}
# The fields of an endpoint object whose change makes a revision, and so new pods; `revision_of` looks at no other.
POD_PATHS = ("spec.podTemplate", "spec.nodes")
PULUMIS_OWN = re.compile(r"::pulumi:(?:pulumi|providers):")


@dataclass(frozen=True)
class StackPlan:
    """One stack of the plan: applied with `preview`, or removed. An `is_new` one is made when it is applied."""

    stack: str
    preview: Preview | None
    is_new: bool = False

    @property
    def removed(self) -> bool:
        return self.preview is None

    @property
    def of_platform(self) -> bool:
        return isinstance(names.parse_stack(self.stack), names.PlatformStack)

    @property
    def spec_digest(self) -> str | None:
        """Digest of the endpoint object's spec as this plan will apply it, which the object then carries."""
        for step in self.preview.steps if self.preview is not None else ():
            if is_endpoint_object(step) and step.get("op") in VERBS:  # a refresh tells what was, not what will be
                metadata = step.get("newState", {}).get("inputs", {}).get("metadata", {})
                return dict(metadata.get("annotations") or {}).get(names.ANNOTATION_SPEC_DIGEST)
        return None

    @property
    def deletes(self) -> bool:
        """Whether something of a stack that stays is taken away."""
        return self.preview is not None and "delete" in self.preview.counts

    @property
    def changes(self) -> bool:
        return self.preview is None or self.preview.changes


def orphans(known: Iterable[str], declared: Iterable[str], environment: str) -> list[str]:
    """Endpoint stacks of this environment that the backend knows and no file declares any more."""
    wanted = set(declared)
    found = []
    for name in known:
        try:
            stack = names.parse_stack(name)
        except ValueError:
            continue  # not one of ours
        if isinstance(stack, names.EndpointStack) and stack.environment == environment and name not in wanted:
            found.append(name)
    return sorted(found)


def team_of(stack: str) -> str | None:
    parsed = names.parse_stack(stack)
    return parsed.team if isinstance(parsed, names.EndpointStack) else None


def leaving_teams(plans: Iterable[StackPlan]) -> set[str]:
    """Teams whose namespace a plan takes away: their endpoints are drained before, or would be torn down with it."""
    steps = (step for plan in plans if plan.preview is not None for step in plan.preview.steps)
    gone = (str(step["urn"]) for step in steps if step.get("op") == "delete")
    teams = (names.team_of_namespace(urn.rpartition("::")[2]) for urn in gone if ":Namespace::" in urn)
    return {team for team in teams if team is not None}


def changed_paths(step: Mapping[str, Any]) -> list[str]:
    """Property paths that a step changes, as Pulumi names them."""
    return sorted({*(step.get("detailedDiff") or {}), *(step.get("diffReasons") or ())})


def is_endpoint_object(step: Mapping[str, Any]) -> bool:
    """Whether the step is about the endpoint object itself, not about the component around it."""
    return f"kubernetes:{names.API_VERSION}:{names.KIND}::" in str(step.get("urn"))


def restarts_pods(step: Mapping[str, Any]) -> bool:
    """Whether the step makes a new revision of an endpoint."""
    return is_endpoint_object(step) and any(path.startswith(POD_PATHS) for path in changed_paths(step))


def describe_step(step: Mapping[str, Any]) -> str:
    """`update ModelEndpoint wine: spec.concurrency.max`."""
    urn = str(step.get("urn", ""))
    kind, _, name = urn.split("::", 2)[-1].rpartition("::")
    paths = changed_paths(step) if step.get("op") == "update" else []
    what = f"{step.get('op')} {kind.rsplit(':', 1)[-1].rsplit('$', 1)[-1]} {name}"
    return what + (f": {', '.join(paths)}" if paths else "")


def describe(plan: StackPlan) -> list[str]:
    """Lines for a person: one for the stack, one for each changed object."""
    if plan.preview is None:
        return [f"{plan.stack}: its file is gone: the endpoint is drained and removed, and its URL answers 404"]
    if not plan.changes:
        return [f"{plan.stack}: no change"]
    # Without the stack and its provider: a reader would take "create kubernetes cluster" for more than a connection.
    steps = [step for step in plan.preview.steps if step.get("op") in VERBS and not PULUMIS_OWN.search(step["urn"])]
    summary = ", ".join(f"{count} to {verb}" for verb, count in sorted(plan.preview.counts.items()))
    return [f"{plan.stack}: {summary} ({pods(steps)})", *(f"    {describe_step(step)}" for step in steps)]


def pods(steps: Iterable[Mapping[str, Any]]) -> str:
    """What happens to the pods of models."""
    if any(step.get("op") == "create" and f":{names.KIND}::" in str(step["urn"]) for step in steps):
        return "new endpoint"
    if any(restarts_pods(step) for step in steps):
        return "new revision: its pods replace the old ones once they are ready"
    return "no pod of a model restarts"


def make(
    pulumi: Pulumi, declared: list[str], environment: str, *, removals: bool, report: Callable[[str], None]
) -> tuple[StackPlan, ...]:
    """Preview every declared stack, as many at once as there are cores; name the removals where asked for, and always
    those of a team whose namespace goes. Leaves nothing behind, whatever becomes of it.

    `declared` has the platform first; the answer keeps its order, with removals at its end.
    """
    known = pulumi.stacks()

    def preview(stack: str) -> StackPlan:
        report(f"previewing {stack}")
        is_new = stack not in known
        return StackPlan(stack, pulumi.preview(stack, is_new=is_new), is_new)

    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        plans = tuple(pool.map(preview, declared))
    leaving = leaving_teams(plans)
    gone = [stack for stack in orphans(known, declared, environment) if removals or team_of(stack) in leaving]
    return (*plans, *(StackPlan(stack, None) for stack in gone))
