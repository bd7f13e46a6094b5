"""The requests that predictors run.

Owns who runs what: a lone request at once, and whatever waits together as soon as a predictor is free, never on a
timer. Leaves the processes' lives to fleet, and joining and splitting to batch. One idea: a deadline answers the client
at once, but a predictor is only given up when it ran for the model's whole deadline, so an impatient client can't make
us kill a healthy process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from runtimes.mlflow import batch
from runtimes.mlflow.batch import Job
from runtimes.mlflow.errors import PREDICTOR_DIED, RefusedError
from runtimes.mlflow.fleet import Fleet
from runtimes.mlflow.frames import Frame
from runtimes.mlflow.layout import Layout
from runtimes.mlflow.line import Line
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.plan import Work
from runtimes.mlflow.predictor import Predictor, PredictorDiedError

SHORT_S = 0.001  # a call that takes less is not worth a second process
LOOK_S = 0.002
RECENT = 16  # calls that the mean of their times reaches back


class Pool:
    """The line of requests in front of the fleet's predictors."""

    def __init__(self, fleet: Fleet, deadline_s: float, longest_line: int, metrics: Metrics) -> None:
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._line: Line[Job] = Line(longest_line)
        self._free: list[Predictor] = []
        self._loop = asyncio.get_running_loop()
        self._running = 0  # calls
        self._began_at = 0.0  # the last of them
        self._call_s = 0.0  # how long one takes, lately
        self._looking = False
        self.usual: Layout | None = None
        self.shares = False  # whether calls of several requests are allowed at all
        fleet.on_ready = self._offer
        metrics.waiting.set_function(lambda: len(self._line))

    def submit(self, work: Work, request_id: str, *, as_text: bool = True, streamed: bool = False) -> Job:
        """Run a request as soon as there is a predictor for it; LineFullError where too many wait already."""
        alone = streamed or work.alone or not self.shares
        job = Job(work, request_id, as_text, self._loop.create_future(), alone, streamed)
        predictor = None if self._soon_free(job) else self._take()
        if predictor is None:
            self._line.join(job)
        else:
            self._run(predictor, [job])
        return job

    def _soon_free(self, job: Job) -> bool:
        """Whether a call that runs now will be over before another process could have answered.

        Two processes that share short calls cost more CPU than one that takes all that waits: at 32 connections a
        small model answered 7,400 requests a second with two, 16,700 with one.
        """
        if job.alone or not self._running or self._call_s > SHORT_S:
            return False
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)
        return True

    def _look(self) -> None:
        """Who waits for a call that turned out long gets another predictor after all."""
        self._looking = False
        if not len(self._line):
            return
        if time.perf_counter() - self._began_at < LOOK_S:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)
            return
        while len(self._line) and (predictor := self._take()) is not None:
            self._offer(predictor)

    def abandon(self, job: Job) -> None:
        """Nobody wants the answer any more: a waiting request leaves the line, a running one can't be stopped."""
        self._line.leave(job)
        job.future.cancel()

    def _take(self) -> Predictor | None:
        """A predictor with a free slot; the one that became free last, whose memory is still warm."""
        while self._free:
            predictor = self._free[-1]
            if predictor.free <= 1:
                self._free.pop()
            if predictor.free > 0:
                return predictor
        return None

    def _run(self, predictor: Predictor, jobs: Sequence[Job]) -> None:
        head, buffers = batch.call(jobs, self.usual)
        stuck = Watch(predictor, self._deadline_s)
        self._metrics.shared.observe(len(jobs))
        self._running += 1
        self._began_at = began_at = time.perf_counter()
        if jobs[0].streamed:
            pieces = predictor.stream(head, buffers)
            pieces.ended.add_done_callback(partial(self._freed, predictor, stuck))
            if not jobs[0].future.done():
                jobs[0].future.set_result(pieces)
        else:
            predictor.send(head, buffers).add_done_callback(partial(self._ran, predictor, jobs, stuck, began_at))

    def _ran(
        self, predictor: Predictor, jobs: Sequence[Job], stuck: Watch, began_at: float, answer: asyncio.Future[Frame]
    ) -> None:
        self._call_s += (time.perf_counter() - began_at - self._call_s) / RECENT
        error = answer.exception()
        if error is None:
            frame = answer.result()
            if frame.head.get("unsplittable"):
                self.shares = False  # the input example was not enough to see it
            again = batch.settle(jobs, frame)
        else:
            again = self._died(jobs, error)
        for job in again:
            job.alone = True
        self._line.rejoin(again)
        self._freed(predictor, stuck, answer)
        while len(self._line) and (other := self._take()) is not None:  # whoever runs again need not wait for this one
            self._offer(other)

    def _died(self, jobs: Sequence[Job], error: BaseException) -> list[Job]:
        """A process that ended takes its call with it; who only shared the call gets another one."""
        if len(jobs) > 1 and str(error) == "died":
            return [job for job in jobs if not job.future.done()]
        batch.refuse(jobs, _outcome(error))
        return []

    def _freed(self, predictor: Predictor, stuck: Watch, answer: asyncio.Future[Frame]) -> None:
        stuck.cancel()
        self._running -= 1
        if answer.exception() is None:
            self._offer(predictor)

    def _offer(self, predictor: Predictor) -> None:
        """A predictor has a free slot: whoever waits gets it."""
        while predictor.free > 0:
            jobs = self._line.take(batch.MOST_ROWS)
            if not jobs:
                if predictor not in self._free:
                    self._free.append(predictor)
                return
            self._run(predictor, jobs)


class Watch:
    """One call's deadline: with all slots beyond theirs the process is given up, for nothing in it can be stopped."""

    __slots__ = ("_predictor", "_timer", "_was_stuck")

    def __init__(self, predictor: Predictor, deadline_s: float) -> None:
        self._predictor = predictor
        self._was_stuck = False
        self._timer = asyncio.get_running_loop().call_later(deadline_s, self._passed)

    def cancel(self) -> None:
        self._timer.cancel()
        if self._was_stuck:
            self._predictor.stuck -= 1

    def _passed(self) -> None:
        self._was_stuck = True
        self._predictor.stuck += 1
        if self._predictor.stuck >= min(self._predictor.slots, self._predictor.running):
            self._predictor.kill("stuck")


def _outcome(error: BaseException) -> Exception:
    if not isinstance(error, PredictorDiedError):
        return error if isinstance(error, Exception) else RefusedError(500, PREDICTOR_DIED)
    if str(error) == "stuck":
        return RefusedError(504, "the deadline passed before the model answered")
    return RefusedError(500, PREDICTOR_DIED)
