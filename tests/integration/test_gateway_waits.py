"""A refusal says when to come back: the time that the queue takes to drain, as HAProxy is told every few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.gateway_lab.cluster import revision
from tests.gateway_lab.gateway import Gateway, gateway, serving, until
from tests.gateway_lab.pods import Gate

pytestmark = [pytest.mark.process, pytest.mark.case("gateway-D2")]
REV = revision("iris")
SMALL, LARGE = b"{}", b"x" * 20_000


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    monkeypatch.setattr("controllers.gateway.waits._READ_S", 0.2)
    async with gateway(tmp_path / "run", queue_ms=60_000) as found:
        yield found


@asynccontextmanager
async def refusals(running: Gateway, clients: int) -> AsyncIterator[dict[bytes, list[int]]]:
    """What refused clients are told, by the body they sent; each asks again at once."""
    told: dict[bytes, list[int]] = {SMALL: [], LARGE: []}
    stop = asyncio.Event()

    async def client(body: bytes) -> None:
        connection = running.client()
        while not stop.is_set():
            reply = await connection.call(body=body)
            if reply.status == 429:
                told[body].append(int(reply.headers["retry-after"]))
                await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(client(LARGE if number % 2 else SMALL)) for number in range(clients)]
    try:
        yield told
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def waits(running: Gateway) -> dict[str, int]:
    (text,) = await running.say("show map waits.map")
    return {line.split(" ")[1]: int(line.split(" ")[2]) for line in text.splitlines() if line}


async def test_a_refused_client_is_told_the_time_of_the_queue_before_it_and_some_more(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a", 0.05)
    await serving(running, [pod], limit=1, queue_max=120)  # 121 x 0.05 s: at least 6 s
    async with refusals(running, 140) as told:
        await until(lambda: all(max(said, default=0) > 5 for said in told.values()))
        await running.kill_control()
        for said in told.values():
            said.clear()
        await until(lambda: all(len(said) > 40 for said in told.values()))
    for said in told.values():
        assert min(said) >= 6
        assert max(said) <= 60
        assert len(set(said)) == 5
    running.start_control()
    async with asyncio.timeout(10):
        while True:
            if not await waits(running):
                break
            await asyncio.sleep(0.05)


async def test_a_queue_that_does_not_move_is_a_longer_wait_each_time_it_is_read(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, queue_max=20)
    held = [asyncio.create_task(running.client().call()) for _ in range(21)]
    await until(lambda: pod.in_flight == 1)
    (backend,) = [b for b, servers in (await running.live()).servers.items() if servers]
    seen: set[int] = set()
    async with asyncio.timeout(10):
        while len(seen) < 3:
            seen |= {wait for wait in (await waits(running)).values() if wait > 8}
            await asyncio.sleep(0.05)
    assert set(await waits(running)) == {backend}
    gate.open()
    assert {(await each).status for each in held} == {200}
