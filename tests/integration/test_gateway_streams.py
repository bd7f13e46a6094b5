"""Streams have no total time, only an idle limit, and hold their slot to the last byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.gateway_lab.cluster import revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving, until

pytestmark = [pytest.mark.process, pytest.mark.case("gateway-D7")]
REV = revision("iris")
DEADLINE_MS = 400
EVENT = b'data: {"token":"x"}\n\n'


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run") as found:
        yield found


async def stream(running: Gateway) -> list[bytes]:
    """Each part as it arrives; httpx.RemoteProtocolError where the end is missing."""
    url = f"http://127.0.0.1:{running.settings.https_port}/serving-endpoints/iris/invocations"
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("POST", url, content=b"{}", headers=headers) as reply,
    ):
        assert reply.status_code == 200
        return [part async for part in reply.aiter_raw()]


async def test_a_stream_longer_than_the_deadline_arrives_whole(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    pod.parts = ((0.1, EVENT),) * 10
    await serving(running, [pod], deadline_ms=DEADLINE_MS)
    assert b"".join(await stream(running)) == EVENT * 10


async def test_parts_are_passed_on_as_they_come(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    pod.parts = ((0.0, EVENT), (0.2, EVENT), (0.2, EVENT))
    await serving(running, [pod], deadline_ms=DEADLINE_MS)
    assert await stream(running) == [EVENT] * 3


@pytest.mark.parametrize("rest", [((3600.0, EVENT),), ((0.05, None),)], ids=["silent", "dead"])
async def test_a_stream_that_breaks_off_or_falls_silent_never_looks_complete(
    running: Gateway, rest: tuple[tuple[float, bytes | None], ...]
) -> None:
    """The error event before the end is the pod's to write: a gateway that wrote one could break a half-sent part."""
    pod = await running.pod(f"{REV}-a")
    pod.parts = ((0.0, EVENT), *rest)
    await serving(running, [pod], limit=1, deadline_ms=DEADLINE_MS)
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        await stream(running)
    pod.parts = ()
    assert (await running.client().call()).status == 200


async def test_a_stream_holds_its_slot_to_the_last_byte(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    pod.parts = ((0.0, EVENT), (0.3, EVENT))
    await serving(running, [pod], limit=1)
    streaming = asyncio.create_task(stream(running))
    await until(lambda: pod.in_flight == 1)
    pod_after = asyncio.create_task(stream(running))
    assert len(await streaming) + len(await pod_after) == 4
    assert pod.peak == 1
