"""NVIDIA Dynamo's planner as far as it applies to a model served by requests, not by tokens.

Owns two loops: every 180 s a forecast sets a lower bound, every 5 s the engines' load moves the replicas by one. Token
rules map so: an engine's throughput within the latency goal is slots x utilization / service time, and the share of its
KV cache in use or waited for is requests in flight and waiting over slots. Its thresholds stay the published ones.
"""

import math
from dataclasses import dataclass

from simulator.policy import UNBOUNDED, Plain, Seen
from simulator.rivals.signal import load_of, newest

FAST_S = 5.0
SLOW_S = 180.0
UP_LOAD = 1.0
DOWN_LOAD = 0.6
UP_WAITING = 1.0
DOWN_WAITING = 0.1
POINTS = 5


def step(in_flight: float, waiting: float, engines: int, slots: int, scale: float = 1.0) -> int:
    """+1, 0 or -1 from requests on and before `engines` engines; `scale` shifts the thresholds in a sweep.

    Four engines of 16 with 60 in flight and 8 waiting: (60 + 8) / 64 > 1: +1. 32 and none: 0.5 < 0.6: -1.
    """
    room = max(engines, 1) * slots * scale
    load, queue = (in_flight + waiting) / room, waiting / room
    if load > UP_LOAD or queue >= UP_WAITING:
        return 1
    return -1 if load < DOWN_LOAD and queue < DOWN_WAITING else 0


def lower_bound(rate_rps: float, engine_rps: float) -> int:
    """Engines that carry the forecast within the latency goal, at least one: 130 req/s at 56 each -> 3."""
    return max(math.ceil(rate_rps / engine_rps), 1)


@dataclass(frozen=True)
class Trend:
    """A Kalman filter of level and slope, an interval a step; `cov` is (level, both, slope)."""

    level: float
    slope: float = 0.0
    cov: tuple[float, float, float] = (10.0, 0.0, 1.0)
    points: int = 1

    @property
    def forecast(self) -> float:
        """The next interval; the last level while there are fewer than five points. Never below zero."""
        return max(self.level + (self.slope if self.points >= POINTS else 0.0), 0.0)


Q_LEVEL, Q_SLOPE, R = 1.0, 0.1, 10.0


def followed(trend: Trend | None, observed: float) -> Trend:
    """One step of predict and update with the planner's defaults q = (1.0, 0.1), r = 10.

    From level 100, slope 0, cov (10, 0, 1), observed 124: predicted cov (10 + 1 + 1, 1, 1.1); gain 12/22 and 1/22:
    level 100 + 24 x 12/22 = 113.09, slope 24/22 = 1.09.
    """
    if trend is None:
        return Trend(observed)
    ll, ls, ss = trend.cov
    ll, ls, ss = ll + 2 * ls + ss + Q_LEVEL, ls + ss, ss + Q_SLOPE
    predicted = trend.level + trend.slope
    gain_level, gain_slope = ll / (ll + R), ls / (ll + R)
    error = observed - predicted
    cov = ((1 - gain_level) * ll, (1 - gain_level) * ls, ss - gain_slope * ls)
    return Trend(predicted + gain_level * error, trend.slope + gain_slope * error, cov, trend.points + 1)


class Dynamo(Plain):
    """Both loops; `service_s` is what an engine's offline profile says. Requests wait at the frontend, unbounded."""

    name = "dynamo"
    period_s = FAST_S
    metric_delay_s = 0.0
    window_s = SLOW_S
    queue = UNBOUNDED

    def __init__(self, service_s: float, utilization: float = 0.7, scale: float = 1.0) -> None:
        self._service_s = service_s
        self._utilization = utilization
        self._scale = scale
        self._trend: Trend | None = None
        self._bound = 1
        self._slow_at_s = SLOW_S

    def decide(self, seen: Seen) -> int | None:
        if seen.now_s >= self._slow_at_s:
            self._forecast(seen)
        if seen.fleet.starting > 0 or seen.fleet.terminating > 0:
            return None
        last = next(newest(seen.samples, seen.now_s, FAST_S), None)
        if last is None or load_of(last) is None:
            return None
        moved = step(last.in_flight, last.queued, seen.fleet.ready, seen.slots, self._scale)
        return max(seen.fleet.issued + moved, self._bound)

    def _forecast(self, seen: Seen) -> None:
        """Arrivals of the last interval, refused ones too; unknown seconds read as no load, as the planner has it."""
        self._slow_at_s = seen.now_s + SLOW_S
        arrived = sum(s.arrived for s in newest(seen.samples, seen.now_s, SLOW_S) if s.known)
        self._trend = followed(self._trend, arrived / SLOW_S)
        self._bound = lower_bound(self._trend.forecast, self._utilization * seen.slots / self._service_s)
