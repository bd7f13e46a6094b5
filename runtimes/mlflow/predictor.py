"""One predictor process, seen from the front.

Owns its socket, its start and its end; leaves which request it gets to the pool. One idea: it is idle, runs one
request, or is gone, and whatever happened to it, the request it ran gets exactly one outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from runtimes.mlflow.frames import Frame, FrameError, FrameReader, Head, Kind, encode_prefix

_EXIT_WAIT_S = 5.0


class PredictorDiedError(Exception):
    """The process ended, or was ended, before it answered."""


class LoadFailedError(Exception):
    """The model can't be loaded; the text is one line for whoever runs the endpoint."""


@dataclass(frozen=True)
class Loaded:
    """What a predictor says once its model is in memory."""

    mlflow: str
    python: str
    has_signature: bool
    example: bytes | None


class Predictor(asyncio.Protocol):
    """A child process with one model, and the socket to it."""

    def __init__(self, on_gone: Callable[[Predictor], None]) -> None:
        loop = asyncio.get_running_loop()
        self.loaded: asyncio.Future[Loaded] = loop.create_future()
        self.gone: asyncio.Future[str] = loop.create_future()
        self.killed_for: str | None = None
        self._on_gone = on_gone
        self._process: asyncio.subprocess.Process | None = None
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._running: asyncio.Future[Frame] | None = None

    @classmethod
    async def start(
        cls, python: Path, model: Path, environment: Mapping[str, str], on_gone: Callable[[Predictor], None]
    ) -> Predictor:
        """Start the process; ``loaded`` says later whether the model is in memory."""
        predictor = cls(on_gone)
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda: predictor, sock=ours)
                predictor._process = await asyncio.create_subprocess_exec(
                    str(python), "-m", "runtimes.mlflow.worker", str(theirs.fileno()), str(model),
                    env=dict(environment), pass_fds=(theirs.fileno(),), stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(), start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                predictor.close()
                raise LoadFailedError(f"{python} can't be started: {error.strerror}") from None
        return predictor

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def idle(self) -> bool:
        return self._running is None and not self.gone.done()

    def send(self, head: Head, body: bytes) -> asyncio.Future[Frame]:
        """Run one request; the future has its answer or a PredictorDiedError."""
        if not self.idle or self._transport is None:
            raise RuntimeError("a predictor runs one request at a time")
        self._running = asyncio.get_running_loop().create_future()
        self._transport.write(encode_prefix(Kind.PREDICT, head, len(body)))
        if body:
            self._transport.write(body)
        return self._running

    def kill(self, cause: str) -> None:
        """End the process and everything it started, at once."""
        self.killed_for = self.killed_for or cause
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def ended(self) -> int | None:
        """The exit status of the process once it is gone."""
        if self._process is None:
            return None
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(self._process.wait(), _EXIT_WAIT_S)
        self.kill("did not exit")
        return await self._process.wait()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._received(frame)
        except FrameError:
            self.kill("spoke another protocol")

    def connection_lost(self, exc: Exception | None) -> None:
        cause = self.killed_for or "died"
        if not self.gone.done():
            self.gone.set_result(cause)
        if self._running is not None and not self._running.done():
            self._running.set_exception(PredictorDiedError(cause))
        if not self.loaded.done():
            self.loaded.set_exception(PredictorDiedError(cause))
            self.loaded.exception()  # seen: whoever waits for it gets it, and nobody has to
        self._on_gone(self)

    def _received(self, frame: Frame) -> None:
        if frame.kind is Kind.LOADED and not self.loaded.done():
            head = frame.head
            example = frame.body if head["example"] else None
            self.loaded.set_result(Loaded(head["mlflow"], head["python"], head["signature"], example))
        elif frame.kind is Kind.FAILED and not self.loaded.done():
            self.loaded.set_exception(LoadFailedError(str(frame.head.get("reason"))))
        elif frame.kind in (Kind.ANSWER, Kind.REFUSAL) and self._running is not None:
            running, self._running = self._running, None
            if not running.done():
                running.set_result(frame)
        else:
            raise FrameError("a frame out of turn")
