"""What one revision's replicas showed in one epoch, made of samples alone. Pure.

Owns tallies by pod and their means. Leaves judgement to `diagnosis`. Its one idea: service time is busy time over
completions (Little), so requests in flight and their totals are enough; everything else is a bonus or None.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controllers.autoscaler.load import Counters, Load, LoadSample
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals


@dataclass(frozen=True)
class Point:
    """Where a replica worked: mean requests in flight, mean service time in seconds, completions behind them."""

    in_flight: float
    service_s: float
    completed: float

    @property
    def served_rps(self) -> float:
        return self.in_flight / self.service_s

    @property
    def busy_s(self) -> float:
        return self.service_s * self.completed

    @property
    def error(self) -> float:
        """Relative error of the service time: of so many completions, and of requests in flight looked at once a
        second. 300 answers of 0.2 s are 60 requests seen: 14 %."""
        return math.sqrt(1 / self.completed + 1 / self.busy_s)


def joined(one: Point | None, other: Point) -> Point:
    """Two stretches of time of one replica as one."""
    if one is None:
        return other
    seen_s = one.busy_s / one.in_flight + other.busy_s / other.in_flight
    busy_s, completed = one.busy_s + other.busy_s, one.completed + other.completed
    return Point(busy_s / seen_s, busy_s / completed, completed)


@dataclass(frozen=True)
class Tally:
    """One pod since the epoch began: seconds seen, busy time (integral of requests in flight), completions.

    A request that began or ended outside the epoch counts half: else a pod that empties would look fast.
    `first_s`: when it was first seen taking requests; it outlives the epoch.
    """

    first_s: float
    seen_s: float = 0.0
    busy_s: float = 0.0
    completed: float = 0.0

    @property
    def point(self) -> Point | None:
        if self.seen_s <= 0 or self.busy_s <= 0 or self.completed <= 0:
            return None
        return Point(self.busy_s / self.seen_s, self.busy_s / self.completed, self.completed)


Tallies = Mapping[str, Tally]


def tally(tallies: Tallies, before: Counters | None, now: Counters, elapsed_s: float, at_s: float) -> Tallies:
    """With one more reading of the servers of one back end. A pod that was not there before begins now."""
    found = dict(tallies)
    for name, (current, total) in now.servers.items():
        held = found.get(name, Tally(at_s))
        earlier = before.servers.get(name) if before is not None else None
        if earlier is None or total < earlier[1] or elapsed_s <= 0:
            found[name] = held
            continue
        found[name] = Tally(
            first_s=held.first_s,
            seen_s=held.seen_s + elapsed_s,
            busy_s=held.busy_s + elapsed_s * (earlier[0] + current) / 2,
            completed=held.completed + max(total - earlier[1] - (current - earlier[0]) / 2, 0.0),
        )
    return {name: kept for name, kept in found.items() if name in now.servers}


def next_epoch(tallies: Tallies) -> Tallies:
    """The same pods, counted from nothing."""
    return {name: Tally(held.first_s) for name, held in tallies.items()}


@dataclass(frozen=True)
class Evidence:
    """One revision over one epoch. `point` None: nothing is known of its latency.

    fleet: the mean replica. pods: those known one by one and warm. loaded_s: seconds in which the replicas were half
    full. queued: requests waiting at the gateway, mean. unsettled: why what is seen may not be the rule ("pods start"),
    or None. concurrency_max and objective_ms are what the endpoint declares.
    """

    limit: int
    replicas: int
    known_s: float
    loaded_s: float
    queued: float
    point: Point | None
    pods: Mapping[str, Point] = field(default_factory=dict)
    signals: Signals = UNKNOWN
    unsettled: str | None = None
    concurrency_max: int = 2**31 - 1
    objective_ms: float | None = None


def evidence_of(
    samples: Iterable[LoadSample],
    limit: int,
    replicas: int,
    settings: Settings,
    now_s: float,
    *,
    tallies: Tallies | None = None,
    signals: Signals = UNKNOWN,
    unsettled: str | None = None,
    concurrency_max: int = 2**31 - 1,
    objective_ms: float | None = None,
) -> Evidence:
    """`samples`: the endpoint's, of about one a second; `now_s` is on their clock. `replicas`: those ready."""
    loads = _known(samples, now_s, settings.epoch_s)
    pods, cold = _warm(tallies or {}, settings, now_s)
    half = settings.half_full * limit * max(replicas, 1)
    return Evidence(
        limit=limit,
        replicas=replicas,
        known_s=float(len(loads)),
        loaded_s=float(sum(load.in_flight >= half for load in loads)),
        queued=sum(load.queued for load in loads) / max(len(loads), 1),
        point=_mean(pods.values()) if pods else (None if cold else _fleet(loads, replicas)),
        pods=pods,
        signals=signals,
        unsettled=unsettled or ("pods warm up" if cold else None),
        concurrency_max=concurrency_max,
        objective_ms=objective_ms,
    )


def _known(samples: Iterable[LoadSample], now_s: float, epoch_s: float) -> list[Load]:
    return [
        sample.load
        for sample in samples
        if now_s - epoch_s < sample.at_s <= now_s and sample.complete and sample.load is not None and sample.load.sane
    ]


def _warm(tallies: Tallies, settings: Settings, now_s: float) -> tuple[dict[str, Point], bool]:
    """The points of the pods that were warm before the epoch began, and whether there are others."""
    warm_s = now_s - settings.epoch_s - settings.warm_up_s
    warm = {name: held for name, held in tallies.items() if held.first_s <= warm_s}
    return {name: point for name, held in warm.items() if (point := held.point) is not None}, len(warm) < len(tallies)


def _fleet(loads: list[Load], replicas: int) -> Point | None:
    rates = [load.served_rps for load in loads if load.served_rps is not None]
    busy_s = sum(load.in_flight for load in loads if load.served_rps is not None)  # samples are a second apart
    if not rates or replicas < 1 or sum(rates) <= 0 or busy_s <= 0:
        return None
    return Point(busy_s / len(rates) / replicas, busy_s / sum(rates), sum(rates))


def _mean(points: Iterable[Point]) -> Point | None:
    """The mean replica: service time weighted by completions."""
    every = list(points)
    completed = sum(point.completed for point in every)
    if not every or completed <= 0:
        return None
    service_s = sum(point.service_s * point.completed for point in every) / completed
    return Point(sum(point.in_flight for point in every) / len(every), service_s, completed)


def others(evidence: Evidence, pod: str) -> Point | None:
    """The mean replica without one of them."""
    return _mean(point for name, point in evidence.pods.items() if name != pod)
