"""Owns when a component of the node is started, stopped, and started again after it ended.

Leaves processes, probes and clocks to `init`. One idea: a table of phases and events, and a pure `decide` over it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from embedded.specification import Component

BACKOFF_FIRST_S: Final = 0.5
BACKOFF_MAX_S: Final = 15.0
# A run this long clears the record of earlier failures.
SETTLED_S: Final = 60.0


class Phase(StrEnum):
    WAITING = "waiting"  # for the components it comes after
    STARTING = "starting"
    READY = "ready"
    BACKOFF = "backoff"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Event(StrEnum):
    LAUNCHED = "launched"
    PROBE_ANSWERED = "probe answered"
    ENDED = "ended"
    BACKOFF_OVER = "backoff over"
    HELD = "held"
    RELEASED = "released"


TABLE: Final[Mapping[tuple[Phase, Event], Phase]] = {
    (Phase.WAITING, Event.LAUNCHED): Phase.STARTING,
    (Phase.WAITING, Event.HELD): Phase.STOPPED,
    (Phase.STARTING, Event.PROBE_ANSWERED): Phase.READY,
    (Phase.STARTING, Event.ENDED): Phase.BACKOFF,
    (Phase.STARTING, Event.HELD): Phase.STOPPING,
    (Phase.READY, Event.ENDED): Phase.BACKOFF,
    (Phase.READY, Event.HELD): Phase.STOPPING,
    (Phase.BACKOFF, Event.BACKOFF_OVER): Phase.WAITING,
    (Phase.BACKOFF, Event.HELD): Phase.STOPPED,
    (Phase.STOPPING, Event.ENDED): Phase.STOPPED,
    (Phase.STOPPED, Event.RELEASED): Phase.WAITING,
}
RUNNING: Final = frozenset({Phase.STARTING, Phase.READY, Phase.STOPPING})


@dataclass(frozen=True)
class Member:
    """Where one component stands. `since_s` is when the phase began; `failures` counts ends in a row."""

    phase: Phase = Phase.WAITING
    since_s: float = 0.0
    failures: int = 0
    launched_s: float | None = None
    last_end: str | None = None


@dataclass(frozen=True)
class Observation:
    """What happened since the last decision: how components ended, which answered, which are to be held."""

    ended: Mapping[str, str]
    answered: frozenset[str]
    held: frozenset[str]


@dataclass(frozen=True)
class Decision:
    launch: tuple[str, ...] = ()
    terminate: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()


def advance(member: Member, event: Event, now_s: float) -> Member:
    """The member after an event. An event that its phase does not know raises and changes nothing."""
    phase = TABLE.get((member.phase, event))
    if phase is None:
        raise ValueError(f"a component that is {member.phase} can't be {event}")
    return replace(member, phase=phase, since_s=now_s)


def backoff_s(failures: int) -> float:
    """0.5, 1, 2, 4, 8, then 15 seconds."""
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** (failures - 1))


def decide(
    components: Sequence[Component], members: Mapping[str, Member], observation: Observation, now_s: float
) -> tuple[dict[str, Member], Decision]:
    """The members after the observation, and what to do to their processes."""
    after = {
        component.name: _observed(component, members[component.name], observation, now_s) for component in components
    }
    ready = {name for name, member in after.items() if member.phase is Phase.READY}
    launch = tuple(
        component.name
        for component in components
        if after[component.name].phase is Phase.WAITING and ready.issuperset(component.after)
    )
    for name in launch:
        after[name] = replace(advance(after[name], Event.LAUNCHED, now_s), launched_s=now_s)
    return after, Decision(launch, *_stops(components, members, after, now_s))


def _observed(component: Component, member: Member, observation: Observation, now_s: float) -> Member:
    name = component.name
    if member.phase in RUNNING and name in observation.ended:
        member = _ended(member, observation.ended[name], now_s)
    if member.phase is Phase.STARTING and (not component.probe or name in observation.answered):
        member = advance(member, Event.PROBE_ANSWERED, now_s)
    if name in observation.held and (member.phase, Event.HELD) in TABLE:
        return advance(member, Event.HELD, now_s)
    if name not in observation.held and member.phase is Phase.STOPPED:
        return replace(advance(member, Event.RELEASED, now_s), failures=0)
    if member.phase is Phase.BACKOFF and now_s >= member.since_s + backoff_s(member.failures):
        return advance(member, Event.BACKOFF_OVER, now_s)
    return member


def _ended(member: Member, how: str, now_s: float) -> Member:
    settled = member.launched_s is not None and now_s - member.launched_s >= SETTLED_S
    failures = 1 if settled else member.failures + 1
    return replace(advance(member, Event.ENDED, now_s), failures=failures, last_end=how)


def _stops(
    components: Sequence[Component], before: Mapping[str, Member], after: Mapping[str, Member], now_s: float
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    terminate, kill = [], []
    for component in components:
        member = after[component.name]
        if member.phase is not Phase.STOPPING:
            continue
        if now_s - member.since_s >= component.stop_grace_s:
            kill.append(component.name)
        elif before[component.name].phase is not Phase.STOPPING:
            terminate.append(component.name)
    return tuple(terminate), tuple(kill)
