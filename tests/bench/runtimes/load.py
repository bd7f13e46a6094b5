"""One load on one server: so many connections, each of which sends its next request once the last is answered.

By wrk where it is on the PATH, else by a client of our own, which takes more CPU and says so in `GENERATOR`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass

import uvloop

WRK = shutil.which("wrk")
GENERATOR = "wrk" if WRK else "our own client"
_SCRIPT = """
wrk.method, wrk.body = "POST", [==[%s]==]
wrk.headers["content-type"] = "application/json"
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n{"requests": %%d, "took_us": %%d, "failed": %%d, "p50_us": %%f, "p99_us": %%f}\\n',
    summary.requests, summary.duration, e.status + e.connect + e.read + e.write + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True)
class Request:
    """What is sent, again and again."""

    path: str
    body: str

    @property
    def wire(self) -> bytes:
        head = f"POST {self.path} HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(self.body)}\r\n\r\n{self.body}".encode()


@dataclass(frozen=True)
class Seen:
    """What the clients saw of one load."""

    requests: int
    rps: float
    p50_ms: float
    p99_ms: float


def drive(port: int, request: Request, connections: int, seconds: float) -> Seen:
    """Send this load; anything but 2xx is an error of the benchmark."""
    return _wrk(port, request, connections, seconds) if WRK else _own(port, request, connections, seconds)


def _wrk(port: int, request: Request, connections: int, seconds: float) -> Seen:
    assert WRK is not None
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT % request.body)
        script.flush()
        # wrk counts whole seconds; `timeout` ends it as Ctrl-C would, after which it reports.
        wrk = [WRK, "-t1", f"-c{connections}", "-d60s", "--timeout", "10s", "-s", script.name]
        command = ["timeout", "-s", "INT", f"{seconds:g}", *wrk, f"http://127.0.0.1:{port}{request.path}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    if found["failed"] or not found["requests"]:
        raise RuntimeError(f"{request.path}: {done.stdout}{done.stderr}")
    rps = found["requests"] / found["took_us"] * 1e6
    return Seen(found["requests"], rps, found["p50_us"] / 1e3, found["p99_us"] / 1e3)


def _own(port: int, request: Request, connections: int, seconds: float) -> Seen:
    began = time.perf_counter()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        times = sorted(runner.run(_clients(port, request, connections, began + seconds)))
    took_s = time.perf_counter() - began
    p50, p99 = (times[int(len(times) * share)] * 1e3 for share in (0.5, 0.99))
    return Seen(len(times), len(times) / took_s, p50, p99)


async def _clients(port: int, request: Request, connections: int, until: float) -> list[float]:
    times: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while (began := time.perf_counter()) < until:
                writer.write(request.wire)
                await read_answer(reader)
                times.append(time.perf_counter() - began)
        finally:
            writer.close()

    await asyncio.gather(*(client() for _ in range(connections)))
    return times


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The body of one answer of known length."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 2"):
        raise RuntimeError(head.decode(errors="replace"))
    length = int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
    return await reader.readexactly(length)
