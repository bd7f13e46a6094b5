"""HTTP on one connection, byte for byte, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest
import uvicorn
from uvicorn.server import ServerState

from runtimes.interface import http
from runtimes.interface.engine import Call, Receive, Reply, Scope, Send
from runtimes.interface.http import HttpProtocol, Joined
from tests.unit.runtimes_client import Engine, interface

LARGE = b"x" * 200_000
POST = b"POST /%b HTTP/1.1\r\nhost: pod\r\ncontent-length: 2\r\n%b\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the path and the body; some paths go wrong half way."""
    await asyncio.sleep(0)
    asked, more = b"", True
    while more:
        message = await receive()
        asked, more = asked + message.get("body", b""), message.get("more_body", False)
    if scope["path"] == "/slow":
        await asyncio.sleep(0.1)
    body = {"/large": LARGE, "/huge": LARGE * 100}.get(scope["path"], scope["path"].encode() + asked)
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    if scope["path"] == "/fails":
        raise LookupError("after its head")
    await send({"type": "http.response.body", "body": body})


@contextlib.asynccontextmanager
async def connected(
    app: Any = echo,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter, ServerState]]:
    config = uvicorn.Config(app, interface="asgi3", lifespan="off", ws="none", log_config=None)
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


UPGRADES = (
    b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
    b"connection: upgrade\r\nupgrade: websocket\r\n",
)


