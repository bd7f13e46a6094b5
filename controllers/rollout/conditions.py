"""The words: Ready, Available and Progressing of an endpoint, from its plan. Pure.

Ready: the declared revision serves at its floor and has the traffic. Available: some revision serves.
Progressing: the controller is on its way to Ready; a failure ends the way.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.rollout.phases import Phase
from controllers.rollout.plan import KIND_MISSING, Plan, missing
from controllers.rollout.view import EndpointView, Entry, RevisionView
from spec.sizing import floor_replicas


@dataclass(frozen=True)
class Verdict:
    """A condition before it has a time: whether, why in a word, why in a sentence."""

    status: bool
    reason: str
    message: str


def verdicts(endpoint: EndpointView, planned: Plan, revisions: Mapping[str, RevisionView]) -> dict[str, Verdict]:
    """The three conditions by type."""
    ready = _ready(endpoint, planned, revisions)
    return {
        "Ready": ready,
        "Available": _available(endpoint, revisions),
        "Progressing": _progressing(planned, ready),
    }


def _declared(planned: Plan) -> Entry:
    return next(entry for entry in planned.entries if entry.name == planned.declared)


def _ready(endpoint: EndpointView, planned: Plan, revisions: Mapping[str, RevisionView]) -> Verdict:
    entry, live = _declared(planned), revisions.get(planned.declared)
    if endpoint.kind_missing:
        return Verdict(False, KIND_MISSING, missing(endpoint))
    if entry.phase is Phase.FAILED:
        return Verdict(False, entry.reason, entry.message)
    if entry.phase is Phase.STARTING or live is None:
        return Verdict(False, "Starting", _start(endpoint, entry, live))
    if entry.phase is Phase.READY or endpoint.routed != entry.name:
        return Verdict(False, "MovingTraffic", f"{entry.name} is ready; the gateway has yet to route to it")
    sizing = endpoint.sizing.get(entry.name)
    floor = floor_replicas(endpoint.concurrency_min, sizing.target) if sizing else 1
    if live.ready < floor:
        return Verdict(False, "BelowFloor", f"{live.ready} of at least {floor} replicas ready")
    if endpoint.routed_generation < endpoint.generation:
        applied = f"generation {endpoint.routed_generation} of {endpoint.generation}"
        return Verdict(False, "MovingTraffic", f"the gateway has applied {applied}")
    return Verdict(True, "Serving", f"{entry.name} serves")


def _start(endpoint: EndpointView, entry: Entry, live: RevisionView | None) -> str:
    if live is None:
        return f"{entry.name}: its {endpoint.workload} is being made"
    hint = f"; {live.problem.reason}: {live.problem.message}" if live.problem else ""
    sizing = endpoint.sizing.get(entry.name)
    if not hint and (sizing is None or not sizing.sized):
        hint = "; not yet sized to the live load"
    return f"{entry.name}: {live.ready} of {live.replicas} replicas ready{hint}"


def _available(endpoint: EndpointView, revisions: Mapping[str, RevisionView]) -> Verdict:
    if endpoint.routed is None:
        return Verdict(False, "NotRouted", "the gateway routes to no revision yet")
    live = revisions.get(endpoint.routed)
    if live is None or live.ready == 0:
        return Verdict(False, "NoReplicaReady", f"no replica of {endpoint.routed} is ready")
    return Verdict(True, "Serving", f"{endpoint.routed} serves")


def _progressing(planned: Plan, ready: Verdict) -> Verdict:
    if ready.status:
        return Verdict(False, "Complete", ready.message)
    failed = _declared(planned).phase is Phase.FAILED
    return Verdict(not failed, ready.reason, ready.message)
