"""The measurements: each server alone (start, memory), all side by side in turns (CPU a request, rate, latency).

Each number is the median over turns, a ratio that of the turns' own ratios: within a turn the machine is the same.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.runtimes.load import drive
from tests.bench.runtimes.processes import Running, running
from tests.bench.runtimes.servers import SERVERS, WITH_MODEL

WARM_S = 0.5
CONNECTIONS = (1, 8, 32)


@dataclass(frozen=True)
class Alone:
    """One server with nobody beside it."""

    ready_s: float
    pss_mib: float


@dataclass(frozen=True)
class Point:
    """One server under one load, in one turn."""

    cpu_us: float
    rps: float
    p50_ms: float
    p99_ms: float


Key = tuple[str, int]  # server, connections
Turns = dict[Key, list[Point]]


def alone(model: Path, folder: Path, passes: int, seconds: float) -> dict[str, Alone]:
    """Time to the first answer, and memory after a load of 32 connections. No other server shares its pages then."""
    found: dict[str, list[Alone]] = {}
    for _ in range(passes):
        for server in (each for each in SERVERS if each.name in WITH_MODEL):
            with running(server, model, folder / server.name) as up:
                drive(up.port, server.request, 32, seconds)
                found.setdefault(server.name, []).append(Alone(up.ready_s, up.pss_mib()))
    return {
        name: Alone(statistics.median(e.ready_s for e in each), statistics.median(e.pss_mib for e in each))
        for name, each in found.items()
    }


def side_by_side(model: Path, folder: Path, turns: int, seconds: float) -> Turns:
    """Every server under every load, one at a time, again and again."""
    found: Turns = {}
    with contextlib.ExitStack() as stack:
        up = [stack.enter_context(running(server, model, folder / server.name)) for server in SERVERS]
        check_answers(up)
        for each in up:
            drive(each.port, each.server.request, 8, WARM_S)
            each.settled_cpu_s()
        for turn in range(turns):
            for connections in CONNECTIONS:
                for each in up if turn % 2 == 0 else reversed(up):
                    found.setdefault((each.server.name, connections), []).append(_point(each, connections, seconds))
    return found


def check_answers(up: Iterable[Running]) -> None:
    """All predict the same class for the same row."""
    for each in up:
        digits = [c for c in each.answer.decode().partition("predictions")[2] or _data(each) if c.isdigit()]
        if digits[0] != "0":
            raise RuntimeError(f"{each.server.name} answers {each.answer!r}")


def _data(each: Running) -> str:
    return each.answer.decode().partition('"data"')[2]


def _point(each: Running, connections: int, seconds: float) -> Point:
    before = each.cpu_s()  # settled since the last load
    seen = drive(each.port, each.server.request, connections, seconds)
    # What the clients left behind is answered to nobody, but it was worked on.
    cpu_s = each.settled_cpu_s() - before
    return Point(cpu_s / (seen.requests + connections) * 1e6, seen.rps, seen.p50_ms, seen.p99_ms)


def median(points: Sequence[Point]) -> Point:
    names = ("cpu_us", "rps", "p50_ms", "p99_ms")
    return Point(*(statistics.median(getattr(each, name) for each in points) for name in names))


def cpu_ratio(turns: Turns, over: Key, under: Key) -> float:
    """The first's CPU a request over the second's."""
    pairs = zip(turns[over], turns[under], strict=True)
    return statistics.median(a.cpu_us / b.cpu_us for a, b in pairs)


def rps_ratio(turns: Turns, over: Key, under: Key) -> float:
    """The first's requests a second over the second's."""
    pairs = zip(turns[over], turns[under], strict=True)
    return statistics.median(a.rps / b.rps for a, b in pairs)
