"""Knative's KPA: two means of requests in flight, and a panic mode that remembers its peak.

Owns the formulas of knative/serving's autoscaler on plain numbers. Leaves out the sampling of pods (the simulator's
sums are exact, which flatters it) and the weighted window, which is off by default.
"""

import math
from dataclasses import dataclass

UTILIZATION = 0.7
STABLE_S = 60.0
PANIC_S = 6.0
PANIC_THRESHOLD = 2.0
UP_RATE = 1000.0
DOWN_RATE = 2.0
GRACE_S = 30.0
ACTIVATOR_QUEUE = 10_000
POD_QUEUE_FACTOR = 10


def target_of(container_concurrency: float, utilization: float = UTILIZATION) -> float:
    """0.7 of what a container takes: 16 -> 11.2."""
    return max(0.01, utilization * container_concurrency)


@dataclass(frozen=True)
class Panic:
    """`since_s`: the last tick over the threshold, None: calm. `peak`: the most that this panic asked for."""

    since_s: float | None = None
    peak: int = 0


def started(ready: int, now_s: float) -> Panic:
    """A restart: with more than one pod it begins in panic, so that the lost history can't lower them for 60 s."""
    return Panic(now_s, ready) if ready > 1 else Panic()


def desired(stable: float, panic: float, ready: int, target: float, mode: Panic, now_s: float) -> tuple[Panic, int]:
    """One tick: both means over the target, each within [ready / 2, 1000 x ready]; in panic the larger, never less
    than this panic's peak."""
    pods = max(1, ready)
    over = math.ceil(panic / target) / pods >= PANIC_THRESHOLD
    wanted, wanted_in_panic = (_clamped(math.ceil(mean / target), pods) for mean in (stable, panic))
    mode = _next(mode, over, now_s)
    if mode.since_s is None:
        return mode, wanted
    peak = max(wanted, wanted_in_panic, mode.peak)
    return Panic(mode.since_s, peak), peak


def _next(mode: Panic, over: bool, now_s: float) -> Panic:
    if over:
        return Panic(now_s, mode.peak)
    ended = mode.since_s is not None and now_s - mode.since_s > STABLE_S
    return Panic() if ended else mode


def _clamped(replicas: int, pods: int) -> int:
    return int(max(min(replicas, math.ceil(UP_RATE * pods)), math.floor(pods / DOWN_RATE)))


def activator_in_path(ready: int, container_concurrency: float, panic: float, burst: float = 211.0) -> bool:
    """Whether requests pass the activator, and so wait in its queue: until spare capacity exceeds the burst."""
    return math.floor(ready * container_concurrency - burst - panic) < 0
