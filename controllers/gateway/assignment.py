"""Which spare back end a revision has: stable while it lives, over restarts too, and reused late.

Pure. HAProxy 2.8 can't add a back end at run time, so a number of empty ones stands ready, in classes of queue
timeout. Its one idea: what HAProxy holds is the truth, the endpoint's status a hint, our memory a cache.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property

from controllers.gateway.settings import QueueClass
from controllers.gateway.snapshot import Endpoint


@dataclass(frozen=True, order=True)
class Revision:
    endpoint: str
    name: str


@dataclass(frozen=True)
class Spares:
    """Every back end's name by queue timeout: b00000, b00001, ... in the order of the classes."""

    by_timeout: tuple[tuple[int, tuple[str, ...]], ...]

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for _, names in self.by_timeout for name in names)

    def by_preference(self, timeout_ms: int) -> list[int]:
        """The timeouts to look under: the shortest that is long enough, then longer ones, then shorter ones."""
        known = [timeout for timeout, _ in self.by_timeout]
        return sorted(known, key=lambda timeout: (timeout < timeout_ms, abs(timeout - timeout_ms)))

    def timeout_of(self, backend: str) -> int | None:
        return next((t for t, names in self.by_timeout if backend in names), None)


def spares(classes: Iterable[QueueClass]) -> Spares:
    by_timeout = []
    first = 0
    for each in sorted(classes, key=lambda each: each.timeout_ms):
        names = tuple(f"b{number:05}" for number in range(first, first + each.backends))
        by_timeout.append((each.timeout_ms, names))
        first += each.backends
    return Spares(tuple(by_timeout))


@dataclass(frozen=True)
class Assignment:
    """`freed`: oldest first; a back end that is in neither was never used."""

    backends: Mapping[Revision, str] = field(default_factory=dict)
    freed: tuple[str, ...] = ()

    @cached_property
    def by_endpoint(self) -> Mapping[str, Mapping[str, str]]:
        """The back end of each revision, by endpoint."""
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for revision, backend in sorted(self.backends.items()):
            found[revision.endpoint][revision.name] = backend
        return dict(found)


def wanted(endpoints: Iterable[Endpoint]) -> tuple[tuple[Revision, int], ...]:
    """Revisions that need a back end and their queue timeout; those that get traffic come first."""
    found = []
    for each in endpoints:
        for pool in each.pools:
            later = pool.revision not in (each.route, each.declared.traffic_revision)
            found.append((later, Revision(each.name, pool.revision), each.declared.queue_timeout_ms))
    return tuple((revision, timeout_ms) for _, revision, timeout_ms in sorted(found))


def assign(
    wanted: Sequence[tuple[Revision, int]],
    current: Assignment,
    available: Spares,
    occupied: AbstractSet[str] = frozenset(),
) -> tuple[Assignment, frozenset[Revision]]:
    """The next assignment, and the revisions that found no spare.

    `occupied`: back ends with servers in them. One stays its revision's until it is empty, wanted or not; one
    that holds a stranger's servers is given to nobody.
    """
    needed = {revision for revision, _ in wanted}
    kept = {
        revision: backend
        for revision, backend in current.backends.items()
        if backend in available.names and (revision in needed or backend in occupied)
    }
    taken = set(kept.values())
    gone = [backend for backend in current.backends.values() if backend not in taken]
    freed = [b for b in (*current.freed, *gone) if b in available.names and b not in taken]
    free = _free(available, freed, taken | occupied)
    missing = set()
    for revision, timeout_ms in wanted:
        if revision in kept:
            continue
        stock = next((free[t] for t in available.by_preference(timeout_ms) if free[t]), None)
        if stock:
            kept[revision] = stock.popleft()
        else:
            missing.add(revision)
    taken = set(kept.values())
    return Assignment(kept, tuple(b for b in freed if b not in taken)), frozenset(missing)


def _free(available: Spares, freed: Sequence[str], taken: AbstractSet[str]) -> dict[int, deque[str]]:
    """Free back ends by timeout: never used ones first, then the one that was freed longest ago."""
    age = {backend: index for index, backend in enumerate(freed, start=1)}
    return {
        timeout: deque(sorted((b for b in names if b not in taken), key=lambda b: (age.get(b, 0), b)))
        for timeout, names in available.by_timeout
    }


def restore(
    endpoints: Iterable[Endpoint],
    held: Mapping[str, Iterable[str]],
    routed: Mapping[str, str],
    remembered: Assignment,
    available: Spares,
) -> Assignment:
    """The assignment after a restart of ours.

    `held`: the servers in each back end, `routed`: the back end of each endpoint, both as HAProxy says. A back
    end belongs to the revision whose pods it holds; where it holds none that is known (all were replaced while we
    were away), to the one that we remember, or to the one in the status if HAProxy routes its endpoint there. An
    empty one belongs to whoever is remembered or recorded.
    """
    endpoints = tuple(endpoints)
    owner_of_pod = {
        server.name: Revision(each.name, pool.revision)
        for each in endpoints
        for pool in each.pools
        for server in pool.servers
    }
    found: dict[Revision, str] = {}
    in_use, taken = frozenset(routed.values()), set[str]()
    for backend, servers in sorted(held.items(), key=lambda item: item[0] not in in_use):
        owner = next((owner_of_pod[name] for name in servers if name in owner_of_pod), None)
        if owner is not None and owner not in found and backend in available.names:
            found[owner] = backend
            taken.add(backend)
    for revision, backend in (*sorted(remembered.backends.items()), *_recorded(endpoints)):
        sure = revision in remembered.backends or not held.get(backend) or routed.get(revision.endpoint) == backend
        if sure and revision not in found and backend in available.names and backend not in taken:
            found[revision] = backend
            taken.add(backend)
    return Assignment(found, tuple(b for b in remembered.freed if b not in taken))


def _recorded(endpoints: Iterable[Endpoint]) -> Iterable[tuple[Revision, str]]:
    for each in endpoints:
        for revision, backend in sorted(each.declared.recorded_backends.items()):
            if each.pool(revision) is not None:
                yield Revision(each.name, revision), backend
