"""How many requests Triton has at once, and for how long.

Owns the places that a model which is not batched has, and the word that all of them are stuck. One idea: a request that
nobody waits for any more keeps its place until Triton has answered it, for it keeps the model as busy as any other.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")
Ask = Callable[[Callable[[], None]], Awaitable[T]]
"""A question to Triton; what it is given is called once, when Triton is done with it."""


class Running:
    """``places`` requests run, the others wait here, where they can still be given up."""

    def __init__(self, places: int, instances: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._instances = instances
        self._began: dict[int, float] = {}
        self._number = itertools.count()

    async def run(self, ask: Ask[T]) -> T:
        """Ask once there is a place."""
        await self._places.acquire()
        number = next(self._number)
        self._began[number] = time.perf_counter()
        return await ask(partial(self._ended, number))

    def stuck(self, longer_than_s: float) -> bool:
        """Whether as many requests as the model has instances have run for longer."""
        before = time.perf_counter() - longer_than_s
        return sum(began < before for began in self._began.values()) >= self._instances

    def _ended(self, number: int) -> None:
        del self._began[number]
        self._places.release()
