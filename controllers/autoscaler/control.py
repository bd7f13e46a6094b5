"""A person's hand on one endpoint's replicas: paused, dry run, or so many of them for a while. Pure.

Owns how that is written in the endpoint's annotation, when it has expired, and what it makes of a verdict. The one
writer of the annotation is the command line, under its own field manager. Its one idea: a hold replaces what the load
asks for, and nothing else: floor, ceiling and budget still bind, and a successor still gets what the live revision has.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.observation import Observation, Role
from controllers.autoscaler.rules import Reason
from controllers.kube.fields import seconds, timestamp
from spec.sizing import REPLICAS_MAX, ceiling_replicas, floor_replicas, replicas_for


class Mode(StrEnum):
    """PAUSE holds the replicas that there are; DRY_RUN does too, and tells what would be; SCALE holds a number."""

    PAUSE = "pause"
    DRY_RUN = "dry-run"
    SCALE = "scale"


@dataclass(frozen=True)
class Control:
    """`until_s` (wall clock): when it ends by itself; None: when somebody ends it. SCALE always ends by itself."""

    mode: Mode
    replicas: int | None = None
    until_s: float | None = None


_REASONS = {Mode.PAUSE: Reason.PAUSED, Mode.DRY_RUN: Reason.DRY_RUN, Mode.SCALE: Reason.OVERRIDDEN}


def control_text(control: Control) -> str:
    """The annotation's value: `{"mode": "scale", "replicas": 5, "until": "2026-01-31T12:00:00Z"}`."""
    said: dict[str, object] = {"mode": str(control.mode)}
    if control.replicas is not None:
        said["replicas"] = control.replicas
    if control.until_s is not None:
        said["until"] = timestamp(control.until_s)
    return json.dumps(said)


def parse_control(text: str) -> Control:
    """Raises ValueError with a sentence for the person who wrote it."""
    try:
        said = json.loads(text)
    except ValueError:
        raise ValueError(f"{text[:80]!r} is no JSON") from None
    if not isinstance(said, dict):
        raise ValueError(f"{text[:80]!r} is no JSON object")
    return Control(_mode(said), _replicas(said), _until_s(said))


def _mode(said: Mapping[str, Any]) -> Mode:
    try:
        return Mode(str(said.get("mode")))
    except ValueError:
        allowed = ", ".join(Mode)
        raise ValueError(f"mode {said.get('mode')!r} is none of {allowed}") from None


def _replicas(said: Mapping[str, Any]) -> int | None:
    if said["mode"] != Mode.SCALE:
        return None
    given = said.get("replicas")
    if type(given) is not int or not 0 < given <= REPLICAS_MAX:
        raise ValueError(f"replicas {given!r} is no whole number from 1 to {REPLICAS_MAX}")
    return given


def _until_s(said: Mapping[str, Any]) -> float | None:
    given = said.get("until")
    until_s = seconds(given)
    if given is not None and until_s is None:
        raise ValueError(f"until {given!r} is no time such as 2026-01-31T12:00:00Z")
    if until_s is None and said["mode"] == Mode.SCALE:
        raise ValueError("scale needs until, the time when it ends")
    return until_s


def in_force(control: Control | None, wall_s: float) -> Control | None:
    """None once its time is over."""
    over = control is not None and control.until_s is not None and wall_s >= control.until_s
    return None if over else control


def controlled(verdict: Verdict, observation: Observation, control: Control | None) -> Verdict:
    """What is to be made true, of what the load asks for."""
    if control is None:
        return verdict
    return replace(verdict, decisions=tuple(_held(verdict, observation, control)))


def _held(verdict: Verdict, observation: Observation, control: Control) -> Iterator[Decision]:
    """First the revision that has the traffic, or is the first to get it; its successor follows it."""
    capacity: float | None = None
    for decision in verdict.decisions:
        if capacity is None and decision.role in (Role.TRAFFIC, Role.SUCCESSOR):
            wanted = control.replicas if control.replicas is not None else decision.issued
            decision = _set(decision, observation, wanted, _REASONS[control.mode])
            capacity = decision.desired * decision.target
        elif capacity is not None and decision.role is Role.SUCCESSOR:
            wanted = max(replicas_for(capacity, decision.target), decision.issued)
            decision = _set(decision, observation, wanted, decision.reason)
        yield decision


def _set(decision: Decision, observation: Observation, replicas: int, reason: Reason) -> Decision:
    """The range is counted by the declared target, as the rules do: a large pool's own is above it."""
    declared = {revision.name: revision.target for revision in observation.revisions}
    target = declared.get(decision.revision, decision.target)
    trace = [*decision.trace, (str(reason), replicas)]
    bounds = (
        ("floor", max(replicas, floor_replicas(observation.concurrency_min, target))),
        ("ceiling", ceiling_replicas(observation.concurrency_max, target)),
        ("budget", observation.budget if observation.budget is not None else REPLICAS_MAX),
    )
    for name, bound in bounds:
        bounded = bound if name == "floor" else min(replicas, bound)
        if bounded != replicas:
            replicas = bounded
            trace.append((name, replicas))
    return replace(decision, desired=replicas, reason=reason, trace=tuple(trace))
