"""The state that HAProxy should be in, and the state that it says it is in: two values of one shape.

Pure. Its one idea: maps and servers are plain mappings, so that `diff` compares and `render` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from controllers.gateway.assignment import Assignment, Revision
from controllers.gateway.snapshot import Endpoint, Snapshot
from spec import names

ROUTES: Final = "routes"  # endpoint -> back end/longest queue/deadline in ms, with affinity /prefix
KEYS: Final = "keys"  # SHA-256 of a key, in capitals -> team
ACCESS: Final = "access"  # SHA-256/endpoint -> 1
MODELS: Final = "models"  # team -> the first endpoint that it may call, team/endpoint -> the next
PATHS: Final = "paths"  # endpoint/path -> 1, for each path that its file declares
MAPS: Final = (ROUTES, ACCESS, KEYS, MODELS, PATHS)
WAITS: Final = "waits"  # back end -> seconds until a slot is free; measured, not desired, so not among MAPS
NOWHERE: Final = "none"  # the back end without servers: 503


def map_file(name: str) -> str:
    """A map's file, beside the configuration, and its name in commands."""
    return f"{name}.map"


class Mode(Enum):
    READY = "ready"
    DRAIN = "drain"
    MAINT = "maint"


@dataclass(frozen=True)
class Target:
    """A server that should take requests; `weight`: its share of them beside 1 of any other."""

    address: str
    port: int
    maxconn: int
    weight: int = 1


@dataclass(frozen=True)
class LiveServer:
    """A server as HAProxy reports it; `maxconn` None: unlimited; `idle`: connections kept for reuse.

    `sent`: requests that it was ever given; one more is no other state.
    """

    address: str
    port: int
    maxconn: int | None
    mode: Mode
    in_flight: int
    idle: int = 0
    weight: int = 1
    sent: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Desired:
    servers: Mapping[str, Mapping[str, Target]] = field(default_factory=dict)  # by back end, by name
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {name: {} for name in MAPS})
    owners: Mapping[str, str] = field(default_factory=dict)  # endpoint, by back end


@dataclass(frozen=True)
class Live:
    """`fingerprint`: of the configuration that the worker `pid` started with."""

    pid: int
    fingerprint: str = ""
    servers: Mapping[str, Mapping[str, LiveServer]] = field(default_factory=dict)
    maps: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {name: {} for name in MAPS})
    damaged: AbstractSet[str] = frozenset()  # maps with a key twice

    @property
    def occupied(self) -> frozenset[str]:
        return frozenset(backend for backend, servers in self.servers.items() if servers)


def desired(snapshot: Snapshot, assignment: Assignment, live: Mapping[str, str]) -> Desired:
    """`live`: the revision that each endpoint's requests reach now; kept where the next one has no back end."""
    servers: dict[str, dict[str, Target]] = {}
    owners: dict[str, str] = {}
    for each in snapshot.endpoints:
        for pool in each.pools:
            backend = assignment.backends.get(Revision(each.name, pool.revision))
            if backend is None:
                continue
            owners[backend] = each.name
            servers[backend] = {s.name: Target(s.address, s.port, s.maxconn, s.weight) for s in pool.serving}
    maps = {
        ROUTES: {each.name: route_value(each, assignment, live.get(each.name)) for each in snapshot.endpoints},
        KEYS: {key.digest: key.team for key in snapshot.keys},
        ACCESS: {f"{digest}/{endpoint}": "1" for digest, endpoint in snapshot.access},
        MODELS: chains(snapshot),
        PATHS: {f"{each.name}{path}": "1" for each in snapshot.endpoints for path in each.declared.paths},
    }
    return Desired(servers, maps, owners)


def chains(snapshot: Snapshot) -> dict[str, str]:
    """Each team's endpoints, one leading to the next: an endpoint that comes or goes changes two entries."""
    last: dict[str, str] = {}
    found: dict[str, str] = {}
    for each in snapshot.endpoints:
        for team in each.declared.teams:
            found[last.get(team, team)] = each.name
            last[team] = f"{team}/{each.name}"
    return found


def route_value(each: Endpoint, assignment: Assignment, live: str | None) -> str:
    """One value for all that a request needs, so that it changes in one step."""
    candidates = [Revision(each.name, revision) for revision in (each.route, live) if revision]
    backend = next((assignment.backends[r] for r in candidates if r in assignment.backends), NOWHERE)
    value = f"{backend}/{each.declared.queue_max}/{each.declared.deadline_ms}"
    return f"{value}/{names.AFFINITY_PREFIX}" if each.declared.prefix_affinity else value


def routed_backends(routes: Mapping[str, str]) -> dict[str, str]:
    """The back end of each endpoint, from the map of routes; endpoints that lead nowhere are left out."""
    found = {endpoint: value.split("/")[0] for endpoint, value in routes.items()}
    return {endpoint: backend for endpoint, backend in found.items() if backend != NOWHERE}


def live_routes(live: Live, assignment: Assignment) -> dict[str, str]:
    """The revision that each endpoint's requests reach now."""
    owner = {backend: revision for revision, backend in assignment.backends.items()}
    found = {}
    for endpoint, backend in routed_backends(live.maps[ROUTES]).items():
        if backend in owner and owner[backend].endpoint == endpoint:
            found[endpoint] = owner[backend].name
    return found
