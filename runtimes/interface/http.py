"""HTTP on one connection: uvicorn's protocol, with less to do for a short answer.

Owns what differs from uvicorn's: our words for what is not HTTP, and no work that a request of a millisecond would pay
for and nobody needs. Leaves parsing and the ASGI cycle to uvicorn. One idea: each system call, timer and turn of the
event loop costs tens of microseconds where a request wakes an idle process, so an answer takes one of each.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from runtimes.interface.app import protocol_error_answer

_CONTINUE = b"HTTP/1.1 100 "
_COPIED_BYTES = 64 * 1024  # a longer body is not copied to save one system call


class HttpProtocol(HttpToolsProtocol):
    """One connection. It is never closed because it is idle: the kernel finds out whether the peer is still there."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The connection stands."""
        super().connection_made(transport)
        self._joined = Joined(transport)

    def send_400_response(self, msg: str) -> None:
        """The answer to what is not HTTP."""
        self.transport.write(protocol_error_answer())
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
        self.tasks.add(self.loop.create_task(self._run(cycle, app)))

    async def _run(self, cycle: RequestResponseCycle, app: Any) -> None:
        try:
            await cycle.run_asgi(app)
        finally:
            self.tasks.discard(asyncio.current_task())


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
