"""How many requests Triton has at once, and for how long.

Owns the places that a model which is not batched has, and the word that all of them are stuck. One idea: a request that
nobody waits for any more keeps its place until Triton has answered it, for it keeps the model as busy as any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Running:
    """``places`` requests run, the others wait here, where they can still be given up."""

    def __init__(self, places: int, instances: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._instances = instances
        self._began: dict[asyncio.Task[Any], float] = {}

    async def run(self, asked: Coroutine[Any, Any, T]) -> T:
        """Ask once there is a place. A cancelled caller leaves the question to run."""
        try:
            await self._places.acquire()
        except asyncio.CancelledError:
            asked.close()
            raise
        task = asyncio.create_task(asked)
        self._began[task] = time.perf_counter()
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def stuck(self, longer_than_s: float) -> bool:
        """Whether as many requests as the model has instances have run for longer."""
        before = time.perf_counter() - longer_than_s
        return sum(began < before for began in self._began.values()) >= self._instances

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._began[task]
        self._places.release()
        if not task.cancelled():
            task.exception()  # seen, where nobody waits for it
