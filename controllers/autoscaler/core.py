"""Decides an endpoint's replicas: what was, what is seen, the time -> what is remembered, what is wanted and why.

Owns demand and the roles of revisions; the rules and their order are in `rules`. Its one idea: demand is in requests
and belongs to the endpoint, replicas belong to a revision, so a successor, or a better target, changes the division
and never the demand.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from controllers.autoscaler.demand import Demand, Surge, demand_of, surge_of
from controllers.autoscaler.moment import Moment
from controllers.autoscaler.observation import Observation, Revision, Role
from controllers.autoscaler.recent import Recent
from controllers.autoscaler.rules import BOUNDS, ORDER, Outcome, Reason, Situation, merge
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Demands
from spec.sizing import replicas_for


@dataclass(frozen=True)
class Eased:
    """The target that decreases rest on: it falls with the target at once and follows its rise in small steps."""

    at_s: Moment
    target: float


@dataclass(frozen=True)
class State:
    """What is remembered: past demands, when the load was last known, an overload that lasts, the eased target."""

    demands: Demands = field(default_factory=Demands)
    known_at_s: Moment | None = None
    recent: Recent = field(default_factory=Recent)
    surge: Surge | None = None
    eased: Eased | None = None


@dataclass(frozen=True)
class Decision:
    """One revision's: from what was asked to what is wanted, why, and the numbers behind it."""

    revision: str
    role: Role
    limit: int
    target: float
    issued: int
    desired: int
    reason: Reason
    trace: tuple[tuple[str, int], ...]
    sized: bool


@dataclass(frozen=True)
class Verdict:
    """The decisions of all revisions, the demand and its peak, and for how long the load has been unknown."""

    decisions: tuple[Decision, ...]
    demand: Demand
    peak: float | None
    unknown_s: float


def decide(state: State, observation: Observation, settings: Settings, now_s: float) -> tuple[State, Verdict]:
    """Total, monotone in demand, inside [floor, ceiling]; without knowledge nothing is lowered."""
    surge = surge_of(_lasting(state, settings, now_s), observation, settings, now_s)
    demand = demand_of(observation, surge, settings)
    state = _remember(replace(state, surge=surge), observation, demand, settings, now_s)
    situation = _situation(state, observation, demand, settings, now_s)
    traffic = _traffic(observation)
    if traffic is not None:
        situation = _for_traffic(situation, traffic, state.eased, now_s)
        state = replace(state, eased=Eased(now_s, situation.eased))
    unknown_s = now_s - state.known_at_s if state.known_at_s is not None else 0.0
    decisions = tuple(_decisions(observation, traffic, situation))
    return state, Verdict(decisions, demand, situation.peak, unknown_s)


def _lasting(state: State, settings: Settings, now_s: float) -> Surge | None:
    """None after so long without knowledge that whoever comes now need not be who came at first."""
    known = state.known_at_s is not None and now_s - state.known_at_s <= settings.down_window_s
    return state.surge if known else None


def _remember(state: State, observation: Observation, demand: Demand, settings: Settings, now_s: float) -> State:
    if demand.requests is None:
        return replace(state, known_at_s=now_s) if state.known_at_s is None else state
    traffic, recent = _traffic(observation), state.recent
    if demand.complete:  # a lower bound is no high
        recent = recent.add(now_s, demand.requests, traffic.limit if traffic is not None else 0, settings.recent_s)
    return replace(
        state,
        demands=state.demands.add(now_s, demand.requests, demand.complete, settings.down_window_s, settings.gap_s),
        recent=recent,
        known_at_s=now_s if demand.complete or state.known_at_s is None else state.known_at_s,
    )


def _situation(state: State, observation: Observation, demand: Demand, settings: Settings, now_s: float) -> Situation:
    """What holds for all revisions; each adds its own size."""
    return Situation(
        issued=0,
        limit=1,
        target=1.0,
        declared=1.0,
        eased=1.0,
        demand=demand,
        peak=state.demands.maximum(now_s, settings.down_window_s),
        covered=state.demands.covers(now_s, settings.down_window_s, settings.gap_s),
        expected=_expected(state, observation, demand, settings, now_s),
        concurrency_min=observation.concurrency_min,
        concurrency_max=observation.concurrency_max,
        budget=observation.budget,
        settings=settings,
    )


