"""What the gateway costs a client: total latency through it over a bare HAProxy, at a fixed open-loop rate.

Both are the same HAProxy binary with one thread, one pool of pods with the same limits, kept-alive connections; bare
means a frontend and a backend and nothing else: no key, route map, queue rule, header, log. Each is measured with plain
HTTP and with TLS from the client. Runs alternate; each number is the median of the runs' own percentiles. Requests
leave on time whether or not earlier ones were answered, so a stall is charged to every request that it delayed.

    python tests/bench/gateway_latency.py [--runs 5] [--seconds 3] [--rate 400] [--service-ms 0 2]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import platform
import ssl
import statistics
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

import uvloop

from controllers.gateway import first
from controllers.gateway.observation import Observation
from controllers.gateway.settings import QueueClass, Settings
from tests.gateway_lab.cluster import endpoint_object, keys_object, revision, slices
from tests.gateway_lab.gateway import HAPROXY, KEY, free_ports, make_certificate
from tests.gateway_lab.pods import Pod, takes

ROOT = Path(__file__).resolve().parents[2]
PODS = 4
LIMIT = 16
CONNECTIONS = 64
BODY = b'{"dataframe_split":{"columns":["a","b","c","d"],"data":[[5.1,3.5,1.4,0.2]]}}'
ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 19\r\n\r\n{"predictions":[0]}'
QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}


class PodProtocol(asyncio.Protocol):
    """A pod that answers each request after a fixed time."""

    def __init__(self, service_s: float) -> None:
        self._service_s = service_s
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0 and len(self._held) >= end + 4 + len(BODY):
            self._held = self._held[end + 4 + len(BODY) :]
            if self._service_s:
                asyncio.get_running_loop().call_later(self._service_s, self._transport.write, ANSWER)
            else:
                self._transport.write(ANSWER)


def pods_process(ports: list[int], service_s: float) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for port in ports:
            await loop.create_server(lambda: PodProtocol(service_s), "127.0.0.1", port)
        await asyncio.Event().wait()

    uvloop.run(serve())


class ClientProtocol(asyncio.Protocol):
    """One kept-alive connection with at most one request on it."""

    def __init__(self) -> None:
        self._held = b""
        self._waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        end = self._held.find(b"\r\n\r\n")
        if end >= 0 and len(self._held) >= end + 4 + 19 and self._waiting is not None:
            waiting, self._waiting, held, self._held = self._waiting, None, self._held, b""
            waiting.set_result(held)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.set_exception(ConnectionError("closed in mid-request"))

    async def ask(self, request: bytes) -> bytes:
        self._waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._waiting


async def drive(port: int, rate: float, seconds: float, tls: ssl.SSLContext | None = None) -> list[float]:
    """Latency of each request in seconds; anything but 200 ends the run."""
    loop = asyncio.get_running_loop()

    async def connected() -> ClientProtocol:
        name = "gateway" if tls else None
        return (await loop.create_connection(ClientProtocol, "127.0.0.1", port, ssl=tls, server_hostname=name))[1]

    free = deque([await connected() for _ in range(CONNECTIONS)])
    latencies: list[float] = []
    head = f"POST /serving-endpoints/iris/invocations HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {KEY}\r\n"
    request = f"{head}content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY

    async def one() -> None:
        sent = time.perf_counter()
        client = free.popleft() if free else await connected()
        answer = await client.ask(request)
        latencies.append(time.perf_counter() - sent)
        free.append(client)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(answer.decode(errors="replace"))

    async with asyncio.TaskGroup() as tasks:
        start = loop.time() + 0.1
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + number / rate - loop.time()))
            tasks.create_task(one())
    for client in free:
        client.transport.close()
    return latencies[int(rate * 0.5) :]  # the first half second warms connections up


def bare_config(ports: list[int], port: int, certificate: Path | None = None) -> str:
    tls = f" ssl crt {certificate}" if certificate else ""
    servers = "\n".join(f"  server p{i} 127.0.0.1:{each} maxconn {LIMIT}" for i, each in enumerate(ports))
    timeouts = "\n".join(f"  timeout {name} 60s" for name in ("client", "server", "connect"))
    return (
        f"global\n  maxconn 2000\n  nbthread 1\n  ssl-load-extra-del-ext\ndefaults\n  mode http\n{timeouts}\n"
        f"frontend in\n  bind 127.0.0.1:{port}{tls}\n  default_backend pods\n"
        f"backend pods\n  balance leastconn\n  http-reuse always\n{servers}\n"
    )


def our_config(run: Path, ports: list[int], certificate: Path | None = None) -> Settings:
    https, stats, exporter, control = free_ports(4)
    settings = Settings(
        run=run,
        certificate=certificate,
        address="127.0.0.1",
        https_port=https,
        stats_port=stats,
        exporter_port=exporter,
        control_port=control,
        queue_classes=(QueueClass(5000, 256),),
        max_connections=2000,
    )
    rev = revision("iris")
    pods = [Pod(f"{rev}-{i}", takes(0), port=port) for i, port in enumerate(ports)]
    seen = Observation()
    seen.load([endpoint_object(limit=LIMIT)], slices("iris", rev, pods), [keys_object({KEY: "alpha"})])
    first.write(seen, settings)
    return settings


@dataclass(frozen=True)
class Row:
    service_ms: float
    tls: bool
    quantile: str
    bare_ms: float
    ours_ms: float

    @property
    def ratio(self) -> float:
        return self.ours_ms / self.bare_ms


def quantile(latencies: list[float], share: float) -> float:
    return sorted(latencies)[min(len(latencies) - 1, int(share * len(latencies)))] * 1000


@dataclass(frozen=True)
class Target:
    """One HAProxy and how it is spoken to."""

    config: Path
    port: int
    tls: ssl.SSLContext | None


def targets(folder: Path, ports: list[int]) -> dict[tuple[bool, str], Target]:
    """By whether it speaks TLS, and `bare` or `ours`."""
    certificate = folder / "tls.crt"
    make_certificate(certificate, "gateway")
    trust = ssl.create_default_context(cafile=certificate)
    trust.check_hostname = False
    found = {}
    for tls in (False, True):
        context, own = (trust, certificate) if tls else (None, None)
        settings = our_config(folder / f"ours-{tls}", ports, own)
        found[tls, "ours"] = Target(settings.config, settings.https_port, context)
        (port,), bare = free_ports(1), folder / f"bare-{tls}.cfg"
        bare.write_text(bare_config(ports, port, own))
        found[tls, "bare"] = Target(bare, port, context)
    return found


@contextmanager
def running(folder: Path, found: Iterable[Target]) -> Iterator[None]:
    with (folder / "log").open("wb") as log:
        proxies = [
            subprocess.Popen([str(HAPROXY), "-W", "-db", "-f", str(each.config)], stdout=log, stderr=log)
            for each in found
        ]
        try:
            time.sleep(1)
            yield
        finally:
            for process in proxies:
                process.terminate()
                process.wait()


@contextmanager
def pods_running(ports: list[int], service_ms: float) -> Iterator[None]:
    pods = multiprocessing.Process(target=pods_process, args=(ports, service_ms / 1000), daemon=True)
    pods.start()
    try:
        yield
    finally:
        pods.terminate()
        pods.join()


def measure(service_ms: float, runs: int, seconds: float, rate: float) -> list[Row]:
    ports = free_ports(PODS)
    with tempfile.TemporaryDirectory() as name, pods_running(ports, service_ms):
        found = targets(Path(name), ports)
        latencies: dict[tuple[bool, str], list[list[float]]] = {key: [] for key in found}
        with running(Path(name), found.values()):
            for turn in range(runs):
                for key in sorted(found, reverse=turn % 2 == 1):
                    latencies[key].append(uvloop.run(drive(found[key].port, rate, seconds, found[key].tls)))
    return [
        Row(service_ms, tls, label, *(median(latencies[tls, who], share) for who in ("bare", "ours")))
        for tls in (False, True)
        for label, share in QUANTILES.items()
    ]


def median(runs: Iterable[list[float]], share: float) -> float:
    return statistics.median(quantile(run, share) for run in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=400.0)
    parser.add_argument("--service-ms", type=float, nargs="+", default=[0.0, 2.0], help="what a pod takes")
    parser.add_argument("--output", type=Path, default=ROOT / "bench-results" / "gateway_latency.json")
    given = parser.parse_args()
    rows = [row for ms in given.service_ms for row in measure(ms, given.runs, given.seconds, given.rate)]
    print(f"{given.rate:g} requests/s, {given.runs} runs of {given.seconds:g} s each, medians")
    print(f"{'pod takes':>10} {'':>5} {'':>5} {'bare':>9} {'ours':>9} {'ratio':>7}")
    for row in rows:
        how = f"{row.service_ms:7g} ms {'TLS' if row.tls else 'plain':>5} {row.quantile:>5}"
        print(f"{how} {row.bare_ms:6.3f} ms {row.ours_ms:6.3f} ms {row.ratio:7.3f}")
    result = {
        "rate_rps": given.rate,
        "runs": given.runs,
        "seconds": given.seconds,
        "machine": f"{platform.machine()}, {multiprocessing.cpu_count()} cores",
        "rows": [asdict(row) | {"ratio": row.ratio} for row in rows],
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
