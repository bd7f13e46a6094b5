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
from runtimes.mlflow.layout import Layout
from runtimes.mlflow.line import Line
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.pieces import Outcome, PredictorDiedError
from runtimes.mlflow.plan import Work
from runtimes.mlflow.predictor import Predictor
from runtimes.mlflow.recent import Recent

LOOK_S = 0.002


class Run:
    """One call that runs."""

    __slots__ = ("began_at", "jobs", "predictor", "stuck")

    def __init__(self, predictor: Predictor, jobs: Sequence[Job], began_at: float) -> None:
        self.predictor = predictor
        self.jobs = jobs
        self.began_at = began_at
        self.stuck = False  # beyond the deadline


class Pool:
    """The line of requests in front of the fleet's predictors."""

    def __init__(self, fleet: Fleet, deadline_s: float, longest_line: int, metrics: Metrics) -> None:
        self._metrics = metrics
        self._deadline_s = deadline_s
        self._line: Line[Job] = Line(longest_line)
        self._free: list[Predictor] = []
        self._loop = asyncio.get_running_loop()
        self._runs: dict[Run, None] = {}  # in the order in which they began
        self._watch: asyncio.TimerHandle | None = None
        self._began_at = 0.0  # the last of them
        self._recent = Recent()
        self._looking = False
        self._gathering = False
        self.usual: Layout | None = None
        self.shares = False  # whether calls of several requests are allowed at all
        fleet.on_ready = self._offer
        metrics.waiting.set_function(lambda: len(self._line))

    def submit(self, work: Work, request_id: str, *, as_text: bool = True, streamed: bool = False) -> Job:
        """Run a request as soon as there is a predictor for it; LineFullError where too many wait already."""
        alone = streamed or work.alone or not self.shares
        job = Job(work, request_id, as_text, self._loop.create_future(), alone, streamed)
        predictor = None if self._soon_free(job) or self._more_may_come(job) else self._take()
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
        if job.alone or not self._runs or not self._recent.short:
            return False
        if not self._looking:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)
        return True

    def _more_may_come(self, job: Job) -> bool:
        """Whether others may be read in this very turn of the event loop, as they are lately.

        A call costs so much beside its rows that one for all of them is cheaper, and they all wait for its answer.
        """
        if job.alone or not self._recent.in_company or not self._recent.short:
            return False
        if not self._gathering:
            self._gathering = True
            self._loop.call_soon(self._gathered)
        return True

    def _gathered(self) -> None:
        self._gathering = False
        self._spread()

    def _look(self) -> None:
        """Who waits for a call that turned out long gets another predictor after all."""
        self._looking = False
        if not len(self._line):
            return
        if time.perf_counter() - self._began_at < LOOK_S:
            self._looking = True
            self._loop.call_later(LOOK_S, self._look)
            return
        self._spread()

    def abandon(self, job: Job) -> None:
        """Nobody wants the answer any more: a waiting request leaves the line, a running one can't be stopped."""
        self._line.leave(job)
        future = job.future
        future.cancel()
        if not future.cancelled() and future.exception() is None and job.streamed:
            future.result().give_up()  # it had begun at the very moment at which its client was given up

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
        self._metrics.shared.observe(len(jobs))
        self._recent.began(len(jobs))
        self._began_at = began_at = time.perf_counter()
        run = Run(predictor, jobs, began_at)
        self._runs[run] = None
        if self._watch is None:
            self._watch = self._loop.call_later(self._deadline_s, self._look_for_stuck)
        if not jobs[0].streamed:
            predictor.send(head, buffers, partial(self._ran, run))
            return
        pieces = predictor.stream(head, buffers, partial(self._freed, run))
        if not jobs[0].future.done():
            jobs[0].future.set_result(pieces)

    def _ran(self, run: Run, outcome: Outcome) -> None:
        self._recent.ended(time.perf_counter() - run.began_at)
        if isinstance(outcome, PredictorDiedError):
            again = _died(run.jobs, outcome)
        else:
            if outcome.head.get("unsplittable"):
                self.shares = False  # the input example was not enough to see it
            again = batch.settle(run.jobs, outcome)
        if again:
            for job in again:
                job.alone = True
            self._line.rejoin(again)
        self._freed(run, outcome)
        if again:  # they need not wait for this predictor
            self._spread()

    def _freed(self, run: Run, outcome: Outcome) -> None:
        del self._runs[run]
        if run.stuck:
            run.predictor.stuck -= 1
        self._offer(run.predictor)

    def _spread(self) -> None:
        """Whoever waits gets every free predictor."""
        while len(self._line) and (predictor := self._take()) is not None:
            self._offer(predictor)

    def _look_for_stuck(self) -> None:
        """Calls beyond the deadline; they run in the order in which they began."""
        self._watch = None
        now = time.perf_counter()
        late = [run for run in self._runs if now - run.began_at >= self._deadline_s]
        for run in late:
            if not run.stuck:
                run.stuck = True
                run.predictor.stuck += 1
        for predictor in {run.predictor for run in late}:
            # Nothing in it can be stopped: it is given up once nobody else's call runs there.
            if predictor.stuck >= min(predictor.slots, predictor.running):
                predictor.kill("stuck")
        waiting = [run for run in self._runs if not run.stuck]
        if waiting:
            self._watch = self._loop.call_later(waiting[0].began_at + self._deadline_s - now, self._look_for_stuck)

    def _offer(self, predictor: Predictor) -> None:
        """A predictor has a free slot: whoever waits gets it."""
        while predictor.free > 0:
            jobs = self._line.take(batch.MOST_ROWS)
            if not jobs:
                if predictor not in self._free:
                    self._free.append(predictor)
                return
            self._run(predictor, jobs)


def _died(jobs: Sequence[Job], error: PredictorDiedError) -> list[Job]:
    """A process that ended takes its call with it; who only shared the call gets another one."""
    if len(jobs) > 1 and str(error) == "died":
        return [job for job in jobs if not job.future.done()]
    stuck = str(error) == "stuck"
    late = RefusedError(504, "the deadline passed before the model answered")
    batch.refuse(jobs, late if stuck else RefusedError(500, PREDICTOR_DIED))
    return []
