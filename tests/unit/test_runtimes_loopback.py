"""The client for the engine beside us, against servers that say exactly these bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import cast

import pytest

from runtimes.interface.engine import Api, Call
from runtimes.interface.errors import RefusedError
from runtimes.interface.loopback import EngineGoneError, Loopback

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX-Own: 1\r\n\r\nok"
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def call(body: bytes = b"{}", **changed: object) -> Call:
    one = Call("r1", Api.MLFLOW, "json", body, 0.0)
    for name, value in changed.items():
        setattr(one, name, value)
    return one


@contextlib.asynccontextmanager
async def serving(handler: Handler, most_bytes: int = 1 << 20) -> AsyncIterator[Loopback]:
    running: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.add(cast(asyncio.Task[None], asyncio.current_task()))
        with contextlib.suppress(asyncio.CancelledError):
            await handler(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Loopback("127.0.0.1", server.sockets[0].getsockname()[1], most_bytes)
    try:
        yield client
    finally:
        client.close()
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class Says:
    """Answers each request with the next of these, and keeps what was asked and over how many connections."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.asked: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while self._answers:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.asked.append(head + await reader.readexactly(length))
                answer = self._answers.pop(0)
                writer.write(answer)
                if b"close" in answer or b"length" not in answer:
                    break
            else:
                await reader.read()


async def test_a_request_goes_on_with_its_headers_but_those_of_its_connection() -> None:
    says = Says(OK)
    headers = [(b"content-type", b"text/csv"), (b"x-own", b"1"), (b"host", b"a"), (b"connection", b"close")]
    headers += [(b"content-encoding", b"gzip"), (b"x-request-id", b"theirs"), (b"content-length", b"99")]
    async with serving(says) as client:
        answer = await client.forward(call(b"body", path="/v2/models/a b", query=b"x=1", headers=headers))
    (asked,) = says.asked
    line, *lines = asked.split(b"\r\n\r\n")[0].split(b"\r\n")
    names = sorted(each.split(b":")[0] for each in lines)
    assert line == b"POST /v2/models/a%20b?x=1 HTTP/1.1"
    assert names == [b"content-length", b"content-type", b"host", b"x-own", b"x-request-id"]
    assert asked.endswith(b"\r\n\r\nbody")
    assert b"x-request-id: r1" in lines
    assert (answer.status, answer.body, (b"x-own", b"1") in answer.headers) == (200, b"ok", True)


async def test_a_connection_is_used_again_and_none_that_its_server_closes() -> None:
    says = Says(OK, OK, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", OK)
    async with serving(says) as client:
        bodies = [(await client.forward(call())).body for _ in range(4)]
    assert (bodies, says.connections) == ([b"ok", b"ok", b"", b"ok"], 2)


async def test_calls_at_once_have_connections_of_their_own() -> None:
    gate = asyncio.Barrier(3)

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        await gate.wait()
        writer.write(OK)
        await reader.read()

    async with serving(handler) as client:
        answers = await asyncio.gather(*(client.forward(call()) for _ in range(3)))
    assert [answer.body for answer in answers] == [b"ok"] * 3


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"o") + chunk(b"k") + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK,
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ],
)
async def test_a_body_is_whole_however_its_end_is_told(answer: bytes) -> None:
    async with serving(Says(answer)) as client:
        got = await client.forward(call())
    assert (got.status, got.body) == (200, b"ok")


