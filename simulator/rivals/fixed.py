"""The ends of the scale: a fleet that never changes, one that knows the future, one that knows the present.

Owns `Static`, which swept over sizes is the best constant fleet of each cost, `Clairvoyant`, which asks for what each
second needs one start-up ahead, and `Prompt`, which knows each second's need as it comes. No policy has to be as good
as the second; what the third loses is lost to start-up alone, so only a forecast or spare replicas do better.
"""

import math
from collections.abc import Sequence

from simulator.policy import UNBOUNDED, Plain, QueueRules, Seen


class Static(Plain):
    """`replicas`, always."""

    name = "static"
    window_s = 1.0

    def __init__(self, replicas: int, queue: QueueRules = UNBOUNDED) -> None:
        self.queue = queue
        self._replicas = replicas

    def decide(self, seen: Seen) -> int | None:
        return self._replicas


def needed(rates_rps: Sequence[float], service_s: float, target: float) -> list[int]:
    """Replicas of each second, at least one: 1,000 req/s x 0.2 s / 5.6 -> 36."""
    return [max(math.ceil(round(rate * service_s / target, 9)), 1) for rate in rates_rps]


def ahead(replicas: Sequence[int], from_s: float, to_s: float) -> int:
    """The largest need of the seconds from `from_s` to `to_s`; after the end, that of the last second."""
    first = min(max(math.floor(from_s), 0), len(replicas) - 1)
    return max(replicas[first : max(math.ceil(to_s), first + 1)])


class Clairvoyant(Plain):
    """What this second and those of the next start-up need, each second; `start_up_s` the longest there is."""

    name = "clairvoyant"
    period_s = 1.0
    window_s = 1.0

    def __init__(self, replicas: Sequence[int], start_up_s: float, queue: QueueRules = UNBOUNDED) -> None:
        self.queue = queue
        self._replicas = replicas
        self._start_up_s = start_up_s

    def decide(self, seen: Seen) -> int | None:
        return ahead(self._replicas, seen.now_s, seen.now_s + self._start_up_s + 2 * self.period_s)


class Prompt(Plain):
    """The largest need of the last `hold_s`, this second's included: a reactive policy without delay or noise."""

    name = "prompt"
    period_s = 1.0
    window_s = 1.0

    def __init__(self, replicas: Sequence[int], hold_s: float = 300.0, queue: QueueRules = UNBOUNDED) -> None:
        self.queue = queue
        self._replicas = replicas
        self._hold_s = hold_s

    def decide(self, seen: Seen) -> int | None:
        return ahead(self._replicas, seen.now_s - self._hold_s, seen.now_s + self.period_s)
