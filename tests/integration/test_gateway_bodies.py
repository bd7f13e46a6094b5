"""Bodies pass through unread: what they cost is CPU time of HAProxy, counted by the kernel, not time on a clock."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controllers.gateway.readback import read_pid
from tests.gateway_lab.cluster import revision
from tests.gateway_lab.gateway import Gateway, gateway, serving
from tests.gateway_lab.pods import Pod

pytestmark = pytest.mark.process
REV = revision("iris")
MIB = 1024 * 1024


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run") as found:
        yield found


@pytest.fixture
async def pod(running: Gateway) -> Pod:
    found = await running.pod(f"{REV}-a")
    await serving(running, [found], limit=16, deadline_ms=60_000)
    return found


def cpu_ms(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


async def cost_ms(running: Gateway, body: bytes, times: int) -> float:
    """HAProxy's CPU time for one request with this body."""
    client, pid = running.client(), await read_pid(running.settings.control_socket)
    assert (await client.call(body=body)).status == 200
    before = cpu_ms(pid)
    for _ in range(times):
        assert (await client.call(body=body)).status == 200
    return (cpu_ms(pid) - before) / times


@pytest.mark.case("gateway-D10")
async def test_a_body_passes_byte_for_byte_whatever_it_says_it_is(running: Gateway, pod: Pod) -> None:
    for body in (random.Random(1).randbytes(220_000), b'{"inputs": [', b"\xff\xfe" * 5000):
        reply = await running.client().call(body=body, headers={"content-type": "application/json"})
        assert reply.status == 200
        assert pod.seen[-1].body == body


@pytest.mark.case("gateway-D10")
async def test_a_prompt_of_220_kb_costs_less_than_two_milliseconds_of_cpu(running: Gateway, pod: Pod) -> None:
    spent = await cost_ms(running, b"x" * 220_000, 100)
    print(f"{spent:.2f} ms of CPU for each body of 220 kB")
    assert spent < 2


@pytest.mark.case("gateway-D9")
async def test_a_body_of_16_mb_costs_little_cpu(running: Gateway, pod: Pod) -> None:
    """22 ms where it was tuned; another machine may have half that speed."""
    spent = await cost_ms(running, b"x" * (16 * MIB), 8)
    print(f"{spent:.1f} ms of CPU for each body of 16 MiB")
    assert spent < 50


@pytest.mark.case("gateway-D9")
async def test_small_requests_pass_between_the_parts_of_large_ones(running: Gateway, pod: Pod) -> None:
    """A large body moves in pieces of a buffer: before it is through, many a small request is answered."""
    large, small = running.client(), running.client()
    sending = asyncio.create_task(large.call(body=b"x" * (16 * MIB)))
    answered = 0
    while not sending.done():
        assert (await small.call()).status == 200
        answered += 1
    assert (await sending).status == 200
    assert answered >= 3
