"""Knative's KPA: two means of requests in flight, and a panic mode that remembers its peak.

Owns the formulas of knative/serving's autoscaler on plain numbers. Leaves out the sampling of pods (the simulator's
sums are exact, which flatters it) and the weighted window, which is off by default.
"""

import math
from dataclasses import dataclass

from simulator.policy import Plain, QueueRules, Seen, Waits
from simulator.rivals.signal import bucket_mean

UTILIZATION = 0.7
STABLE_S = 60.0
PANIC_S = 6.0
PANIC_THRESHOLD = 2.0
UP_RATE = 1000.0
DOWN_RATE = 2.0
GRACE_S = 30.0
ACTIVATOR_QUEUE = 10_000
POD_QUEUE_FACTOR = 10
REQUEST_TIMEOUT_S = 300.0


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


def queue_of(ready: int, container_concurrency: int, panic: float) -> QueueRules:
    """The activator's one queue while it is in the path; else each pod's own, ten times what it takes."""
    if activator_in_path(ready, container_concurrency, panic):
        return QueueRules(total=ACTIVATOR_QUEUE, timeout_s=REQUEST_TIMEOUT_S)
    each = POD_QUEUE_FACTOR * container_concurrency
    return QueueRules(Waits.REPLICA, total=0, per_replica=each, timeout_s=REQUEST_TIMEOUT_S, holds_at_zero=False)


def to_zero(idle_s: float, active_s: float) -> bool:
    """The last pod goes once nothing came for the stable window, then the grace, and never within a window of waking.
    `idle_s` counts from the first tick that wanted none."""
    return active_s > STABLE_S and idle_s >= GRACE_S


class Kpa(Plain):
    """Container concurrency set to a replica's slots. What a pod reports of a second is read within the next."""

    name = "kpa"
    period_s = 2.0
    metric_delay_s = 1.0
    window_s = STABLE_S + 1.0

    def __init__(self, utilization: float = UTILIZATION) -> None:
        self.queue = QueueRules(total=ACTIVATOR_QUEUE, timeout_s=REQUEST_TIMEOUT_S)
        self._utilization = utilization
        self._mode: Panic | None = None
        self._active_since_s: float | None = None
        self._idle_since_s: float | None = None

    def decide(self, seen: Seen) -> int | None:
        ready, until_s = seen.fleet.ready, seen.now_s - self.metric_delay_s
        mode = started(ready, seen.now_s) if self._mode is None else self._mode
        stable = bucket_mean(seen.samples, until_s, STABLE_S)
        if stable is None:
            self._mode = mode
            return None
        panic = bucket_mean(seen.samples, until_s, PANIC_S) or 0.0
        self._mode, wanted = desired(stable, panic, ready, target_of(seen.slots, self._utilization), mode, seen.now_s)
        self.queue = queue_of(ready, seen.slots, panic)
        return self._above_zero(wanted, seen)

    def _above_zero(self, wanted: int, seen: Seen) -> int:
        if seen.fleet.issued == 0 or self._active_since_s is None:
            self._active_since_s = seen.now_s
        if wanted > 0 or seen.fleet.issued == 0:
            self._idle_since_s = None
            return wanted
        self._idle_since_s = seen.now_s if self._idle_since_s is None else self._idle_since_s
        return 0 if to_zero(seen.now_s - self._idle_since_s, seen.now_s - self._active_since_s) else 1
