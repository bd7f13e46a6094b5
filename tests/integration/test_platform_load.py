"""The suite's own load: what counts as a failed request when a connection ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from tests.platform_lab import load
from tests.platform_lab.load import FAILED, Tally, Target

pytestmark = pytest.mark.process
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
ANSWERED_LAST = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"
TAKEN_AND_DROPPED = b""


async def statuses(*script: bytes, closes_idle: bool = False) -> list[int]:
    """What one client counts where the server does as the script says, an entry a request."""
    left, tally, stop = list(script), Tally(), threading.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while left:
            try:
                await reader.readuntil(b"\r\n\r\n{}")
            except asyncio.IncompleteReadError:
                break
            writer.write(answer := left.pop(0))
            if not left:
                stop.set()
            if answer != ANSWER or closes_idle:
                break
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    plain = Target(host, port, None, "wine", "key")  # type: ignore[arg-type]
    async with server:
        await asyncio.wait_for(load._one_client(plain, b"{}", 0.05, stop, tally), 10)
    return [status for _, status in tally.in_order]


async def test_a_request_that_was_sent_and_never_answered_is_failed_on_a_kept_connection_too() -> None:
    assert await statuses(ANSWER, TAKEN_AND_DROPPED, ANSWER) == [200, FAILED, 200]


async def test_a_request_that_was_sent_and_never_answered_is_failed_on_a_new_connection() -> None:
    assert await statuses(TAKEN_AND_DROPPED, ANSWER) == [FAILED, 200]


async def test_a_connection_that_was_closed_while_idle_fails_nothing() -> None:
    assert await statuses(ANSWER, ANSWER, closes_idle=True) == [200, 200]
    assert await statuses(ANSWERED_LAST, ANSWER) == [200, 200]
