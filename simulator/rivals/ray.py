"""Ray Serve's autoscaling policy: ongoing and queued requests over a target, acted on only if they insist.

Owns the formulas of `calculate_desired_num_replicas` and `replica_queue_length_autoscaling_policy`. Its one idea (and
trait): a count of loops in a row, not a window, holds a decision back, and the last loop's value is applied.
"""

import math
from dataclasses import dataclass

from simulator.policy import UNBOUNDED, Plain, Seen
from simulator.rivals.signal import mean_load

LOOP_S = 0.1
LOOK_BACK_S = 30.0
PUSH_S = 10.0
UP_DELAY_S = 30.0
DOWN_DELAY_S = 600.0


def desired(total: float, running: int, target: float, factor: float = 1.0) -> int:
    """running + factor x (total / target - running), rounded up; a decrease that rounding would stall takes one.

    100 requests, target 8, 5 running -> 13. Factor 0.5, total 32: 5 + 0.5 x (4 - 5) = 4.5 -> 5, stalled -> 4.
    """
    raw = total / target
    scaled = math.ceil(running + factor * (raw - running))
    stalled = raw < running and scaled == running
    return scaled - 1 if stalled else scaled


@dataclass(frozen=True)
class Insistence:
    """Loops in a row that wanted more (above zero) or less (below)."""

    loops: int = 0


def insisted(held: Insistence, target_count: int, wanted: int, loops: int = 1) -> tuple[Insistence, int]:
    """The count after `loops` equal loops, and the replicas: as they are until the delay is over."""
    if wanted == target_count:
        return Insistence(), target_count
    sign = 1 if wanted > target_count else -1
    run = (held.loops if held.loops * sign > 0 else 0) + sign * loops
    delay_s = UP_DELAY_S if sign > 0 else DOWN_DELAY_S
    if abs(run) > round(delay_s / LOOP_S):
        return Insistence(), wanted
    return Insistence(run), target_count


class RayServe(Plain):
    """Requests wait at the handle, without a bound. Ten loops are taken together: all see the same numbers, since a
    handle pushes its 30 s mean every 10 s."""

    name = "ray"
    period_s = 1.0
    metric_delay_s = 0.0
    window_s = LOOK_BACK_S + 1.0
    queue = UNBOUNDED

    def __init__(self, utilization: float = 0.7, replicas_min: int = 1) -> None:
        self._utilization = utilization
        self._replicas_min = replicas_min
        self._held = Insistence()
        self._total: float | None = None
        self._pushed_s = -math.inf

    def decide(self, seen: Seen) -> int | None:
        if seen.now_s - self._pushed_s >= PUSH_S:
            self._total = mean_load(seen.samples, seen.now_s, LOOK_BACK_S)
            self._pushed_s = seen.now_s
        issued, target = seen.fleet.issued, self._utilization * seen.slots
        if self._total is None:
            return None
        if issued == 0:
            return max(1, self._replicas_min) if self._total > 0 else None
        wanted = max(desired(self._total, seen.fleet.ready, target), self._replicas_min)
        self._held, replicas = insisted(self._held, issued, wanted, round(self.period_s / LOOP_S))
        return replicas
