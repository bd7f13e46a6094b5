"""What the last half hour says of the next start-up time: how much may come before a replica asked for now is ready.

Owns the memory of recent demand and what is expected of it. Pure. Its one idea: a replica that is asked for when a
burst is there comes too late for it, so what bursts usually reach is kept ready; but never more above the present than
demand has risen within a start-up time lately, so that a slow wave is followed and not held at its crest. A rise counts
once it was repeated, or where it was over within a start-up time: whatever such a burst asks for comes too late.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controllers.autoscaler.moment import Moment
from controllers.autoscaler.settings import Settings

SPAN_S = 10.0  # one entry
_BURST = 3  # entries that count as one
_OVER = 2 / 3  # a burst is over when so much of its rise is gone
_BURSTS_LEAST = 6
_RISES_LEAST = 12
_LIMIT_CHANGE = 0.2
_SLACK = 2  # entries that one rise may take itself, beside the start-up time in which it is seen coming


@dataclass(frozen=True)
class Recent:
    """The largest demand of every 10 s, oldest first; what was unknown is not there.

    `limit`: a replica's, meanwhile. Under quite another one requests take another time, and the past says nothing.
    """

    highs: tuple[tuple[Moment, float], ...] = ()
    limit: int = 0

    def add(self, at_s: float, demand: float, limit: int, window_s: float) -> "Recent":
        if abs(limit - self.limit) > _LIMIT_CHANGE * self.limit:
            return Recent(((at_s, demand),), limit)
        if self.highs and at_s - self.highs[-1][0] < SPAN_S:
            began_s, high = self.highs[-1]
            return self if demand <= high else replace(self, highs=(*self.highs[:-1], (began_s, demand)))
        first = next((i for i, (began_s, _) in enumerate(self.highs) if began_s > at_s - window_s), len(self.highs))
        return replace(self, highs=(*self.highs[first:], (at_s, demand)))

    def expected(self, demand: float, start_s: float, settings: Settings) -> float | None:
        """The demand to be ready for, at least `demand`; None where too little is known.

        A burst of 80 every five minutes over a base of 10 is among the 5 % largest of half minutes, and demand rose by
        70 within a start-up time six times: 80. A single step to 80 was a rise once: what is there now. A single burst
        to 80 that was over in half a minute: 80, while it is among the 5 %.
        """
        highs = [high for _, high in self.highs]
        if not any(highs):
            return None
        bursts = [max(highs[i : i + _BURST]) for i in range(0, len(highs), _BURST)]
        ahead = math.ceil(max(start_s, 0.0) / SPAN_S) + 1
        rises = [max(highs[i : i + ahead + 1]) - highs[i] for i in range(len(highs) - ahead)]
        if len(bursts) < _BURSTS_LEAST or len(rises) < _RISES_LEAST:
            return None
        usual = quantile(bursts, settings.burst_level)
        rise = _burst(highs, ahead, _repeated(rises, ahead + 1 + _SLACK))
        return max(min(usual, demand + rise), demand)


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed: of 1..20, 0.95 -> 19."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def _repeated(rises: Sequence[float], entries: int) -> float:
    """The rise that more than so many entries saw coming. Each sees one coming for a start-up time, so a rise that
    came once is not among them."""
    return sorted(rises, reverse=True)[entries] if entries < len(rises) else 0.0


def _burst(highs: Sequence[float], ahead: int, least: float) -> float:
    """The largest rise within so many entries that was over within as many; `least` where none is larger.

    20, 90, 90, 20: 70. A crowd that leaves slowly, 20, 90, 80, 70, has not gone by two thirds of its rise; and 60, 90,
    60 may be chance, since it did not double what was there.
    """
    largest, bottom = least, min(highs)
    for at, high in enumerate(highs):
        if high - bottom > largest:
            rise = high - min(highs[max(at - ahead, 0) : at + 1])
            fall = high - min(highs[at : at + ahead + 1])
            if fall >= _OVER * rise and rise >= high / 2:
                largest = max(largest, min(rise, fall))
    return largest
