"""What the gateway should do, as one frozen value that was checked whole.

Pure. Owns which revision gets an endpoint's traffic, which pods serve, and each pod's limit. Leaves to
`assignment` which back end a revision gets. Its one idea: a fault stops at its endpoint, whose last good
declaration stays in force; which pods exist is never taken from the past, since those may be gone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from controllers.gateway.observed import Declared, Fault, Identity, Key, Pod, PodState, Probe


class ServerState(Enum):
    SERVING = "serving"
    DRAINING = "draining"


@dataclass(frozen=True)
class Server:
    """A pod as HAProxy knows it; `maxconn` is its limit of requests in flight, at least 1. `weight`: its share."""

    name: str
    address: str
    port: int
    maxconn: int
    state: ServerState
    weight: int = 1


@dataclass(frozen=True)
class Pool:
    """The pods of one revision."""

    revision: str
    servers: tuple[Server, ...]

    @property
    def serving(self) -> tuple[Server, ...]:
        return tuple(server for server in self.servers if server.state is ServerState.SERVING)


@dataclass(frozen=True)
class Endpoint:
    """One endpoint's part of the snapshot. `route` differs from the declared revision while that isn't ready."""

    declared: Declared
    pools: tuple[Pool, ...]
    route: str | None

    @property
    def name(self) -> str:
        return self.declared.name

    def pool(self, revision: str | None) -> Pool | None:
        return next((pool for pool in self.pools if pool.revision == revision), None)


@dataclass(frozen=True)
class Problem:
    """Why an endpoint object is not in force as it stands."""

    identity: Identity
    reason: str
    message: str


@dataclass(frozen=True)
class Snapshot:
    endpoints: tuple[Endpoint, ...] = ()
    keys: tuple[Key, ...] = ()
    problems: tuple[Problem, ...] = ()
    good: Mapping[Identity, Declared] = field(default_factory=dict)

    @property
    def access(self) -> frozenset[tuple[str, str]]:
        """(key digest, endpoint) for each key that may call."""
        by_team: dict[str, list[str]] = defaultdict(list)
        for key in self.keys:
            by_team[key.team].append(key.digest)
        return frozenset(
            (digest, endpoint.name)
            for endpoint in self.endpoints
            for team in endpoint.declared.teams
            for digest in by_team.get(team, ())
        )


def build(
    found: Mapping[Identity, Declared | Fault],
    pods: Iterable[Pod],
    keys: Sequence[Key],
    last_good: Mapping[Identity, Declared],
    live: Mapping[str, str],
) -> Snapshot:
    """`live`: the revision that each endpoint's requests reach at this moment, as read back from HAProxy."""
    chosen, problems = _in_force(found, last_good)
    good, more = _one_of_each_name(chosen, last_good)
    of_endpoint: dict[Identity, list[Pod]] = defaultdict(list)
    for pod in pods:
        of_endpoint[pod.identity].append(pod)
    endpoints = [
        endpoint(said, of_endpoint.get(identity, []), live.get(said.name))
        for identity, said in sorted(good.items(), key=lambda item: item[1].name)
    ]
    return Snapshot(tuple(endpoints), tuple(keys), tuple(problems + more), good)


def _in_force(
    found: Mapping[Identity, Declared | Fault], last_good: Mapping[Identity, Declared]
) -> tuple[dict[Identity, Declared], list[Problem]]:
    chosen: dict[Identity, Declared] = {}
    problems = []
    for identity, said in sorted(found.items()):
        if isinstance(said, Declared):
            chosen[identity] = said
            continue
        held = last_good.get(identity)
        kept = "; what was last good stays in force" if held else ""
        problems.append(Problem(identity, said.reason, said.message + kept))
        if held:
            chosen[identity] = held
    return chosen, problems


def _one_of_each_name(
    chosen: Mapping[Identity, Declared], last_good: Mapping[Identity, Declared]
) -> tuple[dict[Identity, Declared], list[Problem]]:
    """A name belongs to the endpoint that has it already, else to the oldest."""
    by_name: dict[str, list[Declared]] = defaultdict(list)
    for said in chosen.values():
        by_name[said.name].append(said)
    good: dict[Identity, Declared] = {}
    problems = []
    for name, claimants in by_name.items():
        claimants.sort(key=lambda said: (said.identity not in last_good, said.created, said.identity))
        good[claimants[0].identity] = claimants[0]
        owner = claimants[0].identity.namespace
        problems += [
            Problem(other.identity, "DuplicateName", f"endpoint {name!r} exists already, in {owner}")
            for other in claimants[1:]
        ]
    return good, problems


def endpoint(said: Declared, pods: Sequence[Pod], live: str | None) -> Endpoint:
    by_revision: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        by_revision[pod.revision].append(pod)
    revisions = set(by_revision) | ({said.traffic_revision} if said.traffic_revision else set())
    pools = tuple(_pool(said, revision, by_revision.get(revision, [])) for revision in sorted(revisions))
    return Endpoint(said, pools, _route(said, {pool.revision: len(pool.serving) for pool in pools}, live))


def _pool(said: Declared, revision: str, pods: Sequence[Pod]) -> Pool:
    ready = [pod for pod in pods if pod.state is PodState.READY]
    limit = said.limits.get(revision, said.initial_limit)
    probe = said.probes.get(revision)
    shares = probed(spread(limit, said.concurrency_max, [pod.name for pod in ready]), probe, said.concurrency_max)
    servers = []
    for pod in sorted(pods, key=lambda pod: pod.name):
        share = shares.get(pod.name) if pod.state is PodState.READY else None
        state = ServerState.SERVING if share else ServerState.DRAINING
        weight = probe.weight if probe is not None and share and pod.name == probe.pod else 1
        servers.append(Server(pod.name, pod.address, pod.port, share or 1, state, weight))
    return Pool(revision, tuple(servers))


def spread(limit: int, maximum: int, pods: Sequence[str]) -> dict[str, int]:
    """Each pod's limit: `limit`, or an equal share of `maximum` where that is less; never 0.

    limit 64, maximum 100, two pods: 50 and 50; three: 34, 33, 33. Maximum 2, three pods: 1, 1, and the third
    gets nothing (it is left out), since the sum may not pass the maximum.
    """
    taking = sorted(pods)[:maximum]
    if limit * len(taking) <= maximum:
        return dict.fromkeys(taking, limit)
    share, rest = divmod(maximum, len(taking))
    return {pod: share + (index < rest) for index, pod in enumerate(taking)}


def probed(shares: Mapping[str, int], probe: Probe | None, maximum: int) -> dict[str, int]:
    """With the probed pod's limit, as far as the maximum has room beside the others'; a pod that is gone asks nothing.

    Limits 4, 4 and 4, the first asked to take 9: 9, 4 and 4; of a maximum of 15: 7, 4 and 4.
    """
    if probe is None or probe.pod not in shares:
        return dict(shares)
    room = maximum - (sum(shares.values()) - shares[probe.pod])
    return {**shares, probe.pod: min(probe.limit, room)}


def _route(said: Declared, serving: Mapping[str, int], live: str | None) -> str | None:
    """The declared revision, unless it lacks pods that the one in use still has.

    Endpoint objects and EndpointSlices arrive by two streams: the word to move may come before the pods do.
    """
    wanted = said.traffic_revision
    if wanted is None:
        return live if live in serving else None
    if live is None or live == wanted or not serving.get(live):
        return wanted
    needed = max(1, min(said.desired.get(wanted, 1), serving[live]))
    return wanted if serving.get(wanted, 0) >= needed else live
