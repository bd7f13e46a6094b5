"""A real HAProxy on the gateway's own configuration, pods on a few ports, and requests on time, each in its process.

Every server of every back end is one of eight loopback ports: HAProxy asks no pod how it is, and counts by server.
"""

from __future__ import annotations

import asyncio
import hashlib
import multiprocessing
import random
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from controllers.gateway import files, render
from controllers.gateway.desired import ACCESS, KEYS, ROUTES, Desired, Target
from controllers.gateway.settings import QueueClass, Settings
from tests.bench.gateway_latency import BODY, ClientProtocol, pods_process
from tests.bench.scale.objects import LIMIT, PODS_EACH, backend_name, endpoint_name, pod_name
from tests.gateway_lab.gateway import HAPROXY, KEY, free_ports

PORTS = 8
SERVICE_S = 0.05
WARM_UP_S = 2.0
SPAWN = multiprocessing.get_context("spawn")


def settings_in(run: Path, endpoints: int) -> Settings:
    https, stats, exporter, control = free_ports(4)
    return Settings(
        run=run,
        certificate=None,
        address="127.0.0.1",
        https_port=https,
        stats_port=stats,
        exporter_port=exporter,
        control_port=control,
        queue_classes=(QueueClass(5_000, endpoints),),
        max_connections=4_000,
    )


def configure(settings: Settings, endpoints: int, ports: list[int]) -> None:
    """Each endpoint has the back end of its number; one key opens all."""
    digest = hashlib.sha256(KEY.encode()).hexdigest().upper()
    every = range(endpoints)
    servers = {
        backend_name(number): {
            pod_name(number, pod): Target("127.0.0.1", ports[(number + pod) % len(ports)], LIMIT)
            for pod in range(PODS_EACH)
        }
        for number in every
    }
    maps = {
        ROUTES: {endpoint_name(number): f"{backend_name(number)}/100/60000" for number in every},
        KEYS: {digest: "t00"},
        ACCESS: {f"{digest}/{endpoint_name(number)}": "1" for number in every},
    }
    files.write_all(settings.run, render.files(Desired(servers, maps, {}), settings))


@contextmanager
def haproxy(settings: Settings) -> Iterator[int]:
    """Its process."""
    with (settings.run / "haproxy.log").open("wb") as log:
        command = [str(HAPROXY), "-db", "-f", str(settings.config)]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=settings.run)
        try:
            time.sleep(2)
            if process.poll() is not None:
                raise RuntimeError((settings.run / "haproxy.log").read_text()[-2000:])
            yield process.pid
        finally:
            process.terminate()
            process.wait()


@contextmanager
def pods() -> Iterator[list[int]]:
    ports = free_ports(PORTS)
    process = SPAWN.Process(target=pods_process, args=(ports, SERVICE_S), daemon=True)
    process.start()
    try:
        time.sleep(2)
        yield ports
    finally:
        process.terminate()
        process.join()


@dataclass(frozen=True)
class Latencies:
    """Of the requests that began after the warm-up, in seconds, sorted; `failed`: other answers than 200."""

    seconds: list[float]
    failed: int

    def quantile_ms(self, share: float) -> float:
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))] * 1000


@dataclass(frozen=True)
class Load:
    """Requests to the first `active` endpoints at random, `rate_rps` in all; none waits for another."""

    port: int
    active: int
    rate_rps: float
    seconds: float
    warm_up_s: float = WARM_UP_S


@contextmanager
def load(given: Load) -> Iterator[deque[Latencies]]:
    """What it holds once the block has ended."""
    found: deque[Latencies] = deque()
    receiving, sending = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=_load_process, args=(given, sending), daemon=True)
    process.start()
    try:
        yield found
        if receiving.poll(given.seconds + 30):
            found.append(receiving.recv())
    finally:
        process.terminate()
        process.join()


def _load_process(given: Load, sending: multiprocessing.connection.Connection) -> None:
    sending.send(uvloop.run(_drive(given)))


async def _drive(given: Load) -> Latencies:
    loop, chance = asyncio.get_running_loop(), random.Random(1)
    free: deque[ClientProtocol] = deque()
    latencies: list[float] = []
    failed = 0

    async def one(number: int, late: bool) -> None:
        nonlocal failed
        sent = time.perf_counter()
        client = free.popleft() if free else await _connected(given.port)
        answer = await client.ask(_request(number))
        if not answer.startswith(b"HTTP/1.1 200"):
            failed += 1
        elif late:
            latencies.append(time.perf_counter() - sent)
        free.append(client)

    async with asyncio.TaskGroup() as tasks:
        began = at_s = loop.time()
        while (at_s := at_s + chance.expovariate(given.rate_rps)) < began + given.seconds:
            await asyncio.sleep(max(at_s - loop.time(), 0.0))
            tasks.create_task(one(chance.randrange(given.active), at_s > began + given.warm_up_s))
    return Latencies(sorted(latencies), failed)


async def _connected(port: int) -> ClientProtocol:
    return (await asyncio.get_running_loop().create_connection(ClientProtocol, "127.0.0.1", port))[1]


def _request(number: int) -> bytes:
    head = f"POST /serving-endpoints/{endpoint_name(number)}/invocations HTTP/1.1\r\nhost: gateway\r\n"
    head += f"authorization: Bearer {KEY}\r\ncontent-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    return head.encode() + BODY
