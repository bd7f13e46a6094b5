"""The revisions' next phases, where traffic belongs and what to do, from how things are and the time. Pure.

Owns which happenings have happened and when traffic moves. The protocol itself is the table in `phases`; the words
of the conditions are in `conditions`. Its one idea: the serving revision is never touched by what its successor does;
traffic is moved by naming another revision, and only the gateway's answer makes the old one superseded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from controllers.kube.resources import DEPLOYMENTS, Gvr
from controllers.rollout.phases import Happening, Phase, step
from controllers.rollout.pods import PODS_GRACE_S, PODS_MISSING, UNSCHEDULABLE, Problem
from controllers.rollout.view import EndpointView, Entry, RevisionView
from spec.sizing import floor_replicas

KIND_MISSING = "LeaderWorkerSetMissing"
_LOOK_AGAIN_S = 5.0


@dataclass(frozen=True)
class ApplyWorkload:
    """Make, or put right, the declared revision's Deployment or LeaderWorkerSet."""

    revision: str


@dataclass(frozen=True)
class ApplyService:
    """Make, or put right, a revision's headless Service; `kind` is what runs the revision, None that it is the declared
    one's."""

    revision: str
    kind: Gvr | None = None


@dataclass(frozen=True)
class Remove:
    """Delete what runs a revision (that very one, of its `kind`) and its Service."""

    revision: str
    uid: str
    kind: Gvr = DEPLOYMENTS


Action = ApplyWorkload | ApplyService | Remove


@dataclass(frozen=True)
class Plan:
    """Everything about an endpoint's revisions after this moment; the conditions are drawn from it."""

    declared: str
    traffic: str | None
    entries: tuple[Entry, ...]
    actions: tuple[Action, ...]
    wake_at_s: float | None


def plan(endpoint: EndpointView, revisions: Mapping[str, RevisionView], now_s: float) -> Plan:
    """The revisions' next phases, where traffic belongs, and the actions. Total; changes nothing itself."""
    recorded = {entry.name: entry for entry in endpoint.entries}
    start = recorded.get(endpoint.declared) or _absent(endpoint, revisions, endpoint.declared, now_s)
    declared = _advance_declared(endpoint, revisions.get(endpoint.declared), start, now_s)
    traffic = _traffic(endpoint, declared, revisions)
    starved = _is_starved(declared, revisions.get(endpoint.declared), now_s)
    others = [
        _advance_other(endpoint, revisions.get(name), entry, traffic, starved, now_s)
        for name, entry in _known(endpoint, revisions, recorded, now_s).items()
        if name != endpoint.declared
    ]
    entries = tuple(_one_held([declared, *others], now_s))
    return Plan(
        declared=endpoint.declared,
        traffic=traffic,
        entries=tuple(entry for entry in entries if entry.phase not in (Phase.ABSENT, Phase.GONE)),
        actions=tuple(_actions(endpoint, revisions, entries)),
        wake_at_s=min(_alarms(endpoint, revisions, entries, now_s), default=None),
    )


def is_ready(endpoint: EndpointView, revision: RevisionView) -> bool:
    """Sized to the live load by the autoscaler, and every replica of that size is ready."""
    sizing = endpoint.sizing.get(revision.name)
    if sizing is None or not sizing.sized:
        return False
    wanted = max(sizing.desired, revision.replicas, floor_replicas(endpoint.concurrency_min, sizing.target))
    return revision.ready >= wanted


def _absent(endpoint: EndpointView, revisions: Mapping[str, RevisionView], name: str, now_s: float) -> Entry:
    live = revisions.get(name)
    version = endpoint.model_version if name == endpoint.declared else live.model_version if live else ""
    return Entry(name, Phase.ABSENT, version, now_s)


