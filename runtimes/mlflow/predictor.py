"""One predictor process, seen from the front.

Owns the calls that it runs and its end; leaves its start to launch, the socket to channel and which call it gets to the
pool. One idea: a call has exactly one outcome, whatever happens to the process, and a call that nobody waits for any
more still holds its slot until the process is done with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from runtimes.mlflow import twins
from runtimes.mlflow.channel import Channel
from runtimes.mlflow.frames import Frame, Head, Kind
from runtimes.mlflow.launch import Launched, LoadFailedError, sockets
from runtimes.mlflow.layout import Buffer
from runtimes.mlflow.pieces import Done, Outcome, Pieces, PredictorDiedError

_EXIT_WAIT_S = 5.0
_MOST_CALLS = 0xFFFFFFFF  # the number of a call has 32 bits; the first is long over when it comes round


class NoTwinError(LoadFailedError):
    """The process can't be copied, or not any more; it serves as well as before."""


@dataclass(frozen=True)
class Loaded:
    """What a predictor says once its model is in memory."""

    head: Head
    example: bytes | None

    @property
    def slots(self) -> int:
        """How many calls it runs at once."""
        return int(self.head["slots"])


class Predictor:
    """A child process with one model, and the socket to it."""

    def __init__(self, on_gone: Callable[[Predictor], None]) -> None:
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[Loaded] = loop.create_future()
        self.gone: asyncio.Future[str] = loop.create_future()
        self.killed_for: str | None = None
        self.slots = 1
        self.stuck = 0  # of the calls that it runs: beyond the deadline, and nothing can stop them
        self._on_gone = on_gone
        self._process: subprocess.Popen[bytes] | None = None
        self._exit: asyncio.Future[int] | None = None
        self._twin: int | None = None  # the pid of one that no process was started for
        self._channel: Channel | None = None
        self._calls: dict[int, Done] = {}
        self._streams: dict[int, Pieces] = {}
        self._last = 0
        self._loop = loop

    @classmethod
    def of(cls, launched: Launched, on_gone: Callable[[Predictor], None]) -> Predictor:
        """The one that runs in this process; ``loaded`` says later whether the model is in memory."""
        predictor = cls(on_gone)
        predictor._process = launched.process
        predictor._channel = Channel(launched.sock, predictor._received, predictor._lost)
        return predictor

    @classmethod
    def twin_of(cls, template: Predictor, on_gone: Callable[[Predictor], None]) -> Predictor:
        """A copy of a process that has loaded the model and runs no calls; ``loaded`` says later that it is there."""
        predictor = cls(on_gone)
        ours, theirs = sockets()
        predictor._channel = Channel(ours, predictor._received, predictor._lost)
        if template._channel is not None:
            template._channel.send(Kind.TWIN, 0, {}, fd=theirs.detach())
        return predictor

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else self._twin

    @property
    def free(self) -> int:
        """How many more calls it can take."""
        return 0 if self.gone.done() else self.slots - len(self._calls)

    @property
    def running(self) -> int:
        return len(self._calls)

    def send(self, head: Head, buffers: Sequence[Buffer], done: Done) -> None:
        """Run one call; ``done`` gets its answer, or a PredictorDiedError."""
        self._send(Kind.PREDICT, head, buffers, done)

    async def ask(self, head: Head, buffers: Sequence[Buffer]) -> Frame:
        """Run one call and wait for its answer."""
        answer: asyncio.Future[Outcome] = self._loop.create_future()

        def done(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        self.send(head, buffers, done)
        outcome = await answer
        if isinstance(outcome, PredictorDiedError):
            raise outcome
        return outcome

    def stream(self, head: Head, buffers: Sequence[Buffer], done: Done) -> Pieces:
        """Run one call whose answer comes in pieces; ``done`` gets its end."""
        pieces = Pieces()

        def ended(outcome: Outcome) -> None:
            self._streams.pop(call, None)
            pieces.end(outcome)
            done(outcome)

        call = self._send(Kind.STREAM, head, buffers, ended)
        pieces.told = partial(self._told, call)
        self._streams[call] = pieces
        return pieces

    def kill(self, cause: str) -> None:
        """End the process and everything it started, at once."""
        self.killed_for = self.killed_for or cause
        running = self._process.poll() is None if self._process else not self.gone.done()
        if self.pid is not None and running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        if self._channel is not None:
            self._channel.close()

    async def ended(self) -> int | None:
        """The exit status of the process once it is gone."""
        if self._twin is not None:
            return await self._twin_ended(self._twin)
        if self._exit is None:
            return None
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._exit), _EXIT_WAIT_S)
        self.kill("did not exit")
        return await asyncio.shield(self._exit)

    async def _twin_ended(self, pid: int) -> int | None:
        try:
            watched = os.pidfd_open(pid)
        except ProcessLookupError:
            return twins.reap(pid)
        over = asyncio.Event()
        self._loop.add_reader(watched, over.set)
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), _EXIT_WAIT_S)
            if not over.is_set():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
                await over.wait()
        finally:
            self._loop.remove_reader(watched)
            os.close(watched)
        return twins.reap(pid)

    def _send(self, kind: Kind, head: Head, buffers: Sequence[Buffer], done: Done) -> int:
        if self.free <= 0 or self._channel is None:
            raise RuntimeError("this predictor has no free slot")
        self._last = call = self._last % _MOST_CALLS + 1
        self._calls[call] = done
        self._channel.send(kind, call, head, buffers)
        return call

    def _told(self, call: int, more: int | None) -> None:
        """A stream's reader has taken so many pieces, or wants no more."""
        if more is None:
            self._streams.pop(call, None)
        if call in self._calls and self._channel is not None:
            self._channel.send(*((Kind.CANCEL, call, {}) if more is None else (Kind.TAKEN, call, {"more": more})))

    def _received(self, frame: Frame) -> None:
        if frame.kind is Kind.ANSWER or frame.kind is Kind.REFUSAL:
            if (done := self._calls.pop(frame.call, None)) is not None:
                done(frame)
        elif frame.kind is Kind.PIECE:
            if (pieces := self._streams.get(frame.call)) is not None:
                pieces.put(bytes(frame.body))
        elif frame.kind is Kind.LOADED and not self.loaded.done():
            loaded = Loaded(frame.head, bytes(frame.body) if frame.head["example"] else None)
            self.slots = loaded.slots
            if self._process is None:
                self._twin = int(frame.head["pid"])
            self.loaded.set_result(loaded)
        elif frame.kind is Kind.FAILED and not self.loaded.done():
            failed = LoadFailedError if self._process else NoTwinError
            self.loaded.set_exception(failed(str(frame.head.get("reason"))))

    def _lost(self, why: str) -> None:
        if why and self.killed_for is None:
            self.kill(why)
        cause = self.killed_for or "died"
        if not self.gone.done():
            self.gone.set_result(cause)
        if self._process is not None:  # collected, whether anybody asks for its status or not
            self._exit = self._loop.run_in_executor(None, self._process.wait)
        died = PredictorDiedError(cause)
        if not self.loaded.done():
            self.loaded.set_exception(died)
            self.loaded.exception()  # seen: whoever waits for it gets it, and nobody has to
        self._on_gone(self)
        calls, self._calls = self._calls, {}
        for done in calls.values():
            done(died)
