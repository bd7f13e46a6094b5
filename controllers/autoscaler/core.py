"""Decides an endpoint's replicas: what was, what is seen, the time -> what is remembered, what is wanted and why.

Owns demand and the roles of revisions; the rules and their order are in `rules`. Its one idea: demand is in requests
and belongs to the endpoint, replicas belong to a revision, so a successor, or a better target, changes the division
and never the demand.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from controllers.autoscaler.moment import Moment
from controllers.autoscaler.observation import Observation, Revision, Role
from controllers.autoscaler.rules import BOUNDS, ORDER, Demand, Outcome, Reason, Situation, merge
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Demands, Means
from spec.sizing import replicas_for


@dataclass(frozen=True)
class State:
    """What is remembered: past demands, and when the load was last known."""

    demands: Demands = field(default_factory=Demands)
    known_at_s: Moment | None = None


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
    demand = demand_of(observation, settings)
    state = _remember(state, demand, settings, now_s)
    peak = state.demands.maximum(now_s, settings.down_window_s)
    covered = state.demands.covers(now_s, settings.down_window_s, settings.gap_s)
    situation = Situation(
        issued=0,
        target=1.0,
        demand=demand,
        peak=peak,
        covered=covered,
        concurrency_min=observation.concurrency_min,
        concurrency_max=observation.concurrency_max,
        budget=observation.budget,
        settings=settings,
    )
    unknown_s = now_s - state.known_at_s if state.known_at_s is not None else 0.0
    return state, Verdict(tuple(_decisions(observation, situation)), demand, peak, unknown_s)


def _remember(state: State, demand: Demand, settings: Settings, now_s: float) -> State:
    if demand.requests is None:
        return replace(state, known_at_s=now_s) if state.known_at_s is None else state
    demands = state.demands.add(now_s, demand.requests, demand.complete, settings.down_window_s, settings.gap_s)
    return State(demands, now_s if demand.complete or state.known_at_s is None else state.known_at_s)


def demand_of(observation: Observation, settings: Settings) -> Demand:
    """The larger of the two windows, so that a step shows after 5 s and noise is averaged over 20."""
    windows = [means for means in (observation.fast, observation.slow) if means is not None]
    if observation.fast is None or not windows:
        return Demand(None, complete=False, overloaded=False)
    found = [_window_demand(means, observation.service_time_s, settings.drain_s) for means in windows]
    requests, overloaded = max(found)
    return Demand(requests, observation.fast.complete, overloaded)


def _window_demand(means: Means, service_time_s: float | None, drain_s: float) -> tuple[float, bool]:
    """In flight and queued; under overload what arrives x W, and the backlog's share to be gone in `drain_s`.

    In flight saturates at what ready replicas hold: 4 replicas of 10 show 40, while 1,000 arrivals/s x 0.2 s need
    200. A backlog of 100 at W = 0.2 s drains in 5 s with 100 x 0.2 / 5 = 4 more in flight.
    """
    overloaded = means.queued > 0 or (means.refused_rps or 0.0) > 0
    if not overloaded or service_time_s is None or means.arrived_rps is None:
        return means.in_flight + means.queued, overloaded
    backlog = means.queued * min(1.0, service_time_s / drain_s)
    return max(means.in_flight, means.arrived_rps * service_time_s) + backlog, True


def _decisions(observation: Observation, situation: Situation) -> Iterator[Decision]:
    traffic = _traffic(observation)
    capacity = None
    if traffic is not None:
        decision = _scaled(replace(situation, issued=traffic.issued, target=traffic.target), traffic)
        capacity = decision.desired * traffic.target
        yield decision
    for revision in observation.revisions:
        if revision is not traffic:
            its_own = replace(situation, issued=revision.issued, target=revision.target)
            yield _beside(its_own, revision, capacity)


def _traffic(observation: Observation) -> Revision | None:
    """Who the demand is for: the one with the traffic, or, where there is none yet, the first to get it."""
    for role in (Role.TRAFFIC, Role.SUCCESSOR):
        for revision in observation.revisions:
            if revision.role is role:
                return revision
    return None


def _scaled(situation: Situation, revision: Revision) -> Decision:
    outcome = merge(situation, ORDER, revision.issued, Reason.STEADY)
    return _decision(revision, outcome, sized=True)


def _beside(situation: Situation, revision: Revision, capacity: float | None) -> Decision:
    """A revision beside the one with the traffic: the same capacity over its own target, and never less than now."""
    equal = replicas_for(capacity, revision.target) if capacity is not None else 0
    if revision.role is Role.SUCCESSOR:
        start = max(equal, revision.issued)
        return _decision(revision, merge(situation, BOUNDS, start, Reason.SUCCESSOR), sized=True)
    needed = merge(situation, BOUNDS, equal, Reason.PARKED).replicas
    reason = Reason.FAILED if revision.role is Role.FAILED else Reason.PARKED
    return _decision(revision, Outcome(revision.issued, reason, ()), sized=revision.issued >= needed)


def _decision(revision: Revision, outcome: Outcome, *, sized: bool) -> Decision:
    return Decision(
        revision=revision.name,
        role=revision.role,
        limit=revision.limit,
        target=revision.target,
        issued=revision.issued,
        desired=outcome.replicas,
        reason=outcome.reason,
        trace=outcome.trace,
        sized=sized,
    )
