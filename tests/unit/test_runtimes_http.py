"""HTTP on one connection, byte for byte, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from runtimes.interface.engine import Receive, Scope, Send
from runtimes.interface.http import HttpProtocol, Joined

LARGE = b"x" * 200_000
POST = b"POST /%b HTTP/1.1\r\nhost: pod\r\ncontent-length: 2\r\n%b\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path and the body; some paths go wrong half way."""
    await asyncio.sleep(0)
    asked = (await receive()).get("body", b"")
    body = LARGE if scope["path"] == "/large" else scope["path"].encode() + asked
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    if scope["path"] == "/fails":
        raise LookupError("after its head")
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def connected() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, ServerState]]:
    config = uvicorn.Config(cast(Any, echo), interface="asgi3", lifespan="off", ws="none", log_config=None)
    state = ServerState()
    make = lambda: HttpProtocol(config, state, {})  # noqa: E731
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    try:
        yield reader, writer, state
    finally:
        writer.close()
        server.close()


async def answer(reader: asyncio.StreamReader, body: bool = True) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    return await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])) if body else b""


async def test_answers_on_one_connection_come_whole_and_in_order_however_early_the_requests_came() -> None:
    async with connected() as (reader, writer, state):
        writer.write(b"".join(POST % (path, b"") + b"ab" for path in (b"one", b"large", b"two")))
        assert [await answer(reader) for _ in range(3)] == [b"/oneab", LARGE, b"/twoab"]
        assert state.total_requests == 3


async def test_a_head_without_a_body_is_sent_and_the_connection_goes_on() -> None:
    async with connected() as (reader, writer, _):
        writer.write(b"HEAD /one HTTP/1.1\r\nhost: pod\r\n\r\n")
        assert await answer(reader, body=False) == b""
        writer.write(POST % (b"two", b"") + b"ab")
        assert await answer(reader) == b"/twoab"


async def test_who_waits_to_be_told_to_go_on_is_told_before_anything_is_answered() -> None:
    async with connected() as (reader, writer, _):
        writer.write(POST % (b"one", b"expect: 100-continue\r\n"))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ab")
        assert await answer(reader) == b"/oneab"


async def test_an_application_that_fails_after_its_head_ends_the_connection_with_that_head() -> None:
    async with connected() as (reader, writer, _):
        writer.write(POST % (b"fails", b"") + b"ab")
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")
        assert said.endswith(b"\r\n\r\n")


async def test_what_is_not_http_gets_an_error_in_our_shape() -> None:
    async with connected() as (reader, writer, _):
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b'"this is not a valid HTTP request"' in said


async def test_a_request_that_is_over_is_no_task_any_more() -> None:
    async with connected() as (reader, writer, state):
        writer.write(POST % (b"one", b"") + b"ab")
        await answer(reader)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not state.tasks


class Wire(asyncio.Transport):
    """Keeps what is written, a write each."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ([b"head", b"body"], [b"headbody"]),
        ([b"head", b"one", b"two"], [b"headone", b"two"]),
        ([b"HTTP/1.1 100 Continue\r\n\r\n", b"head", b"body"], [b"HTTP/1.1 100 Continue\r\n\r\n", b"headbody"]),
        ([b"head", LARGE], [b"head", LARGE]),
        ([b"head", memoryview(b"body")], [b"headbody"]),
        ([b"head"], [b"head"]),
        ([], []),
    ],
)
def test_a_head_leaves_with_what_follows_and_is_never_lost(written: list[Any], sent: list[bytes]) -> None:
    wire = Wire()
    joined = Joined(wire)
    joined.begin()
    for data in written:
        joined.write(data)
    joined.close()
    assert (wire.writes, wire.closed) == (sent, True)
