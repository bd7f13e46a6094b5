"""The load of a step: it waits for no answer, and counts every one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.platform_lab.load import FAILED, Target
from tests.platform_lab.paced import Paced, Stage

pytestmark = pytest.mark.process
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


@asynccontextmanager
async def server(most: int, answer: bytes) -> AsyncIterator[Target]:
    """Answers nobody until so many have asked, then all of them."""
    asked, all_asked = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await reader.readuntil(b"\r\n\r\n{}")
        asked += 1
        if asked == most:
            all_asked.set()
        await all_asked.wait()
        writer.write(answer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    async with listening:
        yield Target(host, port, None, "wine", "key")  # type: ignore[arg-type]


async def statuses(answer: bytes) -> list[int]:
    stages = Stage(rps=20, seconds=0.2), Stage(rps=100, seconds=0.2)
    async with server(sum(stage.count for stage in stages), answer) as target:
        with Paced(target, b"{}", stages) as load:
            await asyncio.to_thread(load.wait_for_the_end)
        assert len(load.began_s) == 2 and all(each.sent_s >= load.began_s[0] for each in load.answers)
    return [each.status for each in load.answers]


async def test_every_request_leaves_though_none_before_it_was_answered() -> None:
    assert await statuses(ANSWER) == [200] * 24


async def test_a_request_without_a_whole_answer_is_failed() -> None:
    assert await statuses(b"HTTP/1.1 200 OK\r\n") == [FAILED] * 24
