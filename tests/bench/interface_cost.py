"""What the serving interface costs a request: CPU of its process, beside a bare ASGI application in the same run.

    python -m tests.bench.interface_cost [--runs 5] [--requests 3000] [--connections 1 8 32 512]

Each server is a process of its own with one event loop. `bare` reads a body and answers 20 bytes; `constant` is our
interface in front of an engine that answers a constant, `hooks` the same with a trace and a payload hook that keep what
they are told; `proxy` is our interface in front of a server on loopback that answers a constant. A streamed answer has
200 events; its cost a piece is that of a stream less that of a plain request. CPU is what the kernel counted for all
threads of the process. Runs alternate; each number is the median over runs. At last streams are read while bodies of
1 MB go to the same process: the time between two events, beside what it is when nothing else is going on. Prints a
table and writes bench-results/interface_cost.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from tests.bench.interface_servers import EVENTS, SERVERS
from tests.bench.runtimes.load import read_answer

ROOT = Path(__file__).resolve().parents[2]
BODY = b'{"dataframe_split":{"columns":["a","b","c","d"],"data":[[5.1,3.5,1.4,0.2]]}}'
HEAD = (
    b"POST %b HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\naccept: */*\r\nuser-agent: bench\r\n"
    b"accept-encoding: gzip, deflate\r\nx-request-id: 0123456789abcdef\r\nx-knobless-deadline-ms: 30000\r\n"
    b"content-length: %d\r\n\r\n%b"
)
PATHS = {"plain": b"/invocations", "stream": b"/v1/completions"}
STREAM = HEAD % (PATHS["stream"], len(BODY), BODY)
LARGE = HEAD % (PATHS["plain"], 1 << 20, b"[" + b" " * ((1 << 20) - 2) + b"]")


@dataclass(frozen=True)
class Point:
    """One server under one load: CPU a request, and what a client saw."""

    server: str
    kind: str
    connections: int
    cpu_us: float
    p50_ms: float
    p99_ms: float


@contextlib.contextmanager
def running() -> Iterator[dict[str, tuple[int, int]]]:
    """All servers: name -> process and port."""
    ports = {name: _free_port() for name in SERVERS}
    processes = {
        name: subprocess.Popen(
            [sys.executable, "-m", "tests.bench.interface_servers", name, str(port), str(ports["bare"])],
            cwd=ROOT,
            stderr=subprocess.DEVNULL,
        )
        for name, port in ports.items()
    }
    try:
        for port in ports.values():
            _wait(port)
        yield {name: (process.pid, ports[name]) for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


# The load.


async def load(port: int, kind: str, connections: int, requests: int) -> list[float]:
    """Seconds of each request, `connections` at a time, each as soon as the last one was answered."""
    left = requests
    times: list[float] = []
    request = HEAD % (PATHS[kind], len(BODY), BODY)

    async def client() -> None:
        nonlocal left
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while left > 0:
            left -= 1
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            if kind == "plain":
                await reader.readexactly(20)
            else:
                await reader.readuntil(b"0\r\n\r\n")
            times.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return times


def cpu_s(process: int) -> float:
    """CPU that all threads of the process have had."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def measure(server: str, process: int, port: int, kind: str, connections: int, requests: int) -> Point:
    def run(count: int) -> list[float]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(load(port, kind, connections, count))

    run(max(connections, requests // 10))
    before = cpu_s(process)
    times = sorted(run(requests))
    cpu = (cpu_s(process) - before) / requests
    return Point(
        server,
        kind,
        connections,
        cpu * 1e6,
        times[len(times) // 2] * 1e3,
        times[min(len(times) - 1, int(len(times) * 0.99))] * 1e3,
    )


async def gaps_ms(port: int, stream: bytes, large: bytes, bodies: int) -> list[float]:
    """Milliseconds between the events of four streams, while so many connections send a large request each."""
    done = asyncio.Event()
    gaps: list[float] = []

    async def sends() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not done.is_set():
            writer.write(large)
            await read_answer(reader)
        writer.close()

    async def reads() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(stream)
        await reader.readuntil(b"\r\n\r\n")
        last = time.perf_counter()
        for _ in range(EVENTS):
            await reader.readuntil(b"\n\n\r\n")
            now = time.perf_counter()
            gaps.append((now - last) * 1e3)
            last = now
        writer.close()

    sending = [asyncio.create_task(sends()) for _ in range(bodies)]
    await asyncio.gather(*(reads() for _ in range(4)))
    done.set()
    await asyncio.gather(*sending)
    return sorted(gaps)


def beside_large_bodies(port: int, stream: bytes, large: bytes) -> dict[str, float]:
    """p99 of the time between two events, alone and beside two connections that send 1 MB after 1 MB."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = {
            name: runner.run(gaps_ms(port, stream, large, bodies)) for name, bodies in (("alone", 0), ("beside", 2))
        }
    return {name: round(gaps[int(len(gaps) * 0.99)], 2) for name, gaps in found.items()}


def median(points: list[Point]) -> Point:
    first = points[0]
    numbers = (statistics.median(getattr(each, name) for each in points) for name in ("cpu_us", "p50_ms", "p99_ms"))
    return Point(first.server, first.kind, first.connections, *numbers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 32, 512])
    given = parser.parse_args()
    loads = [("plain", count, given.requests) for count in given.connections] + [("stream", 4, 20), ("stream", 32, 96)]
    taken: dict[tuple[str, str, int], list[Point]] = {}
    with running() as servers:
        for _ in range(given.runs):
            for kind, count, requests in loads:
                for name, (process, port) in servers.items():
                    if kind == "plain" or name in ("bare", "proxy"):
                        point = measure(name, process, port, kind, count, requests)
                        taken.setdefault((name, kind, count), []).append(point)
        gaps = beside_large_bodies(servers["constant"][1], STREAM, LARGE)
    report([median(each) for each in taken.values()], gaps, given.runs)


def report(points: list[Point], gaps: dict[str, float], runs: int) -> None:
    print(f"{'server':10}{'load':16}{'CPU us':>9}{'over bare':>11}{'p50 ms':>9}{'p99 ms':>9}")
    bare = {(point.kind, point.connections): point for point in points if point.server == "bare"}
    for point in points:
        over = point.cpu_us - bare[point.kind, point.connections].cpu_us
        name = f"{point.kind} x {point.connections}"
        print(f"{point.server:10}{name:16}{point.cpu_us:9.1f}{over:11.1f}{point.p50_ms:9.2f}{point.p99_ms:9.2f}")
    plain = min(point.cpu_us for point in points if point.server == "proxy" and point.kind == "plain")
    streams = [point for point in points if point.server == "proxy" and point.kind == "stream"]
    pieces = {point.connections: round((point.cpu_us - plain) / EVENTS, 1) for point in streams}
    for connections, cost in pieces.items():
        print(f"a streamed piece through the proxy, {connections} streams at once: {cost} us CPU")
    print(f"time between two events, p99: {gaps['alone']} ms alone, {gaps['beside']} ms beside bodies of 1 MB")
    folder = ROOT / "bench-results"
    folder.mkdir(exist_ok=True)
    written = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "runs": runs,
        "streamed_piece_us": pieces,
        "event_gap_p99_ms": gaps,
        "points": [asdict(point) for point in points],
    }
    (folder / "interface_cost.json").write_text(json.dumps(written, indent=1) + "\n")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(port: int) -> None:
    """Until a prediction is answered."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with contextlib.suppress(OSError, AssertionError, asyncio.IncompleteReadError):
            asyncio.run(load(port, "plain", 1, 1))
            return
        time.sleep(0.1)
    raise TimeoutError("a server did not start")


if __name__ == "__main__":
    main()