@pytest.mark.parametrize("wish", UPGRADES)
@pytest.mark.parametrize("pieces", [1, 2, 100])
async def test_a_wish_for_another_protocol_is_passed_over_and_the_body_stays_a_body(wish: bytes, pieces: int) -> None:
    """Behind a gateway that reuses connections, a body that were taken for a request would answer somebody else."""
    async with connected() as (reader, writer, state):
        sent = (POST % (b"one", wish) + b"ab") * 2 + POST % (b"two", b"") + b"ab"
        size = -(-len(sent) // pieces)
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await asyncio.sleep(0.001)
        assert [await answer(reader) for _ in range(3)] == [b"/oneab", b"/oneab", b"/twoab"]
        assert state.total_requests == 3


async def test_a_body_behind_such_a_wish_is_no_request_even_where_it_looks_like_one() -> None:
    async with connected() as (reader, writer, state):
        hidden = POST % (b"hidden", b"") + b"ab"
        head = b"POST /one HTTP/1.1\r\nhost: pod\r\ncontent-length: %d\r\n%b\r\n" % (len(hidden), UPGRADES[0])
        writer.write(head)
        await asyncio.sleep(0.01)
        writer.write(hidden)
        assert await answer(reader) == b"/one" + hidden
        assert state.total_requests == 1


async def test_who_asks_for_another_protocol_and_for_the_end_gets_the_end() -> None:
    async with connected() as (reader, writer, _):
        writer.write(POST % (b"one", b"connection: close, upgrade\r\nupgrade: h2c\r\n") + b"ab")
        said = await reader.read()
        assert b"connection: close" in said
        assert said.endswith(b"/oneab")


async def test_a_pod_is_no_proxy() -> None:
    async with connected() as (reader, writer, _):
        writer.write(b"CONNECT pod:80 HTTP/1.1\r\nhost: pod\r\n\r\n")
        assert b" 400 " in await reader.read()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are looked at every few milliseconds, and idle ones live for three looks."""
    monkeypatch.setattr(http, "LOOK_S", 0.005)
    monkeypatch.setattr(http, "_IDLE_LOOKS", 3)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("said", [b"", b"GET /one HT", b"GET /one HTTP/1.1\r\nhost: pod\r\nx-slow: "])
async def test_who_says_nothing_or_half_of_it_does_not_keep_the_connection(said: bytes) -> None:
    async with connected() as (reader, writer, state):
        writer.write(said)
        assert await reader.read() == b""
        assert not state.connections


@pytest.mark.usefixtures("quick")
async def test_half_a_head_that_comes_byte_by_byte_does_not_keep_the_connection() -> None:
    async with connected() as (reader, writer, state):

        async def drip() -> None:
            while True:
                writer.write(b"x")
                await asyncio.sleep(0.001)

        writer.write(b"GET /one HTTP/1.1\r\nx-slow: ")
        dripping = asyncio.create_task(drip())
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        dripping.cancel()
        assert not state.connections


@pytest.mark.usefixtures("quick")
async def test_a_connection_that_was_used_is_closed_once_it_has_been_idle_and_never_while_it_answers() -> None:
    async with connected() as (reader, writer, state):
        writer.write(POST % (b"slow", b"") + b"ab")
        assert await answer(reader) == b"/slowab"
        assert await reader.read() == b""
        assert not state.connections


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("next_too", [False, True])
async def test_who_takes_nothing_of_an_answer_does_not_keep_it_in_memory(next_too: bool) -> None:
    async with connected() as (reader, writer, state):
        client = cast(asyncio.Transport, writer.transport)
        client.pause_reading()
        writer.write((POST % (b"huge", b"") + b"ab") * (1 + next_too))
        async with asyncio.timeout(5):
            while not state.total_requests:  # noqa: ASYNC110 - a number has no event
                await asyncio.sleep(0)
            while state.connections or state.tasks:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        client.resume_reading()
        with contextlib.suppress(ConnectionResetError):
            assert len(await reader.read()) < 100 * len(LARGE)


async def test_a_head_without_end_is_refused() -> None:
    async with connected() as (reader, writer, _):
        writer.write(b"GET /one HTTP/1.1\r\nx-long: ")
        for _ in range(64):
            writer.write(b"x" * 8192)
            await asyncio.sleep(0)
        with contextlib.suppress(ConnectionResetError):
            assert b" 400 " in await reader.read()


async def test_a_head_that_comes_in_pieces_is_read() -> None:
    async with connected() as (reader, writer, _):
        for _ in range(2):
            for piece in (b"POST /o", b"ne HTTP/1.1\r\nx-long: ", b"x" * 8192, b"\r\ncontent-length: 2\r\n\r\nab"):
                writer.write(piece)
                await asyncio.sleep(0.001)
            assert await answer(reader) == b"/oneab"


EARLY = POST % (b"invocations", b"content-type: application/json\r\n") + b"{}"
LONG = EARLY.replace(b"length: 2", b"length: %d" % len(LARGE)).removesuffix(b"{}") + LARGE


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([EARLY * 3], id="all at once"),
        pytest.param([EARLY, EARLY, EARLY], id="one after the other"),
        pytest.param([EARLY, LONG, EARLY], id="one that is not read to its end"),
        pytest.param([EARLY * 1000, EARLY], id="more than is read ahead"),
    ],
)
async def test_who_leaves_frees_what_runs_however_many_requests_wait_behind_it(sent: list[bytes]) -> None:
    async def predict(_: Call) -> Reply:
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    began, engine = asyncio.Event(), Engine(predict)
    app = interface(engine)
    async with connected(app) as (_, writer, state):
        for piece in sent:
            writer.write(piece)
            await asyncio.sleep(0.15)  # longer than after which a slow request's client is watched
        await began.wait()
        assert app.state.in_flight == 1
        writer.close()
        async with asyncio.timeout(5):
            await asyncio.gather(*state.tasks)
        assert (app.state.in_flight, len(engine.calls), state.connections) == (0, 1, set())


@contextlib.asynccontextmanager
async def crowded(most: int, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[bytes], Awaitable[Any]]]:
    """A server that has room for so many connections; what opens one and says something."""
    monkeypatch.setattr(http, "MOST_CONNECTIONS", most)
    monkeypatch.setattr(http, "_CLOSED_AT_ONCE", 1)
    async with connected() as (_, first, _), contextlib.AsyncExitStack() as all_of_them:

        async def another(said: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(*first.get_extra_info("peername"))
            all_of_them.callback(writer.close)
            writer.write(said)
            await asyncio.sleep(0.005)
            return reader, writer

        first.close()
        await asyncio.sleep(0.005)
        yield another


async def test_a_connection_whose_answer_has_not_left_is_not_idle_and_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end waits for the answer: who reads none of them had opened any number, beyond the bound."""
    async with crowded(2, monkeypatch) as another:
        unread = [(await another(POST % (b"huge", b"") + b"ab"))[0] for _ in range(2)]
        await asyncio.sleep(0.1)
        refused, _ = await another(b"")
        async with asyncio.timeout(5):
            assert (await refused.read()).startswith(b"HTTP/1.1 503 ")
            assert [await answer(reader) for reader in unread] == [LARGE * 100] * 2


async def test_above_its_bound_the_connection_that_was_idle_for_longest_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with crowded(3, monkeypatch) as another:
        used, half, idle = await another(POST % (b"one", b"") + b"ab"), await another(b"POST /ha"), await another(b"")
        assert await answer(used[0]) == b"/oneab"
        used[1].write(POST % (b"two", b"") + b"ab")
        assert await answer(used[0]) == b"/twoab"
        for closed in (half, idle):
            reader, _ = await another(POST % (b"new", b"") + b"ab")
            assert await answer(reader) == b"/newab"
            assert await closed[0].read() == b""
        used[1].write(POST % (b"three", b"") + b"ab")
        assert await answer(used[0]) == b"/threeab"


async def test_no_connection_is_closed_under_its_request_and_who_finds_no_room_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with crowded(2, monkeypatch) as another:
        busy = [await another(POST % (b"slow", b"") + b"ab") for _ in range(2)]
        reader, _ = await another(POST % (b"new", b"") + b"ab")
        said = await reader.read()
        assert said.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"\r\nretry-after: 1\r\n" in said
        assert b'"all connections of this replica are in use"' in said
        assert [await answer(reader) for reader, _ in busy] == [b"/slowab"] * 2


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
