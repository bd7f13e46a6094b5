"""The tables, in plain text. Owns layout alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tests.bench.autoscaler.report import table
from tests.bench.runtimes.goals import Goal
from tests.bench.runtimes.measuring import CONNECTIONS, Alone, Turns, cpu_ratio, median, rps_ratio
from tests.bench.runtimes.servers import OURS, SERVERS


def contenders() -> str:
    return "\n".join(f"  {each.name:9} {each.about}" for each in SERVERS)


def processes(name: str, alone: Mapping[str, Alone]) -> str:
    rows = ((who, f"{one.ready_s:.2f}", f"{one.pss_mib:.0f}") for who, one in alone.items())
    return table((name, "ready s", "PSS MiB"), rows)


def loads(name: str, turns: Turns) -> str:
    head = (name, "conn.", "CPU us", "req/s", "p50 ms", "p99 ms", "CPU/ours", "ours/req/s")
    return table(head, (row for count in CONNECTIONS for row in _at(turns, count)))


def _at(turns: Turns, count: int) -> Iterator[tuple[str, ...]]:
    for server in SERVERS:
        who, us = (server.name, count), (OURS, count)
        one = median(turns[who])
        yield (
            server.name,
            str(count),
            f"{one.cpu_us:.0f}",
            f"{one.rps:.0f}",
            f"{one.p50_ms:.2f}",
            f"{one.p99_ms:.2f}",
            f"{cpu_ratio(turns, who, us):.2f}",
            f"{rps_ratio(turns, us, who):.2f}",
        )


def goals(found: Iterable[Goal]) -> str:
    head = ("goal", "found", "wanted", "")
    rows = (
        (
            each.about,
            f"{each.found:.2f}",
            f"{'>=' if each.least else '<='} {each.bound:.2f}",
            "met" if each.met else "NO",
        )
        for each in found
    )
    return table(head, rows)
