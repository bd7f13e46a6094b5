"""Our interface in front of another server, by `tests.bench.interface_cost`, shorter than there."""

from __future__ import annotations

from tests.bench import interface_cost
from tests.bench.interface_cost import Point
from tests.bench.interface_servers import EVENTS
from tests.bench.runtimes.goals import Interface

LOADS = (("plain", 1, 1500), ("plain", 8, 3000), ("stream", 32, 96))


def measured(runs: int) -> Interface:
    """CPU is the proxy's whole process; what its upstream takes is not in it."""
    taken: dict[tuple[str, str, int], list[Point]] = {}
    with interface_cost.running() as servers:
        for _ in range(runs):
            for kind, connections, requests in LOADS:
                for name in ("bare", "proxy"):
                    point = interface_cost.measure(name, *servers[name], kind, connections, requests)
                    taken.setdefault((name, kind, connections), []).append(point)
    found = {key: interface_cost.median(points) for key, points in taken.items()}
    plain, stream = found["proxy", "plain", 8], found["proxy", "stream", 32]
    added_ms = found["proxy", "plain", 1].p50_ms - found["bare", "plain", 1].p50_ms
    return Interface(plain.cpu_us, added_ms, (stream.cpu_us - plain.cpu_us) / EVENTS)
