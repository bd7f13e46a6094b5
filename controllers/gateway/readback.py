"""What HAProxy says of itself -> `Live`.

Owns the commands that ask and the reading of their answers. Its one idea: state is read, never remembered; a
limit is in force because `show stat` shows it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

from controllers.gateway.desired import MAPS, Live, LiveServer, Mode, map_file
from controllers.gateway.openai import BACKEND
from controllers.gateway.render import FINGERPRINT
from controllers.gateway.runtime_api import RuntimeApiError, ask

_INFO: Final = "show info"
_SERVERS: Final = "show stat -1 4 -1"
_BACKENDS: Final = "show stat -1 2 -1"
_SERVER_COLUMNS: Final = ("pxname", "svname", "addr", "slim", "status", "scur", "srv_icur", "stot", "uweight")
_QUEUE_COLUMNS: Final = ("pxname", "qcur", "hrsp_4xx", "hrsp_5xx")
_MODES: Final = {"MAINT": Mode.MAINT, "DRAIN": Mode.DRAIN}


async def read_all(socket: Path) -> Live:
    """The whole state."""
    maps = [f"show map {map_file(name)}" for name in MAPS]
    info, mark, stat, *contents = await ask(socket, [_INFO, f"show env {FINGERPRINT}", _SERVERS, *maps])
    entries = {name: parse_map(text) for name, text in zip(MAPS, contents, strict=True)}
    return Live(
        pid=parse_pid(info),
        fingerprint=mark.partition("=")[2],
        servers=parse_servers(stat),
        maps={name: found for name, (found, _) in entries.items()},
        damaged=frozenset(name for name, (_, damaged) in entries.items() if damaged),
    )


async def read_servers(socket: Path, backends: Iterable[str]) -> dict[str, dict[str, LiveServer]]:
    """The servers of some back ends; an empty mapping for one without."""
    asked = sorted(backends)
    answers = await ask(socket, [f"show stat {backend} 4 -1" for backend in asked])
    return {backend: parse_servers(text).get(backend, {}) for backend, text in zip(asked, answers, strict=True)}


async def read_queues(socket: Path) -> dict[str, tuple[int, int]]:
    """Requests that wait, and all that were ever answered with 4xx or 5xx, by back end."""
    (text,) = await ask(socket, [_BACKENDS])
    return parse_queues(text)


async def read_pid(socket: Path) -> int:
    """Of the worker that answers: another one has started from the files on disk."""
    (info,) = await ask(socket, [_INFO])
    return parse_pid(info)


def parse_pid(info: str) -> int:
    for line in info.splitlines():
        name, _, value = line.partition(":")
        if name == "Pid":
            return int(value)
    raise RuntimeApiError("`show info` names no Pid")


def parse_servers(stat: str) -> dict[str, dict[str, LiveServer]]:
    """Servers by back end and name, from `show stat`'s CSV; the one of the configuration itself is no pod."""
    found: dict[str, dict[str, LiveServer]] = defaultdict(dict)
    for backend, server, where, limit, status, in_flight, idle, sent, weight in _cells(stat, _SERVER_COLUMNS):
        if backend == BACKEND:
            continue
        address, _, port = where.rpartition(":")
        found[backend][server] = LiveServer(
            address=address.strip("[]"),
            port=int(port),
            maxconn=int(limit) if limit else None,
            mode=_MODES.get(status.split(" ")[0], Mode.READY),
            in_flight=int(in_flight),
            idle=int(idle or 0),
            weight=int(weight or 1),
            sent=int(sent),
        )
    return dict(found)


def parse_queues(stat: str) -> dict[str, tuple[int, int]]:
    return {
        backend: (int(queued or 0), int(bad or 0) + int(failed or 0))
        for backend, queued, bad, failed in _cells(stat, _QUEUE_COLUMNS)
    }


def _cells(stat: str, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """These columns of each row; a hundred others stand beside them, and rows may be many."""
    rows = csv.reader(stat.removeprefix("# ").splitlines())
    head = next(rows, [])
    missing = [column for column in columns if column not in head]
    if missing:
        raise RuntimeApiError(f"statistics without {', '.join(missing)}: {stat[:80]!r}")
    pick = itemgetter(*(head.index(column) for column in columns))
    return (pick(row) for row in rows if row)


def parse_map(text: str) -> tuple[dict[str, str], bool]:
    """The entries of `show map` and whether a key stands there twice."""
    found: dict[str, str] = {}
    lines = [line.split(" ", 2) for line in text.splitlines() if line]
    for _, key, value in lines:
        found.setdefault(key, value)
    return found, len(found) < len(lines)