def _known(
    endpoint: EndpointView,
    revisions: Mapping[str, RevisionView],
    recorded: Mapping[str, Entry],
    now_s: float,
) -> dict[str, Entry]:
    """Every revision that the status or the cluster knows, oldest change first."""
    found = {name: _absent(endpoint, revisions, name, now_s) for name in sorted(revisions)} | dict(recorded)
    return dict(sorted(found.items(), key=lambda item: (item[1].since_s, item[0])))


def _move(entry: Entry, happening: Happening, now_s: float, problem: Problem | None = None) -> Entry:
    return replace(
        entry,
        phase=step(entry.phase, happening),
        since_s=now_s,
        reason=problem.reason if problem else "",
        message=problem.message if problem else "",
    )


def _advance_declared(endpoint: EndpointView, live: RevisionView | None, entry: Entry, now_s: float) -> Entry:
    """Steps until nothing more has happened; a held one is re-adopted and ready within one call."""
    while happening := _of_declared(endpoint, live, entry, now_s):
        failed = happening is Happening.FAILED
        entry = _move(entry, happening, now_s, failure(endpoint, live, entry, now_s) if failed else None)
    problem = failure(endpoint, live, entry, now_s) if entry.phase is Phase.FAILED else None
    # That its pods are missing explains no failure that had another cause: a group that failed is made anew.
    if problem is not None and (problem.reason != PODS_MISSING or not entry.reason):
        entry = replace(entry, reason=problem.reason, message=problem.message)
    return entry


def _of_declared(endpoint: EndpointView, live: RevisionView | None, entry: Entry, now_s: float) -> Happening | None:
    phase = entry.phase
    if endpoint.routed == entry.name and live is not None and phase is not Phase.SERVING:
        return Happening.ROUTED
    if phase in (Phase.ABSENT, Phase.DRAINING, Phase.HELD):
        return Happening.DECLARED
    if phase is Phase.FAILED and entry.reason == KIND_MISSING and not endpoint.kind_missing:
        return Happening.INSTALLED
    ready = live is not None and is_ready(endpoint, live)
    if phase in (Phase.STARTING, Phase.FAILED) and ready:
        return Happening.READIED
    if endpoint.traffic == entry.name:  # already offered to the gateway: what it loses now is no failed start
        return None
    if phase is Phase.READY and not ready:
        return Happening.UNREADIED
    if phase is Phase.STARTING and failure(endpoint, live, entry, now_s):
        return Happening.FAILED
    return None


def failure(endpoint: EndpointView, live: RevisionView | None, entry: Entry, now_s: float) -> Problem | None:
    """Why a starting revision has failed by now, or None."""
    problem = live.problem if live else None
    if endpoint.kind_missing:
        return Problem(KIND_MISSING, missing(endpoint), now_s)
    if problem is not None and problem.fatal_at_s <= now_s:
        return problem
    if entry.phase is Phase.STARTING and now_s - entry.since_s >= endpoint.start_timeout_s:
        seen = f"; {problem.reason}: {problem.message}" if problem else ""
        ready = f"{live.ready} of {live.replicas} replicas ready" if live else f"no {endpoint.workload}"
        return Problem("StartTimeout", f"{ready} after {endpoint.start_timeout_s:.0f} s{seen}", now_s)
    return None


def _traffic(endpoint: EndpointView, declared: Entry, revisions: Mapping[str, RevisionView]) -> str | None:
    """The declared revision once it may serve; until then whoever has it now."""
    if declared.phase in (Phase.READY, Phase.SERVING):
        return declared.name
    if endpoint.traffic is None and endpoint.routed in revisions:
        return endpoint.routed
    return endpoint.traffic


def _is_starved(declared: Entry, live: RevisionView | None, now_s: float) -> bool:
    """Whether the declared revision finds no room: what is only held for a revert then gives way."""
    if declared.phase not in (Phase.STARTING, Phase.FAILED) or live is None or live.problem is None:
        return False
    return live.problem.reason == UNSCHEDULABLE or (
        live.problem.reason == PODS_MISSING and now_s >= _late_s(live.problem)
    )


