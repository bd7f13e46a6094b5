"""The Kubernetes HPA's arithmetic, with and without `behavior`, and the two metrics that a model server gives it.

Owns the formulas of the controller's `replica_calculator` and `horizontal` (Kubernetes 1.3x) on plain numbers. Leaves
the metric pipeline's delay to `Hpa.metric_delay_s`. Its one idea: recommendations are kept raw, limits come after.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 0.1
SYNC_S = 15.0
STABILISATION_S = 300.0
LIMIT_PERIOD_S = 15.0


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
    turned = (ratio < 1.0 < corrected) or (corrected < 1.0 < ratio)
    return current if turned or abs(1.0 - corrected) <= TOLERANCE else math.ceil(corrected * counted)


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
