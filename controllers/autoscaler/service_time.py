"""What a request takes at a pod, W: measured, or as far as little is known. Pure.

Owns both. Its one idea: what is measured is known, and what a prior or the age of unfinished requests makes likely may
ask for more and never for less.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.autoscaler.load import LoadSample
from controllers.autoscaler.window import recent


@dataclass(frozen=True)
class _Work:
    """Over a window: request-seconds in flight, answers, how many more are in flight than at its beginning, and now."""

    busy_s: float
    served: float
    grown: float
    held: float

    @property
    def mean_s(self) -> float:
        return self.busy_s / max(self.served + self.grown / 2, self.served / 2)


def service_time_s(samples: Iterable[LoadSample], now_s: float, window_s: float, least: float) -> float | None:
    """W = busy time / requests, as many as the mean of those that entered and those that left over the window; None
    below `least` completions. Completions alone would tell a W that is too large while requests in flight grow.

    10 in flight all the time and 50 answers a second: 0.2 s. From 30 to 300 in flight evenly within 30 s, 1 answer a
    second: 4,950 / (30 + 270 / 2) = 30 s, not 165.
    """
    work = _work(samples, now_s, window_s)
    return work.mean_s if work is not None and work.served and work.served >= least else None


def likely_time_s(
    samples: Iterable[LoadSample], now_s: float, window_s: float, least: float, prior_s: float | None
) -> float | None:
    """W while there are fewer than `least` completions: theirs and the prior for those that lack, and no less than
    requests have been here already, in the mean over them all. None where nothing tells.

    A prior of 2 s and 4 of 10 completions at 0.75 s: 0.4 x 0.75 + 0.6 x 2 = 1.5 s. 8 in flight for 30 s and 2 answers
    meanwhile: 240 / 10 = 24 s at least.
    """
    work = _work(samples, now_s, window_s)
    if work is None:
        return prior_s
    every = work.served + work.held
    age_s = work.busy_s / every if every > 0 else 0.0
    if prior_s is None:
        return age_s or None
    share = min(work.served / least, 1.0) if least > 0 else 1.0
    return max(share * (work.mean_s if share else 0.0) + (1 - share) * prior_s, age_s)


def _work(samples: Iterable[LoadSample], now_s: float, window_s: float) -> _Work | None:
    """Samples are a second apart: rates add up to counts, and a second's requests in flight are the mean of its ends.
    From 16 in flight to 152 within a second, by its end alone it would be as if all 152 had been there throughout."""
    known = sorted(
        (s.at_s, s.load.in_flight, s.load.served_rps)
        for s in recent(samples, now_s, window_s)
        if s.complete and s.load is not None and s.load.sane and s.load.served_rps is not None
    )
    if not known:
        return None
    (_, first, _), (_, last, _) = known[0], known[-1]
    busy_s = sum(in_flight for _, in_flight, _ in known) - (last - first) / 2
    return _Work(busy_s, sum(rate for _, _, rate in known), last - first, last)
