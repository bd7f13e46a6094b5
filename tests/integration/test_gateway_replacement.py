"""A gateway process is replaced under load, and its numbers are read, without its clients noticing."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controllers.gateway.readback import read_pid, read_servers
from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS
from tests.gateway_lab.client import Client
from tests.gateway_lab.cluster import Cluster, endpoint_object, keys_object, revision, slices
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving, settings_in, until
from tests.gateway_lab.pods import Pod, takes

pytestmark = pytest.mark.process
REV = revision("iris")


@asynccontextmanager
async def load(running: Gateway, clients: int) -> AsyncIterator[tuple[list[float], list[Client]]]:
    """When each answer came; any but 200, or a connection that breaks, fails the test."""
    answered: list[float] = []
    connections = [running.client() for _ in range(clients)]
    stop = asyncio.Event()

    async def client(connection: Client) -> None:
        while not stop.is_set():
            assert (await connection.call()).status == 200
            answered.append(time.monotonic())

    tasks = [asyncio.create_task(client(connection)) for connection in connections]
    try:
        yield answered, connections
    finally:
        stop.set()
        await asyncio.gather(*tasks)


def worker_is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.case("gateway-B9")
async def test_a_new_process_has_all_clients_at_once_and_their_requests_at_the_same_rate(tmp_path: Path) -> None:
    """Pods take 50 ms, so the rate is the pods' and the clients', not this machine's."""
    async with gateway(tmp_path / "run") as running:
        pod = await running.pod(f"{REV}-a", 0.05)
        await serving(running, [pod], limit=8)
        former = await read_pid(running.settings.control_socket)
        async with load(running, 8) as (answered, connections):
            await until(lambda: len(answered) > 20)
            begun = time.monotonic()
            await until(lambda: time.monotonic() > begun + 1)
            before = sum(begun < at <= begun + 1 for at in answered)
            running.signal_haproxy(signal.SIGUSR2)
            await until(lambda: worker_is_gone(former))
            await until(lambda: {connection.connected for connection in connections} == {2})
            begun = time.monotonic()
            await until(lambda: time.monotonic() > begun + 1)
            after = sum(begun < at <= begun + 1 for at in answered)
        assert await read_pid(running.settings.control_socket) != former
        assert after >= 0.9 * before


ENDPOINTS = 1_000


@pytest.fixture
async def thousand(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A thousand endpoints of two pods; those of `iris` exist."""
    cluster = Cluster()
    cluster.put(SECRETS, keys_object({KEY: "alpha"}))
    found = Gateway(settings_in(tmp_path / "run", spares=ENDPOINTS + 8), cluster)
    every = [f"e{number:04}" for number in range(ENDPOINTS - 1)]
    cluster.put(MODEL_ENDPOINTS, *(endpoint_object(each) for each in every))
    for each in every:
        pods = [Pod(f"{revision(each)}-{letter}", takes(0), port=9) for letter in "ab"]
        cluster.put(ENDPOINT_SLICES, *slices(each, revision(each), pods))
    try:
        found.render()
        await found.start_haproxy()
        found.start_control()
        pods = [await found.pod(f"{REV}-{letter}", 0.002) for letter in "ab"]
        await serving(found, pods, limit=8)
        await until(lambda: all(cluster.condition(each).get("status") == "True" for each in every), 60)
        yield found
    finally:
        await found.close()


# A process of its own: here its megabytes would hold up the clients and the pods.
READER = """
import socket, sys
while True:
    size, connection = 0, socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    connection.sendall(b"show stat -1 6 -1\\n")
    while part := connection.recv(1 << 16):
        size += len(part)
    print(size, flush=True)
"""


@asynccontextmanager
async def reading(running: Gateway) -> AsyncIterator[Callable[[], list[int]]]:
    """The statistics of everything, again and again; the size of each answer so far."""
    sizes = running.settings.run / "sizes"
    with sizes.open("wb") as out:
        command = [sys.executable, "-c", READER, str(running.settings.stats_port)]
        process = await asyncio.create_subprocess_exec(*command, stdout=out)
    try:
        yield lambda: [int(line) for line in sizes.read_text().split()]
    finally:
        process.kill()
        await process.wait()


@pytest.mark.case("gateway-E1")
async def test_requests_and_changes_pass_between_the_parts_of_the_statistics(thousand: Gateway) -> None:
    """Read without a pause, where the autoscaler reads once a second. A request that waits for a whole answer at each
    of its steps is seen here as two answers a reading, one a client; let through, there are eight."""
    backend = thousand.cluster.status("iris")["gateway"]["backends"][REV]
    async with load(thousand, 2) as (answered, _), reading(thousand) as sizes:
        for limit in (3, 4, 5, 6):
            thousand.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: limit}))
            await until_limit(thousand, backend, limit)
        requests, readings = len(answered), len(sizes())
        await until(lambda: len(sizes()) >= readings + 20)
        assert (len(answered) - requests) / (len(sizes()) - readings) > 3
        assert min(sizes()) > 300_000


async def until_limit(running: Gateway, backend: str, limit: int) -> None:
    async with asyncio.timeout(5):
        while True:
            servers = await read_servers(running.settings.control_socket, [backend])
            if {server.maxconn for server in servers[backend].values()} == {limit}:
                return
            await asyncio.sleep(0.01)
