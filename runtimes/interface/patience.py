"""How long one request is waited for: until its deadline, and only while its client is there.

Owns the timer and the watch on the connection; leaves what is waited for to whoever enters. One idea: giving up is a
cancellation of the request's own task, so whatever it awaits ends with it, and a request that is answered within a
blink pays for its place in a dictionary and nothing else: one timer serves all that are young.
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


class Young:
    """The requests of one event loop that are not slow yet. A timer each would cost more than most of them wait."""

    def __init__(self) -> None:
        self._look_at: dict[Patience, float] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def join(self, patience: Patience, now: float) -> None:
        """Look at it in LOOK_S."""
        self._look_at[patience] = now + LOOK_S
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def leave(self, patience: Patience) -> None:
        """It is over."""
        self._look_at.pop(patience, None)

    def _look(self) -> None:
        self._timer = None
        now = time.perf_counter()
        while self._look_at:
            patience, at = next(iter(self._look_at.items()))
            if at > now:
                self._timer = asyncio.get_running_loop().call_later(at - now, self._look)
                return
            del self._look_at[patience]
            patience.look()


class Patience:
    """Cancels the task that entered it at ``due_at`` or when its client leaves, and says which of the two it was.

    ``due_at`` (time.perf_counter()) may be moved at any time at no cost: a stream moves it with each piece.
    """

    __slots__ = (
        "_cancelling", "_loop", "_outcome", "_receive", "_task", "_timer", "_watch", "_watches", "_young", "due_at",
        "late",
    )  # fmt: skip

    def __init__(self, due_at: float, receive: Receive, late: str, young: Young) -> None:
        self.due_at = due_at
        self.late = late
        self._receive = receive
        self._outcome: Exception | None = None
        self._young = young
        self._timer: asyncio.TimerHandle | None = None  # of its own once it is slow, or where its deadline is near
        self._watch: asyncio.Task[None] | None = None
        self._watches = False

    def __enter__(self) -> Patience:
        now = time.perf_counter()
        left_s = self.due_at - now
        if left_s <= 0:
            raise RefusedError(504, "the deadline had passed before the request came")
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._loop = task.get_loop()
        self._cancelling = task.cancelling()
        if left_s < LOOK_S:
            self._timer = self._loop.call_later(left_s, self.look)
        else:
            self._young.join(self, now)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is None:
            self._young.leave(self)
        else:
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

    def look(self) -> None:
        """See whether it is late; from now on it has a timer of its own."""
        left_s = self.due_at - time.perf_counter()
        if left_s <= 0:
            self._give_up(RefusedError(504, self.late))
            return
        if self._watches and self._watch is None:
            self._watch = self._loop.create_task(self._until_left())
        self._timer = self._loop.call_later(left_s if self._watch is not None else min(left_s, LOOK_S), self.look)

    async def _until_left(self) -> None:
        with suppress(Exception):  # a connection that can't be read from is one that was left
            while (await self._receive())["type"] != "http.disconnect":
                pass
        self._give_up(ClientLeftError())

    def _give_up(self, outcome: Exception) -> None:
        if self._outcome is None:
            self._outcome = outcome
            self._task.cancel()
