"""Desired against read-back state -> ordered steps of HAProxy commands.

Pure. Its one idea is the order: lower limits, add pods, raise limits, move routes, take routes away, drain,
remove. So a queue never stands before nothing, no route leads to a back end that isn't filled, and a limit's sum
grows only after it shrank elsewhere. A step names its owner: what fails there stops that endpoint only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from controllers.gateway.desired import (
    ACCESS,
    KEYS,
    MAPS,
    MODELS,
    PATHS,
    ROUTES,
    Desired,
    Live,
    LiveServer,
    Mode,
    Target,
    map_file,
)

# A map with more changes than this is swapped whole; so is the map of keys, always.
_CHANGES_ONE_BY_ONE: Final = 64


class Stage(IntEnum):
    """The order in which steps of all endpoints are carried out."""

    LOWER = 0
    ADD = 1
    RAISE = 2
    ADMIT = 3  # keys and access that are new
    ROUTE = 4
    DISMISS = 5  # keys and access that are gone
    UNROUTE = 6
    DRAIN = 7
    REMOVE = 8


@dataclass(frozen=True)
class Command:
    """One line for HAProxy, and the answer that means success; both as it writes them."""

    text: str
    answer: str = ""


@dataclass(frozen=True)
class Swap:
    """A map replaced whole, in one transaction."""

    map: str
    entries: Mapping[str, str]


@dataclass(frozen=True)
class Entry:
    """What a map says of one key once a step has succeeded; None: nothing."""

    map: str
    key: str
    value: str | None


@dataclass(frozen=True)
class Step:
    """`backend`: whose servers it touches; `entry`: what it changes in a map."""

    stage: Stage
    owner: str  # the endpoint, or the back end that belongs to none, or the map
    action: tuple[Command, ...] | Swap
    backend: str | None = None
    entry: Entry | None = None


def diff(desired: Desired, live: Live) -> tuple[Step, ...]:
    """Steps in the order of their stages; empty where nothing differs."""
    steps: list[Step] = []
    for backend in sorted(desired.servers.keys() | live.occupied):
        owner = desired.owners.get(backend, backend)
        steps += _servers(backend, owner, desired.servers.get(backend, {}), live.servers.get(backend, {}))
    for name in MAPS:
        steps += _map(name, desired.maps[name], live.maps[name], damaged=name in live.damaged)
    return tuple(sorted(steps, key=lambda step: step.stage))


def draining(desired: Desired, live: Live) -> frozenset[str]:
    """Back ends with a server that must go and still may have requests: read them again soon."""
    return frozenset(
        backend
        for backend, servers in live.servers.items()
        if any(name not in desired.servers.get(backend, {}) for name in servers)
    )


def _servers(backend: str, owner: str, wanted: Mapping[str, Target], held: Mapping[str, LiveServer]) -> Iterable[Step]:
    for name in sorted(wanted.keys() | held.keys()):
        server, target = f"{backend}/{name}", wanted.get(name)
        for stage, commands in _server(server, target, held.get(name)):
            yield Step(stage, owner, commands, backend)


def _server(server: str, target: Target | None, held: LiveServer | None) -> Iterable[tuple[Stage, tuple[Command, ...]]]:
    if target is None or (held is not None and not _same_place(target, held)):
        # A pod that comes back under another address is added once its old self is gone.
        if held is not None:
            yield from _leave(server, held)
        return
    if held is None:
        yield Stage.ADD, _add(server, target)
    elif held.mode is not Mode.READY:
        yield Stage.ADD, (_limit(server, target), Command(f"set server {server} state ready"))
    elif (held.maxconn, held.weight) != (target.maxconn, target.weight):
        lower = held.maxconn is None or target.maxconn < held.maxconn
        yield (Stage.LOWER if lower else Stage.RAISE), _changed(server, target, held)


def _same_place(target: Target, held: LiveServer) -> bool:
    return (target.address, target.port) == (held.address, held.port)


def _add(server: str, target: Target) -> tuple[Command, ...]:
    host = f"[{target.address}]" if ":" in target.address else target.address
    _check(target)
    return (
        Command(f"add server {server} {host}:{target.port} maxconn {target.maxconn}", "New server registered."),
        Command(f"enable server {server}"),
    )


def _limit(server: str, target: Target) -> Command:
    _check(target)
    return Command(f"set maxconn server {server} {target.maxconn}")


def _changed(server: str, target: Target, held: LiveServer) -> tuple[Command, ...]:
    limit = (_limit(server, target),) if held.maxconn != target.maxconn else ()
    weight = (Command(f"set weight {server} {target.weight}"),) if held.weight != target.weight else ()
    return limit + weight


def _check(target: Target) -> None:
    if target.maxconn < 1:
        raise ValueError(f"maxconn {target.maxconn}: to HAProxy that means unlimited")


def _leave(server: str, held: LiveServer) -> Iterable[tuple[Stage, tuple[Command, ...]]]:
    """Drain until nothing is in flight; maintenance, which closes idle connections; then away, a pass each."""
    drain, rest = (Command(f"set server {server} state {mode}") for mode in ("drain", "maint"))
    if held.mode is Mode.READY or (held.in_flight and held.mode is Mode.MAINT):
        yield Stage.DRAIN, (drain,)
    elif held.in_flight:
        return
    elif held.mode is Mode.DRAIN:
        yield Stage.REMOVE, (rest,)
    elif held.idle:
        # What turned idle in maintenance is closed only by entering it once more.
        yield Stage.REMOVE, (drain, rest)
    else:
        yield Stage.REMOVE, (Command(f"del server {server}", "Server deleted."),)


def _map(name: str, wanted: Mapping[str, str], held: Mapping[str, str], *, damaged: bool) -> Iterable[Step]:
    added = [key for key in sorted(wanted) if key not in held]
    changed = [key for key in sorted(wanted) if key in held and held[key] != wanted[key]]
    gone = [key for key in sorted(held) if key not in wanted]
    changes = len(added) + len(changed) + len(gone)
    if not changes and not damaged:
        return
    if damaged or name == KEYS or changes > _CHANGES_ONE_BY_ONE:
        yield Step(Stage.ROUTE if name == ROUTES else Stage.ADMIT, name, Swap(name, dict(wanted)))
        return
    come, go = (Stage.ROUTE, Stage.UNROUTE) if name == ROUTES else (Stage.ADMIT, Stage.DISMISS)
    for verb, keys in (("add", added), ("set", changed)):
        for key in keys:
            command = Command(f"{verb} map {map_file(name)} {_escaped(key)} {wanted[key]}")
            yield Step(come, _owner(name, key), (command,), entry=Entry(name, key, wanted[key]))
    for key in gone:
        command = Command(f"del map {map_file(name)} {_escaped(key)}")
        yield Step(go, _owner(name, key), (command,), entry=Entry(name, key, None))


def _escaped(key: str) -> str:
    """A path may have the character that ends a command."""
    return key.replace(";", r"\;")


def _owner(name: str, key: str) -> str:
    """Routes are an endpoint's, as are entries `digest/endpoint` and `endpoint/path`; a team's chain is nobody's."""
    if name == MODELS:
        return name
    if name == PATHS:
        return key.partition("/")[0]
    return key.rpartition("/")[2] if name == ACCESS else key
