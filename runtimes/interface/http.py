"""HTTP on one connection: uvicorn's protocol, with less to do for a short answer.

Owns what differs from uvicorn's: our words for what is not HTTP, and no work that a request of a millisecond would pay
for and nobody needs. Leaves parsing and the ASGI cycle to uvicorn. One idea: each system call, timer and turn of the
event loop costs tens of microseconds where a request wakes an idle process, so an answer takes one of each.
"""

from __future__ import annotations

import asyncio
import resource
import select
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from runtimes.interface.app import protocol_error_answer
from runtimes.interface.settings import KEEP_ALIVE_S

LOOK_S = 60.0  # within twice of which something moves on a connection that is not idle
_LOOK_AHEAD_S = 0.25  # the same while nothing is read, since requests that came early wait
MOST_HEAD_BYTES = 64 * 1024  # beside what came in one read; nobody's gateway takes more
MOST_CONNECTIONS = 4096  # four times the requests that a replica takes at once; some 7 KB each while they are idle
_CLOSED_AT_ONCE = 16  # so that who opens thousands does not have all looked through for each
_IDLE_LOOKS, _STUCK_LOOKS = KEEP_ALIVE_S // LOOK_S, 2
_CONTINUE = b"HTTP/1.1 100 "
_HOP = frozenset({b"connection", b"upgrade", b"http2-settings"})
_COPIED_BYTES = 64 * 1024  # a longer body is not copied to save one system call


class HttpProtocol(HttpToolsProtocol):
    """One connection. It is looked at once a minute, not timed for each request: one that is idle is closed after an
    hour, and after minutes where half a head stays half or nobody takes what was answered. Where there are too many,
    those idle for longest are closed for the new ones, so that probes and the gateway always find room."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection stands."""
        super().connection_made(transport)
        self._used_s = self.loop.time()
        if len(self.connections) > _most_connections():
            self._make_room()
        self._joined = Joined(transport)
        self._seen: tuple[Any, int] = (None, 0)  # the last request, and what of answers had not left
        self._still = 0  # looks in a row at which nothing had moved
        self._head_of: Any = None
        self._head_bytes = 0
        self._timer = self.loop.call_later(LOOK_S, self._look)
        self._ahead_timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, and nobody waits any more for what runs: uvicorn tells the last request alone."""
        self._timer.cancel()
        if self._ahead_timer is not None:
            self._ahead_timer.cancel()
        self.pipeline.clear()
        if self._running is not None:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Some bytes came; a head that goes on and on is refused."""
        came = len(data)
        self._used_s = self.loop.time()
        try:
            while data:
                data = self._fed(data)
        except httptools.HttpParserError:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response("")
            return
        if not self._in_head:
            return
        if self.scope is not self._head_of:
            self._head_of, self._head_bytes = self.scope, 0
            return
        self._head_bytes += came
        if self._head_bytes > MOST_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("")

    def _fed(self, data: bytes) -> bytes:
        """What is to be fed next: the parser takes no body behind a head that asks for another protocol, and would
        take it for the next request, so such a head is fed once more without that wish, which is nobody's duty."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            method = self.parser.get_method()
            if method == b"CONNECT":
                raise httptools.HttpParserError("no proxy is here") from None
            lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
            lines += [name + b": " + value for name, value in self.headers if name not in _HOP]
            connection = b",".join(value.lower() for name, value in self.headers if name == b"connection")
            lines += [b"connection: close"] if b"close" in connection else []
            self.parser = httptools.HttpRequestParser(self)  # the other one may have come to its end
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            return b"\r\n".join(lines) + b"\r\n\r\n" + data[upgrade.args[0] :]
        return b""

    def on_headers_complete(self) -> None:
        """A request may begin, unless its head comes again."""
        if self.parser.should_upgrade():
            return
        super().on_headers_complete()
        if self.pipeline and self._ahead_timer is None:
            self._ahead_timer = self.loop.call_later(_LOOK_AHEAD_S, self._look_ahead)

    def on_message_complete(self) -> None:
        """It is whole."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    @property
    def _in_head(self) -> bool:
        return self.scope is not None and (self.cycle is None or self.cycle.scope is not self.scope)

    @property
    def _runs(self) -> bool:
        answers = self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing()
        return answers or self.transport.get_write_buffer_size() > 0

    def _make_room(self) -> None:
        idle = [other for other in self.connections if isinstance(other, HttpProtocol) and not other._runs]
        idle.remove(self)
        idle.sort(key=lambda other: other._used_s)
        for other in idle[:_CLOSED_AT_ONCE]:
            self.connections.discard(other)
            other.transport.close()
        if not idle:
            self.transport.write(protocol_error_answer(503, "all connections of this replica are in use"))
            self.transport.close()

    def _look(self) -> None:
        seen = self.scope, self.transport.get_write_buffer_size()
        same = seen[0] is self._seen[0] and seen[1] == self._seen[1]
        self._still = self._still + 1 if same and (seen[1] or not self._runs) else 0
        self._seen = seen
        at_rest = not self._in_head and not seen[1] and not self.transport.is_closing()
        if self._still >= (_IDLE_LOOKS if at_rest else _STUCK_LOOKS):
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(LOOK_S, self._look)

    def _look_ahead(self) -> None:
        """Where nothing is read, the end of the connection is not read either: the socket is asked for it."""
        self._ahead_timer = None
        if not self.pipeline or self.transport.is_closing():
            return
        if _hung_up(self.transport.get_extra_info("socket").fileno()):
            self.transport.abort()
        else:
            self._ahead_timer = self.loop.call_later(_LOOK_AHEAD_S, self._look_ahead)

    def send_400_response(self, msg: str) -> None:
        """The answer to what is not HTTP."""
        self.transport.write(protocol_error_answer(400, "this is not a valid HTTP request"))
        self.transport.close()

    def on_response_complete(self) -> None:
        """The next request of the connection may begin; uvicorn would set a timer for an idle connection here."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        if cycle.scope["method"] != "HEAD":  # whose answer has a head alone
            self._joined.begin()
            cycle.transport = self._joined  # type: ignore[assignment]
        self._running = cycle
        self.tasks.add(self.loop.create_task(self._run(cycle, app)))

    async def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        try:
            await cycle.run_asgi(app)
        finally:
            self.tasks.discard(asyncio.current_task())


def _most_connections() -> int:
    """Half of the files that the process may open are for others: an engine's connections, a model's files."""
    return min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


def _hung_up(descriptor: int) -> bool:
    """Whether the peer sends nothing any more, whatever of it has not been read."""
    poll = select.poll()
    poll.register(descriptor, getattr(select, "POLLRDHUP", select.POLLHUP))
    return bool(poll.poll(0))


class Joined:
    """A transport on which the head of an answer leaves together with the first of its body."""

    __slots__ = ("_head", "_holds", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._holds = False
        self._head = b""

    def begin(self) -> None:
        """What is written next is an answer's head."""
        self._holds = True

    def write(self, data: bytes | memoryview) -> None:
        """Send this, now or with what follows."""
        if self._holds and not bytes(data).startswith(_CONTINUE):
            self._holds, self._head = False, bytes(data)
            return
        if self._head:
            head, self._head = self._head, b""
            if len(data) <= _COPIED_BYTES:
                data = b"".join((head, data))
            else:
                self._transport.write(head)
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        """Send what was held, then the end."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""
        self._transport.close()
