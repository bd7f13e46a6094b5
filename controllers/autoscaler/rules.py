"""The rules of the horizontal axis and their one order: raw -> stabilise -> N-1 -> growth cap -> floor -> ceiling ->
budget.

Each rule is a small function from the situation and the replicas so far to a bound; `merge` folds them. A new
behaviour is a new rule in the tuple. Pure, total, saturating.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from controllers.autoscaler.settings import Settings
from spec.sizing import ceiling_replicas, floor_replicas, replicas_for


class Reason(StrEnum):
    """Why a revision has the replicas that it has; the last rule that moved the number."""

    STEADY = "Steady"
    LOAD = "Load"
    OVERLOAD = "Overload"
    LOAD_FELL = "LoadFell"
    UNKNOWN = "MetricsUnavailable"
    HISTORY = "WaitingForHistory"
    RECENT_PEAK = "RecentPeak"
    HEADROOM = "Headroom"
    GROWTH_CAP = "GrowthCap"
    FLOOR = "AtFloor"
    CEILING = "AtCeiling"
    BUDGET = "AtBudget"
    SUCCESSOR = "SizedToLiveLoad"
    PARKED = "NotScaled"
    FAILED = "FailedStart"
    FOREIGN = "ForeignWriter"
    RESTORED = "Restored"
    CIRCUIT = "CircuitOpen"
    PAUSED = "Paused"
    OVERRIDDEN = "Overridden"
    DRY_RUN = "DryRun"


@dataclass(frozen=True)
class Demand:
    """Requests that should be in flight now; None: unknown. `complete` False: at least this."""

    requests: float | None
    complete: bool
    overloaded: bool


@dataclass(frozen=True)
class Situation:
    """One revision at one moment. `issued` is what was last asked for, starting replicas included.

    `peak` is the largest demand of the down window, `covered` whether that window is known end to end.
    """

    issued: int
    target: float
    demand: Demand
    peak: float | None
    covered: bool
    concurrency_min: int
    concurrency_max: int
    budget: int | None
    settings: Settings


@dataclass(frozen=True)
class Bound:
    """A rule's word: the replicas become this, and why. A rule that has nothing to say returns None."""

    replicas: int
    reason: Reason


Rule = Callable[[Situation, int], Bound | None]


@dataclass(frozen=True)
class Outcome:
    """The replicas, the last rule that moved them, and each rule's word in order."""

    replicas: int
    reason: Reason
    trace: tuple[tuple[str, int], ...]


def raw(situation: Situation, _: int) -> Bound | None:
    """ceil(demand / target): 96 requests at 51.2 are 2 replicas."""
    demand = situation.demand
    if demand.requests is None:
        return Bound(situation.issued, Reason.UNKNOWN)
    wanted = replicas_for(demand.requests, situation.target)
    if wanted == situation.issued:
        return Bound(wanted, Reason.STEADY)
    risen = Reason.OVERLOAD if demand.overloaded else Reason.LOAD
    return Bound(wanted, risen if wanted > situation.issued else Reason.LOAD_FELL)


def stabilise(situation: Situation, replicas: int) -> Bound | None:
    """A decrease needs a known present, a known window, and goes no lower than that window's peak."""
    if replicas >= situation.issued:
        return None
    if not situation.demand.complete:
        return Bound(situation.issued, Reason.UNKNOWN)
    if not situation.covered or situation.peak is None:
        return Bound(situation.issued, Reason.HISTORY)
    return _at_least(replicas, replicas_for(situation.peak, situation.target), situation, Reason.RECENT_PEAK)


def n_minus_1(situation: Situation, replicas: int) -> Bound | None:
    """A decrease leaves replicas that carry the peak within the headroom: peak 45, target 10: 5 carry it at 0.9."""
    if replicas >= situation.issued or situation.peak is None:
        return None
    least = replicas_for(situation.peak, situation.target * situation.settings.headroom)
    return _at_least(replicas, least, situation, Reason.HEADROOM)


def growth_cap(situation: Situation, replicas: int) -> Bound | None:
    """A cycle's growth is bounded by what was asked for already; waking from zero is exempt."""
    if situation.issued == 0:
        return None
    most = max(int(situation.issued * situation.settings.growth), situation.issued + 1)
    return Bound(most, Reason.GROWTH_CAP) if replicas > most else None


def floor(situation: Situation, replicas: int) -> Bound | None:
    least = floor_replicas(situation.concurrency_min, situation.target)
    return Bound(least, Reason.FLOOR) if replicas < least else None


def ceiling(situation: Situation, replicas: int) -> Bound | None:
    most = ceiling_replicas(situation.concurrency_max, situation.target)
    return Bound(most, Reason.CEILING) if replicas > most else None


def budget(situation: Situation, replicas: int) -> Bound | None:
    """What the cluster has. Physical: it has the last word and only lowers."""
    over = situation.budget is not None and replicas > situation.budget
    return Bound(max(situation.budget or 0, 0), Reason.BUDGET) if over else None


ORDER: tuple[Rule, ...] = (raw, stabilise, n_minus_1, growth_cap, floor, ceiling, budget)
BOUNDS: tuple[Rule, ...] = (floor, ceiling, budget)


def merge(situation: Situation, rules: tuple[Rule, ...], start: int, reason: Reason) -> Outcome:
    """Folds the rules in their order from `start`."""
    replicas, trace = start, []
    for rule in rules:
        bound = rule(situation, replicas)
        if bound is not None:
            replicas, reason = bound.replicas, bound.reason
            trace.append((rule.__name__, replicas))
    return Outcome(replicas, reason, tuple(trace))


def _at_least(replicas: int, least: int, situation: Situation, reason: Reason) -> Bound | None:
    """A brake on a decrease: never more than what was asked for already."""
    return Bound(min(least, situation.issued), reason) if replicas < least else None
