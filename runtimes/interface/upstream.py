"""An engine that is an HTTP application, made into one that is called.

Owns what becomes of another application's answer: which of its headers pass, null for NaN, an error's shape. Leaves the
transport to the engine. One idea: bytes are passed on as they are, and looked into only where a search for a few of
them says that a rule applies.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import cast

from runtimes.interface import threads
from runtimes.interface.engine import EVENTS, JSON, About, Call, CalledEngine, Header, Reply, UpstreamEngine
from runtimes.interface.finite import finite, is_finite
from runtimes.interface.refusals import reworded
from runtimes.interface.sse import Whole

# What belongs to one connection, and what every answer of ours has anyway.
_OURS = frozenset(
    {
        b"cache-control",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"date",
        b"keep-alive",
        b"server",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"vary",
        b"x-accel-buffering",
        b"x-request-id",
    }
)


def called(engine: CalledEngine | UpstreamEngine) -> CalledEngine:
    """The engine as one that is called, whichever of the two it is."""
    if hasattr(engine, "forward"):
        return Upstream(cast(UpstreamEngine, engine))
    return engine


class Upstream:
    """The interface's side of an engine that forwards."""

    def __init__(self, engine: UpstreamEngine) -> None:
        self._engine = engine
        self.failed: asyncio.Future[str] = engine.failed

    @property
    def about(self) -> About | None:
        return self._engine.about

    @property
    def ready(self) -> bool:
        return self._engine.ready

    @property
    def live(self) -> bool:
        return self._engine.live

    async def start(self) -> None:
        await self._engine.start()

    async def stop(self) -> None:
        await self._engine.stop()

    async def answer(self, call: Call) -> Reply:
        """What the application answered, as the interface would have it."""
        forwarded = await self._engine.forward(call)
        if not 200 <= forwarded.status < 300:
            if forwarded.pieces is not None:
                await forwarded.pieces.aclose()
            raise reworded(forwarded.status, forwarded.body, call.body)
        content_type = next((value for name, value in forwarded.headers if name == b"content-type"), JSON)
        reply = Reply(content_type=content_type, headers=_passed(forwarded.headers), status=forwarded.status)
        if forwarded.pieces is not None:
            reply.pieces = _finite_events(forwarded.pieces, reply)
        elif content_type.startswith((JSON, EVENTS)):
            reply.body, reply.non_finite = await _finite(forwarded.body)
        else:
            reply.body = forwarded.body
        return reply


def _passed(headers: Sequence[Header]) -> list[Header]:
    return [header for header in headers if header[0] not in _OURS]


async def _finite(body: bytes) -> tuple[bytes, int]:
    if len(body) < threads.FROM_BYTES or is_finite(body):
        return finite(body)
    return await threads.run(finite, body)


async def _finite_events(pieces: AsyncGenerator[bytes, None], reply: Reply) -> AsyncGenerator[bytes, None]:
    whole = Whole()
    try:
        async for piece in pieces:
            if events := whole.feed(piece):
                events, count = finite(events)
                reply.non_finite += count
                yield events
        if rest := whole.rest():
            yield finite(rest)[0]
    finally:
        await pieces.aclose()
