"""A lean HTTP/1.1 client for one address: the engine beside us.

Owns its connections, kept alive and bounded by what is in flight, and reading an answer whole or as it comes. Leaves
what it means to upstream. One idea: a plain answer wakes the task that waits for it once, when it is complete; a
stream wakes it for each piece, and stops reading where the client is slower than the engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from functools import lru_cache
from typing import cast
from urllib.parse import quote

import httptools

from runtimes.interface.engine import EVENTS, Call, Forwarded, Header
from runtimes.interface.errors import PREDICTOR_DIED, RefusedError

_IDLE_S = 2.0  # a server closes an idle connection after 5 s or more; closing it first means never meeting that
_MOST_WAITING_BYTES = 256 * 1024  # of a stream, read ahead of its client
_ONE_WRITE_BYTES = 64 * 1024
_OURS = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"x-request-id",
    }
)

_log = logging.getLogger("runtimes.interface.loopback")


class EngineGoneError(RefusedError):
    """The engine closed the connection, or said something that is not HTTP, before its answer was complete."""

    def __init__(self, reason: str) -> None:
        super().__init__(500, PREDICTOR_DIED)
        _log.error("the engine did not answer", extra={"reason": reason})


class Loopback:
    """The client; ``most_bytes`` is the longest answer that is not a stream."""

    def __init__(self, host: str, port: int, most_bytes: int) -> None:
        self._address = (host, port)
        self._host = f"{host}:{port}".encode()
        self._most_bytes = most_bytes
        self._idle: list[_Connection] = []

    async def forward(self, call: Call) -> Forwarded:
        """The engine's answer to a call. Cancelled, or its pieces closed, it closes its connection at once."""
        connection = self._kept() or await self._opened()
        try:
            answered = connection.ask(self._head(call), call.body)
            await answered
        except BaseException:
            connection.close()
            raise
        if connection.streams:
            return Forwarded(connection.status, connection.headers, pieces=self._pieces(connection))
        forwarded = Forwarded(connection.status, connection.headers, connection.taken())
        self._keep(connection)
        return forwarded

    async def forward_to_the_end(self, call: Call, over: Callable[[], None]) -> Forwarded:
        """The same in front of an engine that does not notice who leaves: cancelled, the question runs on.

        ``over`` is called once the engine is done with it, whatever came of it. Not for streams.
        """
        connection: _Connection | None = None
        try:
            connection = self._kept() or await self._opened()
            await connection.ask(self._head(call), call.body)
        except asyncio.CancelledError:
            if connection is None:
                over()
            else:
                connection.abandon(over)
            raise
        except BaseException:
            if connection is not None:
                connection.close()
            over()
            raise
        over()
        forwarded = Forwarded(connection.status, connection.headers, connection.taken())
        self._keep(connection)
        return forwarded

    def close(self) -> None:
        """Close what is idle; what is in use ends with its request."""
        while self._idle:
            self._idle.pop().close()

    async def _pieces(self, connection: _Connection) -> AsyncGenerator[bytes, None]:
        try:
            while True:
                if piece := connection.taken():
                    yield piece
                elif connection.complete:
                    break
                else:
                    await connection.more()
        except BaseException:
            connection.close()
            raise
        self._keep(connection)

    async def _opened(self) -> _Connection:
        make = lambda: _Connection(self._most_bytes)  # noqa: E731
        try:
            _, protocol = await asyncio.get_running_loop().create_connection(make, *self._address)
        except OSError:
            raise RefusedError(503, "the engine takes no connections now") from None
        return protocol

    def _kept(self) -> _Connection | None:
        if not self._idle:
            return None
        connection = self._idle.pop()
        if connection.open and time.perf_counter() - connection.idle_since_s < _IDLE_S:
            return connection
        connection.close()
        self.close()  # all others have been idle for longer
        return None

    def _keep(self, connection: _Connection) -> None:
        if connection.keeps_alive:
            connection.idle_since_s = time.perf_counter()
            self._idle.append(connection)
        else:
            connection.close()

    def _head(self, call: Call) -> bytes:
        query = b"?" + call.query if call.query else b""
        method = b"GET" if call.method == "HEAD" else call.method.encode()  # our own server leaves out the body
        lines = [
            b"%b %b%b HTTP/1.1\r\nhost: %b\r\nx-request-id: %b\r\ncontent-length: %d"
            % (method, _quoted(call.path), query, self._host, call.request_id.encode(), len(call.body))
        ]
        lines += [name + b": " + value for name, value in call.headers if name not in _OURS]
        return b"\r\n".join(lines) + b"\r\n\r\n"


class _Connection(asyncio.Protocol):
    """One connection, and the one answer that is on its way over it."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] | None = None
        self._parts: list[bytes] = []
        self._held = 0
        self._paused = False
        self._error: Exception | None = None
        self.open = False
        self.complete = True
        self.streams = False
        self.keeps_alive = False
        self.status = 0
        self.headers: list[Header] = []
        self.idle_since_s = 0.0

    def ask(self, head: bytes, body: bytes) -> asyncio.Future[None]:
        """Send a request; done once its answer is complete, or has begun where it streams."""
        transport = self._transport
        if transport is None or not self.open:
            raise EngineGoneError("the connection is closed")
        self.complete = self.streams = False
        self.headers = []
        self._answered = transport_future = asyncio.get_running_loop().create_future()
        if len(body) < _ONE_WRITE_BYTES:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return transport_future

    def abandon(self, over: Callable[[], None]) -> None:
        """Nobody wants the answer any more; ``over`` is called when it is there, or will not come."""

        def ended(future: asyncio.Future[None]) -> None:
            future.exception()  # seen
            self.close()
            over()

        self._answered = future = asyncio.get_running_loop().create_future()
        future.add_done_callback(ended)
        if self.complete or not self.open:
            future.set_result(None)

    def more(self) -> asyncio.Future[None]:
        """Done once a stream has said more, or has ended."""
        self._answered = future = asyncio.get_running_loop().create_future()
        if self._error is not None:
            future.set_exception(self._error)
        return future

    def taken(self) -> bytes:
        """What came of the body since the last time."""
        parts = self._parts
        if not parts:
            return b""
        self._parts, self._held = [], 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    # What the event loop tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._fail(EngineGoneError("the engine said something that is not HTTP"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = self.keeps_alive = False
        if not self.complete:
            if self.status and not any(name in (b"content-length", b"transfer-encoding") for name, _ in self.headers):
                self._end()  # such a body ends with its connection
            else:
                self._fail(EngineGoneError("the engine closed the connection before it had answered"))

    # What the parser tells.

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        self.keeps_alive = bool(self._parser.should_keep_alive())
        events = any(name == b"content-type" and value.startswith(EVENTS) for name, value in self.headers)
        self.streams = events and self.status < 300  # an error is read whole, whatever it calls itself
        if self.streams:
            self._wake()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)
        self._held += len(body)
        if self.streams:
            self._wake()
            if self._held > _MOST_WAITING_BYTES and not self._paused and self._transport is not None:
                self._paused = True
                self._transport.pause_reading()
        elif self._held > self._most_bytes:
            self._fail(RefusedError(500, f"the model's answer is larger than {self._most_bytes} bytes"))

    def on_message_complete(self) -> None:
        if self.status < 200:
            self.headers = []  # of an interim answer
        else:
            self._end()

    def _end(self) -> None:
        self.complete = True
        self._wake()

    def _wake(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = error
        self.close()
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)


@lru_cache(maxsize=256)
def _quoted(path: str) -> bytes:
    return quote(path, safe="/:@!$&'()*+,;=-._~").encode()
