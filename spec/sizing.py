"""Owns the arithmetic between requests in flight and replicas: targets, floors, ceilings. Pure and total.

Leaves live numbers to the autoscaler. One idea: a check of files, the rollout and the autoscaler count replicas by the
same functions, so none of them promises what another doesn't hold.
"""

from __future__ import annotations

import math
from typing import Final

# First limit of requests in flight of one replica, until its own is learnt: the runtime collects what waits.
INITIAL_LIMIT: Final = 64
UTILIZATION_MAX: Final = 0.95
REPLICAS_MAX: Final = 100_000  # whatever a demand says: no Deployment is asked for more


def target_of(limit: int, utilization: float) -> float:
    """Requests in flight that one replica should carry: limit 64 at 0.8 -> 51.2. Always below the limit: at the
    limit the signal could not rise any further."""
    return max(limit, 1) * min(max(utilization, 0.01), UTILIZATION_MAX)


def replicas_for(requests: float, target: float) -> int:
    """ceil(requests / target), saturating: 96 / 51.2 -> 2, 102.4 / 51.2 -> 2, infinity -> the most there is."""
    if requests <= 0:
        return 0
    if not target > 0 or math.isnan(requests) or requests >= REPLICAS_MAX * target:
        return REPLICAS_MAX
    # A quotient that is whole but for rounding (0.3 / 0.1 = 2.9999999999999996) is whole.
    return math.ceil(round(requests / target, 9))


def floor_replicas(concurrency_min: int, target: float) -> int:
    """The replicas that are always ready; at least one."""
    return max(replicas_for(concurrency_min, target), 1)


def ceiling_replicas(concurrency_max: int, target: float) -> int:
    """The most replicas that `concurrency.max` can use; at least one."""
    return max(replicas_for(concurrency_max, target), 1)
