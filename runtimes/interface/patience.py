"""How long one request is waited for: until its deadline, and only while its client is there.

Owns the timer and the watch on the connection; leaves what is waited for to whoever enters. One idea: giving up is a
cancellation of the request's own task, so whatever it awaits ends with it, and a request that is answered within a
blink pays for one timer and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from types import TracebackType

from runtimes.interface.engine import Receive
from runtimes.interface.errors import RefusedError

LOOK_S = 0.1  # after which a request is slow enough to watch whether its client is still there


class ClientLeftError(Exception):
    """The client closed its connection before it got its whole answer."""


class Patience:
    """Cancels the task that entered it at ``due_at`` or when its client leaves, and says which of the two it was.

    ``due_at`` (time.perf_counter()) may be moved at any time at no cost: a stream moves it with each piece.
    """

    __slots__ = (
        "_cancelling", "_loop", "_outcome", "_receive", "_task", "_timer", "_watch", "_watches", "due_at", "late"
    )  # fmt: skip

    def __init__(self, due_at: float, receive: Receive, late: str) -> None:
        self.due_at = due_at
        self.late = late
        self._receive = receive
        self._outcome: Exception | None = None
        self._watch: asyncio.Task[None] | None = None
        self._watches = False

    def __enter__(self) -> Patience:
        left_s = self.due_at - time.perf_counter()
        if left_s <= 0:
            raise RefusedError(504, "the deadline had passed before the request came")
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = task.get_loop()
        self._cancelling = task.cancelling()
        self._timer = self._loop.call_later(min(left_s, LOOK_S), self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._outcome is None:
            return
        ours_alone = self._task.uncancel() <= self._cancelling
        if ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise self._outcome from None

    def watch(self) -> None:
        """From now on nothing is read from the connection, so its end can be waited for."""
        self._watches = True

    def _look(self) -> None:
        left_s = self.due_at - time.perf_counter()
        if left_s <= 0:
            self._give_up(RefusedError(504, self.late))
            return
        if self._watches and self._watch is None:
            self._watch = self._loop.create_task(self._until_left())
        self._timer = self._loop.call_later(left_s if self._watch is not None else min(left_s, LOOK_S), self._look)

    async def _until_left(self) -> None:
        with suppress(Exception):  # a connection that can't be read from is one that was left
            while (await self._receive())["type"] != "http.disconnect":
                pass
        self._give_up(ClientLeftError())

    def _give_up(self, outcome: Exception) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._task.cancel()
