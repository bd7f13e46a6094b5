"""How long a refused client should wait: what stands before it, over how fast that goes away.

Pure. Leaves reading HAProxy and telling it to `waits`. Its one idea: only a full back end says how fast it drains, so
what it finished while it had room counts for nothing, and a back end with room has no wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# An answer says the wait and 0 to 4 seconds, drawn anew each time: 1 to 5 where the wait is unknown, 60 at most.
JITTER_S: Final = 5
WAIT_MIN_S: Final = 1
WAIT_MAX_S: Final = 60 - (JITTER_S - 1)
_WINDOW_S: Final = 30.0


@dataclass(frozen=True)
class PodCount:
    """Requests in flight at a pod, and all that it was ever given."""

    in_flight: int
    sent: int


@dataclass(frozen=True)
class Reading:
    """One back end at `at_s` (monotonic). `slots`: the limits of the pods that take requests, added up."""

    at_s: float
    queued: int
    slots: int
    pods: Mapping[str, PodCount]

    @property
    def in_flight(self) -> int:
        return sum(pod.in_flight for pod in self.pods.values())

    @property
    def full(self) -> bool:
        return self.slots > 0 and self.queued + self.in_flight >= self.slots


@dataclass(frozen=True)
class Interval:
    """Between two readings of a full back end: what was finished in how much time of a slot."""

    begun_at_s: float
    slot_s: float
    finished: int


@dataclass(frozen=True)
class Backlog:
    """The last reading, and the intervals before it without a moment of room."""

    reading: Reading
    intervals: tuple[Interval, ...] = ()


def observe(before: Backlog | None, now: Reading) -> Backlog:
    if before is None or not (before.reading.full and now.full):
        return Backlog(now)
    kept = tuple(each for each in before.intervals if now.at_s - each.begun_at_s <= _WINDOW_S)
    return Backlog(now, (*kept, _between(before.reading, now)))


def _between(before: Reading, now: Reading) -> Interval:
    """A pod that left takes its count along, and one that fell was restarted: what they finished is not known."""
    finished = 0
    for name, pod in now.pods.items():
        then = before.pods.get(name, PodCount(0, 0))
        finished += max(0, pod.sent - then.sent - (pod.in_flight - then.in_flight))
    return Interval(before.at_s, before.slots * (now.at_s - before.at_s), finished)


def expected_wait_s(backlog: Backlog) -> int | None:
    """Until a slot would be free for one more request; None: unknown, or there is room.

    2 slots, 7 queued, 10 finished in 5 s: a request takes 1 s of a slot, 8 must finish, 2 at a time: 4 s. Where
    nothing was finished, one request is taken to end just now: the shortest wait that fits what was seen.
    """
    now = backlog.reading
    slot_s = sum(each.slot_s for each in backlog.intervals)
    if not now.full or not slot_s:
        return None
    a_request_s = slot_s / max(1, sum(each.finished for each in backlog.intervals))
    ahead = now.queued + now.in_flight - now.slots + 1
    return min(WAIT_MAX_S, max(WAIT_MIN_S, math.ceil(ahead * a_request_s / now.slots)))
