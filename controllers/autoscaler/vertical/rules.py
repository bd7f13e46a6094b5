"""The rules of the vertical axis and their one order: relieve -> fit the knee -> grow -> step -> minimum -> maximum.

Each rule is a small function from the situation and the limit so far to a bound; `merge` folds them. A new behaviour
is a new rule in the tuple. Pure, total; minimum and maximum come last, so nothing breaks them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from controllers.autoscaler.vertical.diagnosis import Cause, Finding, View
from controllers.autoscaler.vertical.evidence import Evidence
from controllers.autoscaler.vertical.knowledge import Knowledge
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.thresholds import THRESHOLDS

# Memory that did not fall by this much after a cut does not depend on requests: it cuts no second time.
_RELIEF = 0.01
# A better estimate of the same knee moves nothing: 17 stays where 16 is found.
_NEAR = 0.1


class Reason(StrEnum):
    """Why a replica's limit is what it is."""

    UNSETTLED = "PodsStart"
    UNKNOWN = "LoadUnknown"
    FEW = "TooFewRequests"
    IDLE = "NotHalfFull"
    NO_BASELINE = "BaselineUnknown"
    PROBING = "Probing"
    RAISED = "LatencyHolds"
    STEADY = "Steady"
    LATENCY = "LatencyNearItsBound"
    BUSY = "ResourcesBusy"
    AT_KNEE = "AtKnee"
    CUT = "PastTheKnee"
    SHORTAGE = "ResourceShortage"
    ELSEWHERE = "SlowDependency"
    OBJECTIVE = "ObjectiveOutOfReach"
    REBASELINED = "BaselineTakenAnew"
    MINIMUM = "AtMinimum"
    MAXIMUM = "AtMaximum"


@dataclass(frozen=True)
class Situation:
    """One revision at the end of one epoch; `knowledge` holds what the epoch taught already."""

    knowledge: Knowledge
    evidence: Evidence
    finding: Finding
    settings: Settings
    now_s: float


@dataclass(frozen=True)
class Bound:
    limit: int
    reason: Reason


Rule = Callable[[Situation, int], Bound | None]
_BLIND = (View.UNSETTLED, View.UNKNOWN, View.FEW)


def relieve(situation: Situation, limit: int) -> Bound | None:
    """A shortage that ends pods cuts where latency still holds, and goes on only while cutting helps."""
    use = shortage(situation.finding, situation.evidence)
    before = situation.knowledge.relief
    if situation.finding.view in _BLIND or use is None or (before is not None and use > before - _RELIEF):
        return None
    return Bound(int(limit * 0.8), Reason.SHORTAGE)


def shortage(finding: Finding, evidence: Evidence) -> float | None:
    """How full the fullest of what kills is, where it is short."""
    kills = [getattr(evidence.signals, name) for name in finding.hot if THRESHOLDS[name].kills]
    return max(kills, default=None)


def fit_knee(situation: Situation, limit: int) -> Bound | None:
    """The limit is the knee, or near it. Downwards at once; upwards while loaded, since a rise is for load."""
    knee = situation.knowledge.knee
    if knee is None or situation.finding.view in _BLIND or abs(knee - limit) <= _NEAR * limit + 0.5:
        return None
    wanted = max(round(knee), 1)
    if wanted < limit:
        return Bound(wanted, Reason.CUT)
    return Bound(wanted, Reason.RAISED) if wanted > limit and _may_rise(situation) else None


def grow(situation: Situation, limit: int) -> Bound | None:
    """Without a knee: as far as was proven, by some pod, to hold."""
    known = situation.knowledge
    if known.knee is not None or situation.finding.ratio is None or not _may_rise(situation):
        return None
    return Bound(known.proven, Reason.RAISED) if known.proven > limit else None


def _may_rise(situation: Situation) -> bool:
    """Loaded, with latency that holds, room in every resource that is known, and no dependency just found slow."""
    finding = situation.finding
    return finding.view is View.HOLDS and not finding.busy and not situation.knowledge.is_held(situation.now_s)


def step(situation: Situation, limit: int) -> Bound | None:
    """Up by a quarter (by one where that is less), down by half; an epoch."""
    present, settings = situation.knowledge.limit, situation.settings
    most = max(int(present * settings.raise_most), present + 1)
    least = int(present * settings.cut_most)
    if limit > most:
        return Bound(most, Reason.RAISED)
    return Bound(least, Reason.CUT) if limit < least else None


def minimum(situation: Situation, limit: int) -> Bound | None:
    least = max(situation.settings.limit_min, 1)
    return Bound(least, Reason.MINIMUM) if limit < least else None


def maximum(situation: Situation, limit: int) -> Bound | None:
    most = max(situation.evidence.concurrency_max, 1)
    return Bound(most, Reason.MAXIMUM) if limit > most else None


ORDER: tuple[Rule, ...] = (relieve, fit_knee, grow, step, minimum, maximum)


@dataclass(frozen=True)
class Outcome:
    limit: int
    reason: Reason
    trace: tuple[tuple[str, int], ...]


def merge(situation: Situation) -> Outcome:
    """Folds the rules in their order, from the limit as it is and the reason why it would rest."""
    limit, reason, trace = situation.knowledge.limit, rest(situation), []
    for rule in ORDER:
        bound = rule(situation, limit)
        if bound is not None:
            limit, reason = bound.limit, bound.reason
            trace.append((rule.__name__, limit))
    return Outcome(limit, reason, tuple(trace))


_RESTS = {
    View.UNSETTLED: Reason.UNSETTLED,
    View.UNKNOWN: Reason.UNKNOWN,
    View.FEW: Reason.FEW,
    View.IDLE: Reason.IDLE,
    View.SUSPECT: Reason.LATENCY,
    View.OVERLOADED: Reason.LATENCY,
}


def rest(situation: Situation) -> Reason:
    """Why the limit stays, if no rule moves it."""
    known, finding = situation.knowledge, situation.finding
    if finding.cause is Cause.ELSEWHERE or known.is_held(situation.now_s):
        return Reason.ELSEWHERE
    if finding.view is View.OVERLOADED and (finding.ratio or situation.settings.suspect) < situation.settings.suspect:
        return Reason.OBJECTIVE  # a request alone takes too long: fewer at once would not help
    if finding.view in _RESTS:
        return _RESTS[finding.view]
    if finding.ratio is None:
        return Reason.NO_BASELINE
    if known.knee is not None:
        return Reason.AT_KNEE
    return Reason.BUSY if finding.busy else Reason.STEADY
