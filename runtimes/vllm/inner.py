"""An ASGI application in this process, asked as an upstream.

Owns handing it a request and taking its answer, whole or event by event, and telling it when nobody wants the answer
any more. Leaves what it says to whoever asks. One idea: it runs in a task of its own, for an application that is told
of a client that left ends what it started, and one that is only cancelled may not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

from runtimes.interface.engine import EVENTS, Call, Forwarded, Header, Message, Receive, Scope, Send

Application = Callable[[Scope, Receive, Send], Awaitable[None]]
_END_S = 5.0  # that an application has to end a request once it is told that its client left
_MOST_WAITING = 64  # events that an application may be ahead of its client
_OURS = frozenset(
    {
        b"accept-encoding",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"transfer-encoding",
        b"x-request-id",
    }
)
_abandoned: set[asyncio.Task[None]] = set()


async def forward(app: Application, fixed: Mapping[str, Any], call: Call) -> Forwarded:
    """The application's answer; ``fixed`` is what else of the scope it wants."""
    asked = _Asked(call.body)
    asked.task = asyncio.create_task(_run(app, _scope(call, fixed), asked))
    streams = False
    try:
        await asked.next()
        headers = asked.headers
        events = any(name == b"content-type" and value.startswith(EVENTS) for name, value in headers)
        streams = asked.more and events and asked.status < 300  # an error is read whole, whatever it calls itself
        if streams:
            return Forwarded(asked.status, headers, pieces=asked.pieces())
        parts = [asked.taken()]
        while asked.more:
            await asked.next()
            parts.append(asked.taken())
        return Forwarded(asked.status, headers, b"".join(parts))
    finally:
        if not streams:
            asked.leave()


class _Asked:
    """One request to the application and what it has answered so far."""

    __slots__ = ("_body", "_left", "_room", "_said", "_waiting", "error", "headers", "more", "status", "task")

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._left = asyncio.Event()
        self._said = asyncio.Event()
        self._room = asyncio.Event()
        self._waiting: deque[bytes] = deque()
        self.task: asyncio.Task[None] | None = None
        self.status = 0
        self.headers: list[Header] = []
        self.more = True
        self.error: Exception | None = None

    # The application's side.

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
            return  # the first piece of its body comes at once, and says whether more follows
        if message["type"] != "http.response.body":
            return
        while len(self._waiting) >= _MOST_WAITING and not self._left.is_set():
            self._room.clear()
            await self._room.wait()
        if body := message.get("body", b""):
            self._waiting.append(body)
        self.more = bool(message.get("more_body"))
        self._said.set()

    def ended(self) -> None:
        """The application returned."""
        self.more = False
        self._said.set()

    # The asking side.

    async def next(self) -> None:
        """Wait until the application said more than was known; raises what it raised."""
        await self._said.wait()
        self._said.clear()
        if self.error is not None:
            raise self.error
        if not self.status:
            raise RuntimeError("the application returned without an answer")

    def taken(self) -> bytes:
        """What it said since the last time."""
        piece = b"".join(self._waiting)
        self._waiting.clear()
        self._room.set()
        return piece

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Its answer as it comes."""
        try:
            while True:
                if piece := self.taken():
                    yield piece
                elif self.more:
                    await self.next()
                else:
                    return
        finally:
            self.leave()

    def leave(self) -> None:
        """Nobody wants more: an application that is not done is told, and cancelled if it does not end."""
        self._left.set()
        self._room.set()
        task = self.task
        if task is not None and not task.done():
            _abandoned.add(task)
            task.add_done_callback(_abandoned.discard)
            timer = task.get_loop().call_later(_END_S, task.cancel)
            task.add_done_callback(lambda _: timer.cancel())


async def _run(app: Application, scope: Scope, asked: _Asked) -> None:
    try:
        await app(scope, asked.receive, asked.send)
    except Exception as error:
        asked.error = error
    finally:
        asked.ended()


def _scope(call: Call, fixed: Mapping[str, Any]) -> Scope:
    headers = [header for header in call.headers if header[0] not in _OURS]
    headers.append((b"x-request-id", call.request_id.encode()))
    headers.append((b"content-length", b"%d" % len(call.body)))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": call.path,
        "raw_path": call.path.encode(),
        "root_path": "",
        "query_string": call.query,
        "headers": headers,
        "client": None,
        "server": None,
        **fixed,
    }
