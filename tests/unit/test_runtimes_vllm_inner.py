"""An ASGI application in this process as an upstream: whole answers, streams, and clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import pytest

from runtimes.interface.engine import Api, Call, Receive, Scope, Send
from runtimes.vllm.inner import forward

JSON = [(b"content-type", b"application/json")]
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


def call(body: bytes = b"{}", **changes: object) -> Call:
    headers = [(b"content-encoding", b"gzip"), (b"x-request-id", b"theirs"), (b"traceparent", b"00-1")]
    return Call("ours", Api.OPENAI, "json", body, time.perf_counter() + 5, "/v1/x", headers=headers, **changes)  # type: ignore[arg-type]


async def start(send: Send, headers: list[tuple[bytes, bytes]], status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def piece(send: Send, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


async def test_a_whole_answer_is_one_body_however_many_pieces_it_came_in() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await start(send, JSON, 201)
        for _ in range(500):
            await piece(send, b"x" * 10)
        await piece(send, b"", more=False)

    answered = await forward(app, {}, call())
    assert (answered.status, answered.headers, len(answered.body), answered.pieces) == (201, JSON, 5000, None)


async def test_the_application_gets_the_plain_body_our_request_id_and_its_own_scope() -> None:
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        seen.extend([scope["app"], scope["path"], await receive(), headers])
        await start(send, JSON)
        await piece(send, b"", more=False)

    await forward(app, {"app": "vllm"}, call(b'{"a": 1}'))
    headers = {b"x-request-id": b"ours", b"content-length": b"8", b"traceparent": b"00-1"}
    assert seen == ["vllm", "/v1/x", {"type": "http.request", "body": b'{"a": 1}', "more_body": False}, headers]


async def test_an_error_that_calls_itself_a_stream_is_read_whole_and_its_application_ends() -> None:
    ended = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await start(send, EVENTS, 400)
        for _ in range(200):  # more than it may be ahead of who reads it
            await piece(send, b"x")
            await asyncio.sleep(0)
        await piece(send, b"", more=False)
        ended.set()

    answered = await forward(app, {}, call())
    assert (answered.status, answered.body, answered.pieces) == (400, b"x" * 200, None)
    assert ended.is_set()


async def test_events_are_passed_on_as_they_come() -> None:
    go_on = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await start(send, EVENTS)
        await piece(send, b"data: 1\n\n")
        await go_on.wait()
        await piece(send, b"data: 2\n\n")
        await piece(send, b"", more=False)

    answered = await forward(app, {}, call())
    assert answered.pieces is not None
    assert await anext(answered.pieces) == b"data: 1\n\n"
    go_on.set()
    assert [part async for part in answered.pieces] == [b"data: 2\n\n"]


async def test_an_application_is_no_further_ahead_than_a_few_events() -> None:
    sent = 0

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal sent
        await start(send, EVENTS)
        for sent in range(1, 1001):  # noqa: B007
            await piece(send, b"data: x\n\n")
        await piece(send, b"", more=False)

    answered = await forward(app, {}, call())
    assert answered.pieces is not None
    for _ in range(20):
        await asyncio.sleep(0)
    assert sent < 100
    assert len(b"".join([part async for part in answered.pieces])) == 9000


@pytest.mark.case("runtimes-I2")
@pytest.mark.parametrize("headers", [JSON, EVENTS])
async def test_an_application_is_told_of_a_client_that_left(headers: list[tuple[bytes, bytes]]) -> None:
    told = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if headers is EVENTS:
            await start(send, EVENTS)
            await piece(send, b"data: 1\n\n")
        assert await receive() == {"type": "http.disconnect"}
        told.set()

    async def client() -> None:
        answered = await forward(app, {}, call())
        assert answered.pieces is not None
        async with contextlib.aclosing(answered.pieces):
            async for _ in answered.pieces:
                await asyncio.Event().wait()

    asking = asyncio.create_task(client())
    for _ in range(10):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    async with asyncio.timeout(5):
        await told.wait()


@pytest.mark.parametrize("begins", [False, True])
async def test_what_the_application_raises_is_raised(begins: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begins:
            await start(send, EVENTS)
            await piece(send, b"data: 1\n\n")
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        answered = await forward(app, {}, call())
        assert answered.pieces is not None
        assert [part async for part in answered.pieces]


async def test_an_application_that_answers_nothing_is_an_error() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        pass

    with pytest.raises(RuntimeError, match="without an answer"):
        await forward(app, {}, call())
