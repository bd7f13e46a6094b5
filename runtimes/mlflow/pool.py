"""The predictors of one runtime, and the requests that they run.

Owns starting, self-testing, replacing and ending them, and the line in front of them. Leaves HTTP to app and one
process's life to predictor. One idea: a deadline answers the client at once, but a predictor is only given up when
it ran for the model's whole deadline, so an impatient client can't make us kill a healthy process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import time
from collections.abc import Mapping
from functools import partial

from runtimes.mlflow.errors import PREDICTOR_DIED, RefusedError
from runtimes.mlflow.frames import Frame, Head, Kind
from runtimes.mlflow.line import Line
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.predictor import Loaded, LoadFailedError, Predictor, PredictorDiedError
from runtimes.mlflow.settings import Settings
from runtimes.quota import THREAD_VARIABLES, Cpu

_MOST_FAILED_LOADS = 3  # in a row, once the model had loaded before
_WARM_UPS, _WARM_UP_S = 10, 2.0
_MEASURED = 5
_log = logging.getLogger("runtimes.mlflow.pool")


class Job:
    """One request on its way to an answer."""

    __slots__ = ("body", "future", "head", "started", "timer")

    def __init__(self, head: Head, body: bytes, future: asyncio.Future[Frame]) -> None:
        self.head = head
        self.body = body
        self.future = future
        self.started = False
        self.timer: asyncio.TimerHandle | None = None


class Pool:
    """``cpu.predictors`` processes, each running one request at a time."""

    def __init__(self, settings: Settings, cpu: Cpu, metrics: Metrics) -> None:
        self._settings = settings
        self._cpu = cpu
        self._metrics = metrics
        self._environment = predictor_environment(os.environ, cpu.threads)
        self._line: Line[Job] = Line(settings.max_in_flight)
        self._idle: list[Predictor] = []
        self._live: set[Predictor] = set()
        self._all: set[Predictor] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self.loaded: Loaded | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        metrics.waiting.set_function(lambda: len(self._line))
        metrics.predictors.set_function(lambda: len(self._live))

    @property
    def started(self) -> bool:
        """Whether the model has answered once; what comes in before that can't be taken."""
        return self.loaded is not None

    @property
    def ready(self) -> bool:
        """Whether there is a predictor that can take a request or runs one."""
        return self.loaded is not None and bool(self._live)

    async def start(self) -> None:
        """Load the model in every predictor and self-test it; sets ``failed`` where that can't be done."""
        began = time.monotonic()
        loads = [asyncio.create_task(self._load()) for _ in range(self._cpu.predictors)]
        try:
            predictors = await asyncio.gather(*loads)
            await self._measure(predictors[0])
        except LoadFailedError as failure:
            self._fail(str(failure))
            return
        finally:
            for task in loads:
                task.cancel()
        self._metrics.load_s.set(time.monotonic() - began)
        self.loaded = loaded = predictors[0].loaded.result()
        self._metrics.describe(loaded.mlflow, loaded.python)
        if not loaded.has_signature:
            _log.warning("the model has no signature: nothing of a request's columns or types is checked")
        for predictor in predictors:
            self._offer(predictor)
            self._keepers.append(asyncio.create_task(self._keep(predictor)))
        _log.info("ready", extra={"predictors": len(predictors), "threads": self._cpu.threads})

    def submit(self, head: Head, body: bytes, allowed_s: float) -> Job:
        """Run a request as soon as there is a predictor for it; LineFullError where too many wait already."""
        loop = asyncio.get_running_loop()
        job = Job(head, body, loop.create_future())
        if self._idle:
            self._run(self._idle.pop(), job)
        else:
            self._line.join(job)
        job.timer = loop.call_later(allowed_s, self._expire, job)
        return job

    def abandon(self, job: Job) -> None:
        """Nobody wants the answer any more: a waiting request leaves the line, a running one can't be stopped."""
        self._line.leave(job)
        self._settle(job)
        job.future.cancel()

    async def stop(self) -> None:
        """End every predictor, whatever it runs."""
        for keeper in self._keepers:
            keeper.cancel()
        for predictor in list(self._all):
            predictor.kill("stopped")
        await asyncio.gather(*(predictor.ended() for predictor in list(self._all)), return_exceptions=True)

    # One request.

    def _run(self, predictor: Predictor, job: Job) -> None:
        job.started = True
        stuck = asyncio.get_running_loop().call_later(self._settings.deadline_s, predictor.kill, "stuck")
        answer = predictor.send(job.head, job.body)
        answer.add_done_callback(partial(self._ran, predictor, job, stuck))

    def _ran(self, predictor: Predictor, job: Job, stuck: asyncio.TimerHandle, answer: asyncio.Future[Frame]) -> None:
        stuck.cancel()
        self._settle(job)
        error = answer.exception()
        if not job.future.done():
            if error is None:
                job.future.set_result(answer.result())
            else:
                job.future.set_exception(_outcome(error))
        if predictor.idle:
            self._offer(predictor)

    def _offer(self, predictor: Predictor) -> None:
        if predictor.gone.done():
            return
        self._live.add(predictor)
        job = self._line.take()
        if job is None:
            self._idle.append(predictor)
        else:
            self._run(predictor, job)

    def _expire(self, job: Job) -> None:
        self._line.leave(job)
        if not job.future.done():
            job.future.set_exception(RefusedError(504, "the deadline passed before the model answered"))

    @staticmethod
    def _settle(job: Job) -> None:
        if job.timer is not None:
            job.timer.cancel()

    # The processes.

    async def _keep(self, predictor: Predictor) -> None:
        """Replace one predictor whenever it is gone; too many failed loads in a row are the end of the process."""
        while True:
            cause = await predictor.gone
            self._metrics.restarted(cause)
            _log.error("a predictor is gone and gets replaced", extra={"cause": cause, "pid": predictor.pid})
            await predictor.ended()
            replacement = await self._replace()
            if replacement is None:
                return
            predictor = replacement
            self._offer(predictor)

    async def _replace(self) -> Predictor | None:
        for attempt in range(_MOST_FAILED_LOADS):
            try:
                return await self._load()
            except LoadFailedError as failure:
                reason = str(failure)
                _log.error("a predictor could not be replaced", extra={"reason": reason, "attempt": attempt + 1})
                await asyncio.sleep(2.0**attempt)
        self._fail(f"no predictor could be started after {_MOST_FAILED_LOADS} attempts: {reason}")
        return None

    async def _load(self) -> Predictor:
        """A predictor with the model in memory that has answered on the model's own example."""
        settings = self._settings
        predictor = await Predictor.start(settings.model_python, settings.model, self._environment, self._gone)
        self._all.add(predictor)
        try:
            async with asyncio.timeout(settings.load_timeout_s):
                await predictor.loaded
                await self._warm_up(predictor)
        except TimeoutError:
            predictor.kill("slow to load")
            raise LoadFailedError(f"the model did not load within {settings.load_timeout_s:g} s") from None
        except PredictorDiedError:
            raise LoadFailedError(_death(await predictor.ended())) from None
        except LoadFailedError:
            predictor.kill("failed to load")
            raise
        return predictor

    async def _warm_up(self, predictor: Predictor) -> None:
        until = time.monotonic() + _WARM_UP_S
        for _ in range(_WARM_UPS):
            await self._self_test(predictor)
            if time.monotonic() > until:
                break

    async def _self_test(self, predictor: Predictor) -> None:
        example = predictor.loaded.result().example
        if example is None:
            return
        head = {"media": "json", "limit": 1 << 30, "request_id": "self-test"}
        answer = await predictor.send(head, example)
        if answer.kind is not Kind.ANSWER:
            said = answer.head.get("cause") or answer.head.get("message")
            raise LoadFailedError(f"the model failed on its own input example: {said}")

    async def _measure(self, predictor: Predictor) -> None:
        if predictor.loaded.result().example is None:
            return
        times_s: list[float] = []
        for _ in range(_MEASURED):
            began = time.perf_counter()
            try:
                await self._self_test(predictor)
            except PredictorDiedError:
                raise LoadFailedError(_death(await predictor.ended())) from None
            times_s.append(time.perf_counter() - began)
        self._metrics.self_test_s.set(statistics.median(times_s))

    def _gone(self, predictor: Predictor) -> None:
        self._live.discard(predictor)
        self._all.discard(predictor)
        if predictor in self._idle:
            self._idle.remove(predictor)

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)


def predictor_environment(own: Mapping[str, str], threads: int) -> dict[str, str]:
    """A predictor's environment: ours, its numeric threads within the quota, and nobody phones home."""
    quiet = {
        "MLFLOW_CONFIGURE_LOGGING": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "ORT_DISABLE_TELEMETRY": "1",
        "PYTHONSAFEPATH": "1",  # the working directory holds nothing of the model's
        "PYTHONUNBUFFERED": "1",
    }
    limits = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**limits, **own, **quiet, "KNOBLESS_FRONT_PID": str(os.getpid())}


def _outcome(error: BaseException) -> BaseException:
    if not isinstance(error, PredictorDiedError):
        return error
    if str(error) == "stuck":
        return RefusedError(504, "the deadline passed before the model answered")
    return RefusedError(500, PREDICTOR_DIED)


def _death(status: int | None) -> str:
    if status == -9:
        return "the predictor was killed while loading the model; most likely it needs more memory"
    return f"the predictor ended while loading the model (exit status {status})"