def _expected(state: State, observation: Observation, demand: Demand, settings: Settings, now_s: float) -> float | None:
    """The larger of what bursts usually reach and of what a growth that goes on reaches by then; None while the present
    is unknown. Bursts are taken from the last minute's high on, so that noise is not followed both ways."""
    if demand.requests is None:
        return None
    traffic = _traffic(observation)
    start_s = traffic.start_s if traffic is not None and traffic.start_s is not None else settings.start_s
    high = max(demand.requests, state.demands.maximum(now_s, settings.present_s) or 0.0)
    usual = state.recent.expected(high, start_s, settings)
    if demand.rise <= 0:
        return usual
    return max(min(demand.requests + demand.rise * start_s, settings.growth_ahead * demand.requests), usual or 0.0)


def _for_traffic(situation: Situation, traffic: Revision, eased: Eased | None, now_s: float) -> Situation:
    target = _pooled(situation, traffic)
    return replace(
        situation,
        issued=traffic.issued,
        limit=traffic.limit,
        numbers=traffic.numbers,
        target=target,
        declared=traffic.target,
        eased=_eased(target, eased, situation.settings, now_s),
    )


def _eased(target: float, before: Eased | None, settings: Settings, now_s: float) -> float:
    """A better target lets at most `ease` of the replicas go in a minute: 10 -> 11.1 at 0.1, whatever it rose to."""
    if before is None:
        return target
    minutes = min(max(now_s - before.at_s, 0.0), 3600.0) / 60.0
    rise: float = (1 - min(settings.ease, 0.99)) ** -minutes
    return min(target, before.target * rise)


def _pooled(situation: Situation, revision: Revision) -> float:
    """Of many slots a smaller share is room for noise than of few: n requests vary by sqrt(n) (Halfin and Whitt 1981).

    Limit 10: 100 requests leave sqrt(100) = 10 of 110 slots free and are carried at 9 a replica, not at 8; 4 leave 2 of
    6, which is less than the declared 8. While requests are refused, and until a knee is
    learnt, the declared target holds.
    """
    demand, settings = situation.demand, situation.settings
    requests = max(demand.requests or 0.0, situation.peak or 0.0)
    room = math.sqrt(requests * demand.dispersion)
    if demand.surging or not revision.learnt or not 0 < room < math.inf:
        return revision.target
    return max(revision.target, revision.limit * min(requests / (requests + room), settings.pooled))


def _decisions(observation: Observation, traffic: Revision | None, situation: Situation) -> Iterator[Decision]:
    """`situation` is that of the revision with the traffic."""
    capacity = None
    if traffic is not None:
        decision = _scaled(situation, traffic)
        capacity = decision.desired * situation.target
        yield decision
    for revision in observation.revisions:
        if revision is not traffic:
            yield _beside(_its_own(situation, revision), revision, capacity)


def _its_own(situation: Situation, revision: Revision) -> Situation:
    """Another revision's size; its pool is as large, so its target is as much above the declared one, once learnt."""
    target = revision.target * (situation.target / situation.declared if revision.learnt else 1.0)
    return replace(situation, issued=revision.issued, target=target, declared=revision.target)


def _traffic(observation: Observation) -> Revision | None:
    """Who the demand is for: the one with the traffic, or, where there is none yet, the first to get it."""
    for role in (Role.TRAFFIC, Role.SUCCESSOR):
        for revision in observation.revisions:
            if revision.role is role:
                return revision
    return None


def _scaled(situation: Situation, revision: Revision) -> Decision:
    outcome = merge(situation, ORDER, revision.issued, Reason.STEADY)
    return _decision(revision, situation.target, outcome, sized=True)


def _beside(situation: Situation, revision: Revision, capacity: float | None) -> Decision:
    """A revision beside the one with the traffic: the same capacity over its own target, and never less than now."""
    equal = replicas_for(capacity, situation.target) if capacity is not None else 0
    if revision.role is Role.SUCCESSOR:
        start = max(equal, revision.issued)
        return _decision(revision, situation.target, merge(situation, BOUNDS, start, Reason.SUCCESSOR), sized=True)
    needed = merge(situation, BOUNDS, equal, Reason.PARKED).replicas
    reason = Reason.FAILED if revision.role is Role.FAILED else Reason.PARKED
    return _decision(revision, situation.target, Outcome(revision.issued, reason, ()), sized=revision.issued >= needed)


def _decision(revision: Revision, target: float, outcome: Outcome, *, sized: bool) -> Decision:
    return Decision(
        revision=revision.name,
        role=revision.role,
        limit=revision.limit,
        target=target,
        issued=revision.issued,
        desired=outcome.replicas,
        reason=outcome.reason,
        trace=outcome.trace,
        sized=sized,
    )