def _late_s(problem: Problem) -> float:
    """Since when pods of a group that are not made lack room: they take a moment, and room may yet come."""
    return problem.fatal_at_s - PODS_GRACE_S


def missing(endpoint: EndpointView) -> str:
    return (
        f"a replica over several nodes is a {endpoint.workload}, a kind that this cluster does not have: install "
        "LeaderWorkerSet (https://lws.sigs.k8s.io), or write resources.nodes: 1"
    )


def _advance_other(
    endpoint: EndpointView,
    live: RevisionView | None,
    entry: Entry,
    traffic: str | None,
    starved: bool,
    now_s: float,
) -> Entry:
    while happening := _of_other(endpoint, live, entry, traffic, starved, now_s):
        entry = _move(entry, happening, now_s)
    return entry


def _of_other(
    endpoint: EndpointView,
    live: RevisionView | None,
    entry: Entry,
    traffic: str | None,
    starved: bool,
    now_s: float,
) -> Happening | None:
    phase, routed, age_s = entry.phase, endpoint.routed == entry.name, now_s - entry.since_s
    if phase is Phase.GONE:
        return None
    if live is None:
        return None if phase is Phase.ABSENT else Happening.VANISHED
    if routed and phase is not Phase.SERVING:
        return Happening.ROUTED
    if routed or traffic == entry.name:
        return None
    if phase is Phase.SERVING:  # superseded only once the gateway has said so
        return Happening.SUPERSEDED if endpoint.routed is not None else None
    if phase in (Phase.STARTING, Phase.READY, Phase.FAILED):
        return Happening.SUPERSEDED if endpoint.traffic == entry.name else Happening.WITHDRAWN
    if phase is Phase.DRAINING and age_s >= endpoint.drain_s:
        return Happening.DRAINED
    if phase is Phase.HELD and (starved or age_s >= endpoint.hold_s):
        return Happening.HOLD_ENDED
    return None


def _one_held(entries: list[Entry], now_s: float) -> Iterator[Entry]:
    """A revert goes to the one before: earlier held ones would only cost replicas."""
    parked = [entry for entry in entries if entry.phase in (Phase.DRAINING, Phase.HELD)]
    newest = max(parked, key=lambda entry: (entry.since_s, entry.name), default=None)
    for entry in entries:
        outdone = entry.phase is Phase.HELD and entry is not newest
        yield _move(entry, Happening.HOLD_ENDED, now_s) if outdone else entry


def _actions(
    endpoint: EndpointView, revisions: Mapping[str, RevisionView], entries: tuple[Entry, ...]
) -> Iterator[Action]:
    for entry in entries:
        live = revisions.get(entry.name)
        if entry.phase in (Phase.GONE, Phase.ABSENT):
            if live is not None and endpoint.traffic != entry.name:
                yield Remove(entry.name, live.uid, live.kind)
            continue
        if entry.name == endpoint.declared and not (live and live.workload_in_place):
            if endpoint.kind_missing:
                continue
            yield ApplyWorkload(entry.name)
        if not (live and live.service_in_place):
            yield ApplyService(entry.name, live.kind if live else None)


def _alarms(
    endpoint: EndpointView, revisions: Mapping[str, RevisionView], entries: tuple[Entry, ...], now_s: float
) -> Iterator[float]:
    """When time alone will change something."""
    if endpoint.kind_missing:
        yield now_s + _LOOK_AGAIN_S
    for entry in entries:
        live = revisions.get(entry.name)
        if entry.phase is Phase.STARTING:
            yield entry.since_s + endpoint.start_timeout_s
            if live and live.problem:
                yield from (at_s for at_s in (_late_s(live.problem), live.problem.fatal_at_s) if at_s > now_s)
        elif entry.phase is Phase.DRAINING:
            yield entry.since_s + endpoint.drain_s
        elif entry.phase is Phase.HELD:
            yield entry.since_s + endpoint.hold_s
