"""A client that speaks ASGI to the interface without a socket, and engines to put behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtimes.interface.app import Interface
from runtimes.interface.engine import About, Call, Message, Reply
from runtimes.interface.hooks import Hook
from runtimes.interface.metrics import Metrics
from runtimes.interface.routes import OPENAI_PATHS
from runtimes.interface.settings import Settings

JSON = {"content-type": "application/json"}
EVERYTHING = frozenset({"/invocations", "/v2", *OPENAI_PATHS})


@dataclass
class Answer:
    """What a client got; ``status`` is 0 where nothing came."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    ended: bool = False

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Engine:
    """An engine that answers what ``does`` returns for a call."""

    def __init__(self, does: Callable[[Call], Awaitable[Reply]] | None = None, **about: Any) -> None:
        self._does = does
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        known = {"name": "wine", "version": "7", "platform": "p", "engine_version": "3.17.2", "paths": EVERYTHING}
        self.about: About | None = About(**known | about)
        self.ready = self.live = True
        self.calls: list[Call] = []

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def answer(self, call: Call) -> Reply:
        self.calls.append(call)
        return await self._does(call) if self._does is not None else Reply(b'{"predictions": [1]}')


def interface(engine: Any, hooks: Sequence[Hook] = (), **settings: Any) -> Interface:
    """The interface in front of an engine."""
    own = Settings(**{"name": "wine", "version": "7"} | settings)
    return Interface(own, engine, Metrics(own.name, own.version), hooks)


class Client:
    """One request, whose client may leave."""

    def __init__(self, parts: Sequence[bytes], reads_nothing: bool = False) -> None:
        self.reads_nothing = reads_nothing
        last = len(parts) - 1
        self._messages: list[Message] = [
            {"type": "http.request", "body": part, "more_body": i < last} for i, part in enumerate(parts)
        ]
        self.left = asyncio.Event()
        self.began = asyncio.Event()  # the first of the answer's body has come
        self.answer = Answer()
        self.read = 0

    async def receive(self) -> Message:
        if self._messages:
            self.read += 1
            return self._messages.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            assert not self.answer.status, "a second answer"
            self.answer.status = message["status"]
            self.answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            assert self.answer.status, "a body before its head"
            if message["body"]:
                self.answer.pieces.append(message["body"])
                self.began.set()
                if self.reads_nothing:
                    await asyncio.Event().wait()
            self.answer.ended = not message.get("more_body")


async def ask(
    app: Interface,
    method: str,
    path: str,
    body: bytes | Sequence[bytes] = b"",
    headers: Mapping[str, str] | None = None,
    client: Client | None = None,
) -> Answer:
    """Ask, and wait for the end."""
    parts = [body] if isinstance(body, bytes) else body
    client = client or Client(parts)
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    await app(scope, client.receive, client.send)
    return client.answer


async def post(
    app: Interface, body: bytes | Sequence[bytes] = b"{}", path: str = "/invocations", **headers: str
) -> Answer:
    """A prediction."""
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(app, "POST", path, body, JSON | own)
