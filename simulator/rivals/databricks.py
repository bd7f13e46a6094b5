"""The two-axis autoscaler as its public description has it, horizontal axis only.

Owns what is stated: ceil(requests / target), a reading each second, a decision every 5 s on the last 20 s, some 5
minutes of evidence to go down, growth of a cycle capped relative to what there is. What is not stated is chosen here
and named: the 20 s are a mean, waiting requests count and refused ones don't, the cap is `growth`, and a decrease goes
to the largest recommendation of the window.
"""

import math
from collections import deque

from simulator.policy import UNBOUNDED, Plain, QueueRules, Seen
from simulator.rivals.signal import mean_load

UP_WINDOW_S = 20.0
DOWN_WINDOW_S = 300.0
GROWTH = 4.0


def recommended(requests: float, target: float) -> int:
    """ceil(requests / target): 96 at 11.2 -> 9."""
    return math.ceil(requests / target)


def capped(issued: int, wanted: int, growth: float = GROWTH) -> int:
    """Up to `growth` x what was asked for, starting ones included: 3 wants 40, gets 12."""
    return min(wanted, max(math.floor(growth * max(issued, 1)), issued + 1))


class AsDescribed(Plain):
    """`queue` is not stated either; the two that bracket it are a bounded one (its 429s) and one without a bound."""

    name = "databricks"
    period_s = 5.0
    metric_delay_s = 0.0
    window_s = UP_WINDOW_S + 1.0

    def __init__(self, utilization: float = 0.7, queue: QueueRules = UNBOUNDED, growth: float = GROWTH) -> None:
        self.queue = queue
        self._utilization = utilization
        self._growth = growth
        self._recent: deque[tuple[float, int]] = deque()

    def decide(self, seen: Seen) -> int | None:
        load, issued = mean_load(seen.samples, seen.now_s, UP_WINDOW_S), seen.fleet.issued
        if not self._recent:
            self._recent.append((seen.now_s, issued))
        if load is None:
            return None
        raw = recommended(load, self._utilization * seen.slots)
        self._recent.append((seen.now_s, raw))
        while self._recent[0][0] <= seen.now_s - DOWN_WINDOW_S:
            self._recent.popleft()
        peak = max(replicas for _, replicas in self._recent)
        return capped(issued, raw, self._growth) if raw >= issued else min(issued, peak)
