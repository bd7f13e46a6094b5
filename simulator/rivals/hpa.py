"""The Kubernetes HPA's arithmetic, with and without `behavior`, and the two metrics that a model server gives it.

Owns the formulas of the controller's `replica_calculator` and `horizontal` (Kubernetes 1.3x) on plain numbers. Leaves
the metric pipeline's delay to `Hpa.metric_delay_s`. Its one idea: recommendations are kept raw, limits come after.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.policy import UNBOUNDED, Plain, QueueRules, Seen, Waits
from simulator.rivals.signal import mean_load

TOLERANCE = 0.1
SYNC_S = 15.0
STABILISATION_S = 300.0
SCRAPE_S = 15.0
AVERAGE_S = 30.0


def average_value(total: float, target: float, current: int) -> int:
    """External or Object metric, type AverageValue: 45 in flight, target 10, 4 replicas -> 5."""
    if current == 0:
        return math.ceil(total / target)
    within = abs(1.0 - total / (target * current)) <= TOLERANCE
    return current if within else math.ceil(total / target)


@dataclass(frozen=True)
class PodMetrics:
    """A metric that pods report: how many do, their mean, and how many have none (`pending`: not even started)."""

    reporting: int
    mean: float
    missing: int = 0
    pending: int = 0


def pods_average(pods: PodMetrics, target: float, current: int) -> int:
    """Pods metric: ceil(ratio x pods), those without a value counted against the direction of the change.

    Down, a pod without a metric counts as at target; up, it and those still pending count as idle. If that brings the
    ratio within tolerance, or past 1, nothing changes.
    """
    if pods.reporting == 0:
        return current
    ratio = pods.mean / target
    if pods.missing == 0 and (pods.pending == 0 or ratio <= 1.0):
        return current if abs(1.0 - ratio) <= TOLERANCE else math.ceil(ratio * pods.reporting)
    counted = pods.reporting + pods.missing + (pods.pending if ratio > 1.0 else 0)
    assumed = pods.missing * target if ratio < 1.0 else 0.0
    corrected = (pods.mean * pods.reporting + assumed) / counted / target
    wanted = math.ceil(corrected * counted)
    turned = (ratio < 1.0 and (corrected > 1.0 or wanted > current)) or (
        ratio > 1.0 and (corrected < 1.0 or wanted < current)
    )
    return current if turned or abs(1.0 - corrected) <= TOLERANCE else wanted


def limited(current: int, desired: int) -> int:
    """Without `behavior`: at most double, or 4, in one sync."""
    return min(desired, max(2 * current, 4))


def limited_by_behavior(current: int, desired: int, added: int, removed: int) -> int:
    """The defaults of `behavior`: up x2 or +4 over what stood 15 s ago, the larger; down 100 % in 15 s.

    `added` and `removed` are the changes of the last 15 s: 12 replicas of which 4 are new may become 16, not 24.
    """
    start = current - added + removed
    return min(desired, max(2 * start, start + 4, current)) if desired > current else desired


def stabilised(current: int, newest: int, recent: Sequence[int]) -> int:
    """With `behavior` (up window 0 s): up to the newest, down to the maximum of the window, else as it is."""
    return min(max(current, newest), max((newest, *recent)))


class Hpa(Plain):
    """External metric, AverageValue: all requests in flight and waiting at the balancer, through Prometheus.

    Scraped every 15 s and averaged over 30 s, so the mean that a sync sees is 15 s old on arrival and up to another
    15 s pass to the next sync.
    """

    name = "hpa"
    period_s = SYNC_S
    metric_delay_s = SCRAPE_S
    window_s = AVERAGE_S + SCRAPE_S

    def __init__(self, utilization: float = 0.7, behavior: bool = True, queue: QueueRules = UNBOUNDED) -> None:
        self.queue = queue
        self._utilization = utilization
        self._behavior = behavior
        self._recent: deque[tuple[float, int]] = deque()

    def decide(self, seen: Seen) -> int | None:
        current = seen.fleet.issued
        if not self._recent:  # the first sight counts as a recommendation, so nothing falls for one window
            self._recent.append((seen.now_s, current))
        load = mean_load(seen.samples, seen.now_s - self.metric_delay_s, AVERAGE_S)
        if load is None:
            return None
        raw = self._recommended(load, seen)
        self._recent.append((seen.now_s, raw))
        while self._recent[0][0] <= seen.now_s - STABILISATION_S:
            self._recent.popleft()
        recent = [replicas for _, replicas in self._recent]
        if not self._behavior:
            return limited(current, max(recent))
        # A sync is as long as the limit's period, so the changes of the last one are just outside it: x2 a sync.
        return limited_by_behavior(current, stabilised(current, raw, recent), added=0, removed=0)

    def _recommended(self, load: float, seen: Seen) -> int:
        return average_value(load, self._utilization * seen.slots, seen.fleet.issued)


class HpaOfPods(Hpa):
    """Pods metric: what each pod has in flight and waiting on it; pods that start have no metric yet."""

    name = "hpa-pods"

    def __init__(self, utilization: float = 0.7, behavior: bool = True) -> None:
        super().__init__(utilization, behavior, QueueRules(waits=Waits.REPLICA))

    def _recommended(self, load: float, seen: Seen) -> int:
        ready = seen.fleet.ready
        pods = PodMetrics(ready, load / max(ready, 1), pending=seen.fleet.starting)
        return pods_average(pods, self._utilization * seen.slots, seen.fleet.issued)
