"""What an epoch's evidence says: how a replica is, and where its latency comes from.

Owns the comparison of two points. Leaves steps to `rules`. Its one idea: past the knee throughput stands still while
latency grows with what is in flight; with a slow dependency latency is the same at any load. So two replicas (or one
before and after) that hold different numbers of requests tell which of the two it is, without knowing the model.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

from controllers.autoscaler.vertical.evidence import Evidence, Point, joined, others
from controllers.autoscaler.vertical.knowledge import Knowledge, Probe
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.thresholds import busy, hot, sane

# Two points closer than this can't be told from noise.
_APART = 1.15
# From this share of its limit on a pod is full.
_FULL = 0.9
# A difference of less than so many standard errors is noise.
_NOISE = 1.5
# Of the fall in latency that a passed knee predicts, how much must be seen: much while latency still holds, less once
# it does not. Noise of 5 % in a mean is two to four deviations away.
_SHOWN, _SHOWN_OVERLOADED = 0.65, 0.35
# A p95 comes from histogram buckets and jumps by itself; it counts once the mean has moved too.
_MEAN_MOVED = 1.2


class View(Enum):
    """UNSETTLED: pods start or roll. UNKNOWN, FEW: nothing to go by. IDLE: less than half full. HOLDS, SUSPECT and
    OVERLOADED: loaded, with latency inside its bound, above its floor, and beyond its bound."""

    UNSETTLED = "unsettled"
    UNKNOWN = "unknown"
    FEW = "few"
    IDLE = "idle"
    HOLDS = "holds"
    SUSPECT = "suspect"
    OVERLOADED = "overloaded"


class Cause(Enum):
    """OWN: more requests than the replica can work on. ELSEWHERE: a dependency, another kind of request."""

    OWN = "own"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True)
class Finding:
    """`point`: the replicas without a probed one. ratio: service time over its floor; None: no floor is known.

    excess: 1 and more is beyond the objective, a declared one or ours. shown_at: the more loaded of the two points that
    showed the cause, beside_s the service time of the other. probed: where a probed pod worked, over all of its probe;
    judged: that was enough to go by; passed: it did well with more.
    """

    view: View
    point: Point | None = None
    ratio: float | None = None
    excess: float = 0.0
    objective: bool = False
    loaded: bool = False
    cause: Cause | None = None
    shown_at: Point | None = None
    beside_s: float | None = None
    probed: Point | None = None
    judged: bool = False
    passed: bool = False
    hot: tuple[str, ...] = ()
    busy: tuple[str, ...] = ()


def diagnose(knowledge: Knowledge, evidence: Evidence, settings: Settings, now_s: float) -> Finding:
    point = _point(knowledge.probe, evidence)
    view = _blind(knowledge, evidence, point, settings, now_s)
    if view is not None or point is None:
        found = Finding(view or View.UNKNOWN, point, _ratio(knowledge, point), hot=hot(evidence.signals))
        # A probe gathers what there is until it is enough.
        return _explained(found, knowledge, evidence, settings, now_s) if view is View.FEW else found
    ratio = _ratio(knowledge, point)
    excess = _excess(knowledge, evidence, point, ratio, settings)
    loaded = evidence.loaded_s >= settings.half_full * evidence.known_s
    found = Finding(
        view=_view(knowledge, ratio, excess, loaded, settings),
        point=point,
        ratio=ratio,
        excess=excess,
        objective=evidence.objective_ms is not None,
        loaded=loaded,
        hot=hot(evidence.signals),
        busy=busy(evidence.signals),
    )
    return _explained(found, knowledge, evidence, settings, now_s)


def _point(probe: Probe | None, evidence: Evidence) -> Point | None:
    if probe is None or probe.pod is None or probe.pod not in evidence.pods:
        return evidence.point
    return others(evidence, probe.pod) or evidence.point


def _blind(
    knowledge: Knowledge, evidence: Evidence, point: Point | None, settings: Settings, now_s: float
) -> View | None:
    since_s = knowledge.unsettled_since_s
    waited_s = now_s - since_s if since_s is not None else 0.0
    if evidence.unsettled is not None and waited_s < settings.freeze_most_s:
        return View.UNSETTLED
    if point is None or evidence.known_s < settings.known_share * settings.epoch_s:
        return View.UNKNOWN
    return View.FEW if point.completed < settings.completions else None


def _ratio(knowledge: Knowledge, point: Point | None) -> float | None:
    floor_s = knowledge.floor_s
    return point.service_s / floor_s if point is not None and floor_s else None


def _excess(knowledge: Knowledge, evidence: Evidence, point: Point, ratio: float | None, settings: Settings) -> float:
    """With an objective p95 over it, or the mean where no p95 is known; else mean and p95 over 1.5 of their floors."""
    p95_ms = sane(evidence.signals.p95_ms)
    if evidence.objective_ms is not None:
        return (p95_ms if p95_ms is not None else 1000 * point.service_s) / evidence.objective_ms
    if ratio is None:
        return 0.0
    tail_s = knowledge.baseline.p95_s if knowledge.baseline is not None and knowledge.accepted_s is None else None
    if p95_ms is None or not tail_s or ratio < _MEAN_MOVED:
        return ratio / settings.tolerance
    return max(ratio, p95_ms / 1000 / tail_s) / settings.tolerance


def _view(knowledge: Knowledge, ratio: float | None, excess: float, loaded: bool, settings: Settings) -> View:
    if excess >= 1:
        return View.OVERLOADED
    # Once the knee is known latency between its floor and its bound is no question any more.
    if ratio is not None and ratio >= settings.suspect and knowledge.knee is None:
        return View.SUSPECT
    return View.HOLDS if loaded else View.IDLE


def _explained(found: Finding, knowledge: Knowledge, evidence: Evidence, settings: Settings, now_s: float) -> Finding:
    """With the cause: by a probe that is over, by what pods showed before others came to help, by a full resource."""
    probe = knowledge.probe
    if probe is not None and now_s >= probe.until_s - settings.epoch_s / 2:
        return _probed(found, probe, knowledge, evidence, settings)
    if knowledge.crest is not None and found.point is not None and found.view in (View.HOLDS, View.IDLE):
        return _compared(found, knowledge.crest, found.point, knowledge.floor_s, _SHOWN_OVERLOADED)
    if found.view is View.OVERLOADED and found.hot and found.ratio is not None and found.point is not None:
        return replace(found, cause=Cause.OWN, shown_at=found.point)
    return found


def _probed(found: Finding, probe: Probe, knowledge: Knowledge, evidence: Evidence, settings: Settings) -> Finding:
    """The probed pod against the others, or, where it is alone, against itself before."""
    now = evidence.pods.get(probe.pod) if probe.pod is not None else evidence.point
    rest = (others(evidence, probe.pod) if probe.pod is not None else None) or probe.before
    if now is None:
        return found
    mine = joined(probe.mine, now)
    found = replace(found, probed=mine)
    if mine.error > settings.error_most and probe.asked + 1 < settings.asked_most:
        return found
    floor_s = knowledge.floor_s
    high, low = (mine, rest) if mine.in_flight >= rest.in_flight else (rest, mine)
    bad = floor_s is None or high.service_s >= settings.tolerance * floor_s
    at_floor = floor_s is not None and high.service_s < settings.suspect * floor_s
    # A pod with room under its limit was given no more work: its throughput is not all it has.
    has_room = probe.up and mine.in_flight < _FULL * probe.limit
    if not at_floor and not has_room:
        found = _compared(found, high, low, floor_s, _SHOWN_OVERLOADED if bad else _SHOWN)
    passed = probe.up and _held(mine, probe, knowledge, settings) and found.cause is not Cause.OWN
    return replace(found, passed=passed, judged=True)


def _held(mine: Point, probe: Probe, knowledge: Knowledge, settings: Settings) -> bool:
    """Whether a pod had more and did well with it. Beyond a knee it must have done more work, not only held more."""
    floor_s, knee = knowledge.floor_s, knowledge.knee
    if knee is not None:
        return floor_s is not None and mine.served_rps * floor_s >= settings.outgrown * knee
    return mine.in_flight >= probe.enough and (floor_s is None or mine.service_s < settings.suspect * floor_s)


def _compared(found: Finding, high: Point, low: Point, floor_s: float | None, shown: float) -> Finding:
    cause = cause_of(high, low, floor_s, shown)
    return replace(found, cause=cause, shown_at=high, beside_s=low.service_s) if cause is not None else found


def cause_of(high: Point, low: Point, floor_s: float | None, shown: float) -> Cause | None:
    """Two points of one machine. None: they are too close, or latency is at its floor at both.

    Past a knee of 10, with 20 in flight at 0.4 s and a floor of 0.2 s, a replica that holds 12 takes 0.24 s: a
    factor of 0.6. With a slow dependency it takes 0.4 s as well: a factor of 1.
    """
    if high.in_flight < _APART * low.in_flight:
        return None
    predicted = max((floor_s or 0.0) / high.service_s, low.in_flight / high.in_flight)
    if predicted * _APART > 1:
        return None
    expected, seen = predicted**shown, low.service_s / high.service_s
    noise = _NOISE * math.hypot(high.error, low.error)
    if seen > expected:
        return Cause.ELSEWHERE if math.exp(-noise) > predicted else None
    return Cause.OWN if seen <= math.exp(-noise) else None
