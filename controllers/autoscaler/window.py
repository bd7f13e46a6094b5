"""Time windows over samples and over past demands. Pure: the time is an argument, the order of samples is not.

Owns means and maxima, and what may be said when samples are missing: a mean is over the known ones, an incomplete
one says "at least", and a window is covered only if no hole in it is longer than the allowed gap.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.moment import Moment

_PAIRS_LEAST = 10
_SPAN_LEAST_S = 0.1
_STEPS = 0.1  # the share of differences that may be no noise
_KEPT_VARIANCE = 0.623  # of normal ones, the others' mean square over that of all
_RAMP = 0.4  # the least growth of a window over the largest


@dataclass(frozen=True)
class Means:
    """Means over one window, of so many `samples`; rates are None where nothing is known about them."""

    in_flight: float
    queued: float
    arrived_rps: float | None
    served_rps: float | None
    refused_rps: float | None
    complete: bool
    retried_rps: float | None = None
    samples: int | None = None

    @property
    def first_rps(self) -> float | None:
        """First attempts: arrived, less what is marked as a retry."""
        return None if self.arrived_rps is None else max(self.arrived_rps - (self.retried_rps or 0.0), 0.0)


def recent(samples: Iterable[LoadSample], now_s: float, window_s: float) -> list[LoadSample]:
    """The samples of (now - window, now], whatever their order."""
    return [sample for sample in samples if now_s - window_s < sample.at_s <= now_s]


def means(samples: Iterable[LoadSample], now_s: float, window_s: float) -> Means | None:
    """None where nothing is known. An incomplete sample is a lower bound: it may raise the mean, never lower it, be it
    of what is there or of what arrives."""
    known = [s for s in recent(samples, now_s, window_s) if s.load is not None and s.load.sane]
    whole = [s.load for s in known if s.load is not None and s.complete]
    if whole and len(whole) == len(known):
        return _means(whole, True)
    every = [s.load for s in known if s.load is not None]
    candidates = [_means(loads, bool(whole)) for loads in (whole, every) if loads]
    if not candidates:
        return None
    most = max(candidates, key=lambda m: m.in_flight + m.queued)
    return replace(max(candidates, key=lambda m: m.first_rps or 0.0), in_flight=most.in_flight, queued=most.queued)


def _means(loads: Sequence[Load], complete: bool) -> Means:
    return Means(
        in_flight=sum(load.in_flight for load in loads) / len(loads),
        queued=sum(load.queued for load in loads) / len(loads),
        arrived_rps=_mean(loads, lambda load: load.arrived_rps),
        served_rps=_mean(loads, lambda load: load.served_rps),
        refused_rps=_mean(loads, lambda load: load.refused_rps),
        complete=complete,
        retried_rps=_mean(loads, lambda load: load.retried_rps),
        samples=len(loads),
    )


def _mean(loads: Sequence[Load], rate: Callable[[Load], float | None]) -> float | None:
    known = [value for load in loads if (value := rate(load)) is not None]
    return sum(known) / len(known) if known else None


def noise_rps(samples: Iterable[LoadSample], now_s: float, window_s: float) -> float | None:
    """The standard deviation of a second's first attempts, from successive differences, which a slope hardly moves
    (von Neumann 1941): sqrt(mean((x_i - x_i-1)^2) / 2). The largest tenth is left out and made up for as if they were
    normal, so that a step does not move it either. A rate over two seconds, since a sample was lost, varies by half as
    much. None below ten pairs.

    8, 12, 8, 12: the differences are 4, so sqrt(16 / 2) = 2.8, over 0.62.
    """
    known = sorted(
        (sample.at_s, sample.load.first_rps)
        for sample in recent(samples, now_s, window_s)
        if sample.complete and sample.load is not None and sample.load.sane and sample.load.first_rps is not None
    )
    spans_s = [max(later - earlier, _SPAN_LEAST_S) for (earlier, _), (later, _) in pairwise(known)]
    if len(spans_s) < _PAIRS_LEAST:
        return None
    shares = (1 / before + 1 / after for before, after in pairwise([spans_s[0], *spans_s]))
    grown = (later - earlier for (_, earlier), (_, later) in pairwise(known))
    squares = sorted(each * each / share for each, share in zip(grown, shares, strict=True))
    kept = squares[: math.ceil(len(squares) * (1 - _STEPS))]
    deviation = math.sqrt(sum(kept) / len(kept) / _KEPT_VARIANCE)
    return deviation if deviation < math.inf else None


def growth_rps(samples: Iterable[LoadSample], now_s: float, window_s: float) -> float | None:
    """By how much the mean of first attempts keeps growing from a window to the next: the mean of the last four times,
    0 where these are too unequal to be a ramp; None where one of the five windows is unknown.

    100, 120, 136, 160, 180: 20. A step is in one window or two (100, 100, 150, 200, 200: 0), and what those add who try
    again ebbs (0, 400, 2,100, 5,200, 5,900: 400 is less than 0.4 x 3,100).
    """
    known = list(samples)
    ends_s = [now_s - turn * window_s for turn in (4, 3, 2, 1, 0)]
    found = [means(known, end_s, window_s) for end_s in ends_s]
    rates = [each.first_rps for each in found if each is not None and each.complete and each.first_rps is not None]
    if len(rates) < len(ends_s):
        return None
    grown = [later - earlier for earlier, later in pairwise(rates)]
    return sum(grown) / len(grown) if min(grown) >= _RAMP * max(grown) else 0.0


def early_growth_rps(samples: Iterable[LoadSample], now_s: float, window_s: float) -> float | None:
    """The same over windows too short to tell growth from retries: None where any request was refused meanwhile."""
    within = recent(samples, now_s, 5 * window_s)
    refused = any(s.load is not None and s.load.refused_rps for s in within)
    return None if refused else growth_rps(within, now_s, window_s)


def onset(samples: Iterable[LoadSample], most: int) -> tuple[Load, ...]:
    """The first `most` loads of the refusals that last until now; none where their beginning is not remembered."""
    whole = (s for s in samples if s.complete and s.load is not None and s.load.sane)
    known = sorted(whole, key=lambda s: s.at_s, reverse=True)
    loads = [s.load for s in known if s.load is not None]
    lasting = list(takewhile(lambda load: bool(load.refused_rps), loads))
    return tuple(lasting[::-1][:most]) if len(lasting) < len(loads) else ()


def surely_first_rps(samples: Iterable[LoadSample]) -> float | None:
    """Of the newest second's arrivals, those that no client refused before can have sent; None where that is unknown.

    4,000/s after at most 160 refused in any second before: 3,840 at the least.
    """
    whole = (s for s in samples if s.complete and s.load is not None and s.load.sane)
    loads = [s.load for s in sorted(whole, key=lambda s: s.at_s) if s.load is not None]
    if len(loads) < 2 or loads[-1].first_rps is None or any(load.refused_rps is None for load in loads[1:-1]):
        return None
    return loads[-1].first_rps - max((load.refused_rps or 0.0 for load in loads[:-1]), default=0.0)


@dataclass(frozen=True)
class Demands:
    """The peaks of past demands, for lowering: strictly falling, since a smaller earlier one is never the maximum.

    `known_since_s` is when unbroken knowledge began: a start, or the end of a hole that was too long.
    """

    peaks: tuple[tuple[Moment, float], ...] = ()
    known_since_s: Moment | None = None
    known_at_s: Moment | None = None

    def add(self, at_s: float, demand: float, complete: bool, window_s: float, gap_s: float) -> "Demands":
        """With one more demand; an incomplete one is a lower bound: it may be a peak, it is no knowledge."""
        kept = tuple((t, d) for t, d in self.peaks if at_s - window_s < t and d > demand)
        peaks = (*kept, (at_s, demand))
        if not complete:
            return Demands(peaks, self.known_since_s, self.known_at_s)
        unbroken = self.known_at_s is not None and at_s - self.known_at_s <= gap_s
        return Demands(peaks, self.known_since_s if unbroken else at_s, at_s)

    def maximum(self, now_s: float, window_s: float) -> float | None:
        return max((demand for at_s, demand in self.peaks if now_s - window_s < at_s <= now_s), default=None)

    def covers(self, now_s: float, window_s: float, gap_s: float) -> bool:
        """Whether the whole window is known, but for holes of at most `gap_s`."""
        if self.known_since_s is None or self.known_at_s is None:
            return False
        return now_s - self.known_since_s >= window_s and now_s - self.known_at_s <= gap_s
