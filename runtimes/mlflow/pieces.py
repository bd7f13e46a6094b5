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

from runtimes.mlflow.errors import PREDICTOR_DIED, RefusedError
from runtimes.mlflow.frames import Frame, Kind
from runtimes.mlflow.pipe import AHEAD


class PredictorDiedError(Exception):
    """The process ended, or was ended, before it answered."""


Outcome = Frame | PredictorDiedError
Done = Callable[[Outcome], None]


class Pieces(AsyncGenerator[bytes, None]):
    """The pieces of one call; ``told`` learns how many were taken, or None where nobody wants the rest."""

    def __init__(self) -> None:
        self.told: Callable[[int | None], None] = lambda more: None
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._taken = 0
        self._over = False
        self._outcome: Outcome | None = None

    def put(self, piece: bytes) -> None:
        """One piece has arrived."""
        self._waiting.append(piece)
        self._news.set()

    def end(self, outcome: Outcome) -> None:
        """The call is over."""
        self._outcome = outcome
        self._news.set()

    def give_up(self) -> None:
        """Nobody wants the rest."""
        self._over = True
        self._waiting.clear()
        self.told(None)

    async def ready(self) -> None:
        """Wait for the first piece or the end; what the model refused before its first piece is raised here."""
        while not self._waiting and self._outcome is None:
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
            self.told(self._taken)
            self._taken = 0
        return self._waiting.popleft()

    async def athrow(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> bytes:
        """Give the rest up."""
        self.give_up()
        raise typ if val is None else val

    async def _next_news(self) -> None:
        self._news.clear()
        if not self._waiting and self._outcome is None:
            await self._news.wait()

    def _check(self) -> None:
        outcome = self._outcome
        if isinstance(outcome, PredictorDiedError):
            raise RefusedError(500, PREDICTOR_DIED)
        if outcome is not None and outcome.kind is Kind.REFUSAL:
            raise RefusedError(outcome.head["status"], outcome.head["message"], outcome.head.get("field"))
