"""The rules of the horizontal axis and their one order: raw -> stabilise -> N-1 -> bursts -> growth cap -> floor ->
numbers -> ceiling -> budget.

Each rule is a small function from the situation and the replicas so far to a bound; `merge` folds them. A new
behaviour is a new rule in the tuple. Pure, total, saturating.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from controllers.autoscaler.demand import Demand
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
    BURSTS = "RecentBursts"
    GROWTH_CAP = "GrowthCap"
    FLOOR = "AtFloor"
    NUMBERS = "ReadyOnesStay"
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
class Situation:
    """One revision at one moment. `issued` is what was last asked for, starting replicas included.

    `limit` is a replica's, `target` what one should carry of this demand, `declared` what one is taken to carry where
    the endpoint's range is counted in replicas, `eased` the target that a decrease may rest on already. `peak` is the
    largest demand of the down window, `covered` whether that window is known end to end; `expected` is the demand to
    be ready for within a start-up time, None where too little is known. `numbers`: as a `Revision` has them.
    """

    issued: int
    limit: int
    target: float
    declared: float
    eased: float
    demand: Demand
    peak: float | None
    covered: bool
    expected: float | None
    concurrency_min: int
    concurrency_max: int
    budget: int | None
    settings: Settings
    numbers: tuple[int, ...] = ()


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
    """ceil(demand / target): 96 requests at 51.2 are 2 replicas; more than are there only beyond the noise."""
    demand = situation.demand
    if demand.requests is None:
        return Bound(situation.issued, Reason.UNKNOWN)
    wanted = replicas_for(demand.requests, situation.target)
    if wanted == situation.issued or _is_noise(situation, demand.requests):
        return Bound(situation.issued, Reason.STEADY)
    risen = Reason.OVERLOAD if demand.overloaded else Reason.LOAD
    return Bound(wanted, risen if wanted > situation.issued else Reason.LOAD_FELL)


def _is_noise(situation: Situation, requests: float) -> bool:
    """Whether the demand is above what the replicas should carry by no more than its noise, a tenth at most.

    10 replicas at 8 carry 80; 83 with a standard deviation of 4 is no reason for an eleventh.
    """
    full = situation.issued * situation.target
    return full < requests <= full + min(situation.demand.noise, situation.settings.band * full)


def stabilise(situation: Situation, replicas: int) -> Bound | None:
    """A decrease needs a known present without refusals, a known window, and goes no lower than that window's peak."""
    if replicas >= situation.issued:
        return None
    if not situation.demand.complete:
        return Bound(situation.issued, Reason.UNKNOWN)
    if situation.demand.surging:
        return Bound(situation.issued, Reason.OVERLOAD)
    if not situation.covered or situation.peak is None:
        return Bound(situation.issued, Reason.HISTORY)
    return _at_least(replicas, replicas_for(situation.peak, situation.eased), situation, Reason.RECENT_PEAK)


def n_minus_1(situation: Situation, replicas: int) -> Bound | None:
    """A decrease leaves replicas that carry the peak within the headroom: peak 45, target 10: 5 carry it at 0.9."""
    if replicas >= situation.issued or situation.peak is None:
        return None
    least = replicas_for(situation.peak, situation.eased * situation.settings.headroom)
    return _at_least(replicas, least, situation, Reason.HEADROOM)


def bursts(situation: Situation, replicas: int) -> Bound | None:
    """What is expected within a start-up time fits under the limits, and after a decrease within their headroom.

    Expected 95 at limit 10: 10 replicas at 0.95 of their limit; 11 are lowered to 10 once 85.5 are expected.
    """
    if situation.expected is None:
        return None
    full = situation.limit * situation.settings.burst_share
    least = replicas_for(situation.expected, full)
    if replicas < situation.issued:
        eased = full * situation.settings.headroom * situation.eased / situation.target
        least = max(least, min(replicas_for(situation.expected, eased), situation.issued))
    return Bound(least, Reason.BURSTS) if replicas < least else None


def growth_cap(situation: Situation, replicas: int) -> Bound | None:
    """A cycle's growth is bounded by what was asked for already; waking from zero is exempt."""
    if situation.issued == 0:
        return None
    most = max(int(situation.issued * situation.settings.growth), situation.issued + 1)
    return Bound(most, Reason.GROWTH_CAP) if replicas > most else None


def floor(situation: Situation, replicas: int) -> Bound | None:
    least = floor_replicas(situation.concurrency_min, situation.declared)
    return Bound(least, Reason.FLOOR) if replicas < least else None


def numbers(situation: Situation, replicas: int) -> Bound | None:
    """A decrease of groups takes the highest numbers, ready or not: it leaves as many that are ready as it is to. Of
    0 to 3, of which 1 to 3 are ready, one that is to be left is 0 and 1."""
    if replicas >= situation.issued:
        return None
    wanted = sorted(situation.numbers)[:replicas]
    least = wanted[-1] + 1 if wanted else 0
    return _at_least(replicas, least, situation, Reason.NUMBERS)


def ceiling(situation: Situation, replicas: int) -> Bound | None:
    most = ceiling_replicas(situation.concurrency_max, situation.declared)
    return Bound(most, Reason.CEILING) if replicas > most else None


def budget(situation: Situation, replicas: int) -> Bound | None:
    """What the cluster has. Physical: it has the last word and only lowers."""
    over = situation.budget is not None and replicas > situation.budget
    return Bound(max(situation.budget or 0, 0), Reason.BUDGET) if over else None


ORDER: tuple[Rule, ...] = (raw, stabilise, n_minus_1, bursts, growth_cap, floor, numbers, ceiling, budget)
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
