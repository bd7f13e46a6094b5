"""A streamed answer on its way from a predictor to whoever reads it.

Owns the order of its pieces, its end and how it is given up; leaves sending to predictor. One idea: it can be given up
before anybody has asked for its first piece, which a generator function could not.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Any

from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.frames import Frame, Kind
from runtimes.mlflow.pipe import AHEAD


class Pieces(AsyncGenerator[bytes, None]):
    """The pieces of one call; ``told`` learns how many were taken, or None where nobody wants the rest."""

    def __init__(self, ended: asyncio.Future[Frame], told: Callable[[int | None], None]) -> None:
        self._told = told
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._taken = 0
        self._over = False
        self.ended = ended

    def put(self, piece: bytes) -> None:
        """One piece has arrived."""
        self._waiting.append(piece)
        self._news.set()

    def end(self) -> None:
        """The call is over; its outcome is in the future."""
        self._news.set()

    async def ready(self) -> None:
        """Wait for the first piece or the end; what the model refused before its first piece is raised here."""
        while not self._waiting and not self.ended.done():
            await self._next_news()
        if not self._waiting:
            self._check()

    async def asend(self, value: None) -> bytes:
        if self._over:
            raise StopAsyncIteration
        await self.ready()
        if not self._waiting:
            self._over = True
            raise StopAsyncIteration
        self._taken += 1
        if self._taken >= AHEAD // 2:
            self._told(self._taken)
            self._taken = 0
        return self._waiting.popleft()

    async def athrow(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> bytes:
        """Give the rest up."""
        self._over = True
        self._waiting.clear()
        self._told(None)
        raise typ if val is None else val

    async def _next_news(self) -> None:
        self._news.clear()
        if not self._waiting and not self.ended.done():
            await self._news.wait()

    def _check(self) -> None:
        frame = self.ended.result()
        if frame.kind is Kind.REFUSAL:
            raise RefusedError(frame.head["status"], frame.head["message"], frame.head.get("field"))
