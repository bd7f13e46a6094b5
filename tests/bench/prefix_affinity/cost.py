"""What affinity costs: HAProxy's CPU a request, saturated, with pods that answer at once."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, cast

import uvloop

from tests.bench.prefix_affinity.balancer import WAYS, balancer, cpu_s, endpoint, text
from tests.bench.prefix_affinity.worth import PROMPTS, conversation
from tests.gateway_lab.gateway import KEY, free_ports

ANSWER: Final = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
COST_SERVERS, COST_REQUESTS, COST_CLIENTS = (12, 100), 8_000, 32
PROMPT_BYTES: Final = 3_000


class PodProtocol(asyncio.Protocol):
    """A pod that answers at once."""

    def __init__(self) -> None:
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        head, found, body = self._held.partition(b"\r\n\r\n")
        if found and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]):
            self._held = b""
            self._transport.write(ANSWER)


def pods_process(ports: list[int]) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        for port in ports:
            await loop.create_server(PodProtocol, "127.0.0.1", port)
        await asyncio.Event().wait()

    uvloop.run(serve())


class Asking(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, requests: list[bytes], left: Iterator[int], done: asyncio.Event) -> None:
        self._requests, self._left, self._done = requests, left, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        if not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(data.decode())
        self._next()

    def _next(self) -> None:
        number = next(self._left, None)
        if number is None:
            self._done.set()
        else:
            self._transport.write(self._requests[number % len(self._requests)])


async def saturate(port: int, name: str) -> None:
    chance = random.Random(1)
    requests = []
    for _ in range(PROMPTS):
        *_, body = conversation(chance, text(chance, PROMPT_BYTES))
        lines = [f"POST /serving-endpoints/{name}/v1/chat/completions HTTP/1.1", "host: gateway"]
        lines += [f"authorization: Bearer {KEY}", f"content-length: {len(body)}", "", ""]
        requests.append("\r\n".join(lines).encode() + body)
    left, done, loop = iter(range(COST_REQUESTS)), asyncio.Event(), asyncio.get_running_loop()
    made = [
        await loop.create_connection(partial(Asking, requests, left, done), "127.0.0.1", port)
        for _ in range(COST_CLIENTS)
    ]
    await done.wait()
    for transport, _ in made:
        transport.close()


@dataclass(frozen=True)
class Cost:
    servers: int
    way: str
    cpu_us: float  # of HAProxy, a request


def cost(turns: int) -> list[Cost]:
    return [row for servers in COST_SERVERS for row in cost_at(servers, turns)]


def cost_at(servers: int, turns: int) -> Iterator[Cost]:
    ports = free_ports(servers)
    pods = multiprocessing.Process(target=pods_process, args=(ports,), daemon=True)
    pods.start()
    try:
        with tempfile.TemporaryDirectory() as name, balancer(Path(name), ports) as (settings, pid):
            used: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(turns):
                for way in sorted(WAYS, reverse=number % 2 == 1):
                    before_s = cpu_s([pid])
                    uvloop.run(saturate(settings.https_port, endpoint(way)))
                    used[way].append((cpu_s([pid]) - before_s) / COST_REQUESTS * 1e6)
            for way, each in used.items():
                yield Cost(servers, way, statistics.median(each))
    finally:
        pods.terminate()
        pods.join()