@pytest.mark.case("runtimes-G7")
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok", b"SSH-2.0-x\r\n\r\n"])
async def test_an_engine_that_ends_before_its_answer_does_is_one_500(said: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(said)

    async with serving(handler) as client:
        with pytest.raises(EngineGoneError) as caught:
            await client.forward(call())
    assert caught.value.status == 500


async def test_an_engine_that_takes_no_connections_is_503() -> None:
    async with serving(Says()) as client:
        pass
    with pytest.raises(RefusedError) as caught:
        await client.forward(call())
    assert caught.value.status == 503


async def test_an_answer_above_the_limit_is_not_held() -> None:
    long = b"HTTP/1.1 200 OK\r\ncontent-length: 3000\r\n\r\n" + bytes(3000)
    async with serving(Says(long), most_bytes=1000) as client:
        with pytest.raises(RefusedError, match="larger than 1000"):
            await client.forward(call())


async def test_a_large_body_arrives_whole() -> None:
    says = Says(OK)
    async with serving(says) as client:
        await client.forward(call(bytes(300_000)))
    assert len(says.asked[0].split(b"\r\n\r\n", 1)[1]) == 300_000


# Streams.


async def test_a_stream_comes_piece_by_piece_and_its_connection_is_used_again() -> None:
    more = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(EVENTS + chunk(b"data: 1\n\n"))
        await more.wait()
        writer.write(chunk(b"data: 2\n\n") + b"0\r\n\r\n")
        await reader.readuntil(b"{}")
        writer.write(OK)

    async with serving(handler) as client:
        answer = await client.forward(call())
        assert answer.pieces is not None
        assert await anext(answer.pieces) == b"data: 1\n\n"
        more.set()
        assert [piece async for piece in answer.pieces] == [b"data: 2\n\n"]
        assert (await client.forward(call())).body == b"ok"


async def test_an_error_is_whole_even_where_it_calls_itself_a_stream() -> None:
    error = EVENTS.replace(b"200 OK", b"400 Bad Request") + chunk(b"data: no") + b"0\r\n\r\n"
    async with serving(Says(error, OK)) as client:
        answer = await client.forward(call())
        assert (answer.status, answer.body, answer.pieces) == (400, b"data: no", None)


async def test_a_stream_that_breaks_off_raises_after_what_came() -> None:
    async with serving(Says(EVENTS + chunk(b"data: 1\n\n"))) as client:
        answer = await client.forward(call())
        assert answer.pieces is not None
        assert await anext(answer.pieces) == b"data: 1\n\n"
        with pytest.raises(EngineGoneError):
            await anext(answer.pieces)


@pytest.mark.case("runtimes-I2")
@pytest.mark.parametrize("streams", [True, False])
async def test_who_wants_no_more_closes_the_connection(streams: bool) -> None:
    asked, left = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        asked.set()
        if streams:
            writer.write(EVENTS + chunk(b"data: 1\n\n"))
        with contextlib.suppress(ConnectionError):
            await reader.read()
        left.set()

    async with serving(handler) as client:
        asking = asyncio.create_task(client.forward(call()))
        await asked.wait()
        if streams:
            pieces = (await asking).pieces
            assert pieces is not None
            await anext(pieces)
            await pieces.aclose()
        else:
            asking.cancel()
        await left.wait()


@pytest.mark.parametrize("ending", [OK, b"not HTTP", b""])
async def test_a_question_that_nobody_waits_for_runs_to_its_end_and_says_when_that_is(ending: bytes) -> None:
    asked, go_on, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def takes_its_time(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n{}")
        asked.set()
        await go_on.wait()
        assert not reader.at_eof()
        writer.write(ending)
        await writer.drain()

    async with serving(takes_its_time) as client:
        asking = asyncio.create_task(client.forward_to_the_end(call(), over.set))
        await asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        assert not over.is_set()
        go_on.set()
        await asyncio.wait_for(over.wait(), 10)


async def test_a_question_is_over_once_and_for_whoever_waits_with_its_answer() -> None:
    ends: list[str] = []
    says = Says(OK, OK)
    async with serving(says) as client:
        for name in ("first", "second"):
            found = await client.forward_to_the_end(call(), partial(ends.append, name))
            assert (found.status, found.body) == (200, b"ok")
    assert (ends, says.connections) == (["first", "second"], 1)


async def test_a_question_that_can_not_be_asked_is_over_too() -> None:
    ends: list[str] = []

    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None: ...

    async with serving(closes) as client:
        with pytest.raises(EngineGoneError):
            await client.forward_to_the_end(call(), partial(ends.append, "closed at once"))
    with pytest.raises(RefusedError):
        await client.forward_to_the_end(call(), partial(ends.append, "nobody listens"))
    assert ends == ["closed at once", "nobody listens"]


async def test_a_slow_client_stops_the_engine_and_not_the_memory() -> None:
    stuck = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(EVENTS)
        with contextlib.suppress(TimeoutError):
            for _ in range(500):
                writer.write(chunk(bytes(1 << 16)))
                async with asyncio.timeout(0.2):
                    await writer.drain()
        stuck.set()
        await reader.read()

    async with serving(handler) as client:
        pieces = (await client.forward(call())).pieces
        assert pieces is not None
        await anext(pieces)
        await stuck.wait()
        assert len(await anext(pieces)) < 1 << 20
        assert len(await anext(pieces)) > 0
        await pieces.aclose()
