"""The predictor processes of one runtime.

Owns starting, self-testing, replacing and ending them; leaves what they run to the pool. One idea: a predictor is there
for the pool from the moment that it has answered on the model's own example, and one that is gone is replaced.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import statistics
import time
from collections.abc import Callable

from runtimes.mlflow import batch, launch, twins
from runtimes.mlflow.batch import Job
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.frames import Kind
from runtimes.mlflow.launch import Launched, LoadFailedError
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.pieces import PredictorDiedError
from runtimes.mlflow.plan import Work
from runtimes.mlflow.predictor import Loaded, NoTwinError, Predictor
from runtimes.mlflow.settings import Settings
from runtimes.quota import Cpu

_MOST_FAILED_LOADS = 3  # in a row, once the model had loaded before
_WARM_UPS, _WARM_UP_S = 10, 2.0
_MEASURED = 5
_log = logging.getLogger("runtimes.mlflow.fleet")


class Fleet:
    """``cpu.predictors`` processes with one model each; the first may have begun already."""

    def __init__(
        self,
        settings: Settings,
        cpu: Cpu,
        metrics: Metrics,
        read: Callable[[Loaded, bytes], Work],
        first: Launched | None = None,
    ) -> None:
        self._settings = settings
        self._cpu = cpu
        self._metrics = metrics
        self._read = read  # the model's own example, as a request
        self._environment = launch.predictor_environment(os.environ, cpu.threads)
        self._launched = first
        self._live: set[Predictor] = set()
        self._all: set[Predictor] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._template: Predictor | None = None  # of all others, where the model allows it
        self.on_ready: Callable[[Predictor], None] = lambda predictor: None
        self.loaded: Loaded | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        metrics.predictors.set_function(lambda: len(self._live))

    @property
    def ready(self) -> bool:
        """Whether there is a predictor that can take a request or runs one."""
        return self.loaded is not None and bool(self._live)

    async def start(self) -> None:
        """Load the model in every predictor and self-test it; sets ``failed`` where that can't be done."""
        began = time.monotonic()
        try:
            predictors = await self._first(self._cpu.predictors)
            await self._measure(predictors[0])
        except LoadFailedError as failure:
            self._fail(str(failure))
            return
        self._metrics.load_s.set(time.monotonic() - began)
        self.loaded = loaded = predictors[0].loaded.result()
        self._metrics.describe(loaded.head["mlflow"], loaded.head["python"])
        if not loaded.head["inputs"] and not loaded.head["raw"] and not loaded.head["chat"]:
            _log.warning("the model has no signature: nothing of a request's columns or types is checked")
        for predictor in predictors:
            self._join(predictor)
            self._keepers.append(asyncio.create_task(self._keep(predictor)))
        _log.info("ready", extra={"predictors": len(predictors), "threads": self._cpu.threads})

    async def _first(self, count: int) -> list[Predictor]:
        """As many predictors as there shall be: one load and its twins where that can be, else as many loads."""
        if count < 2 or not twins.might_fork(self._settings.model) or not twins.adopt():
            return await self._loads(count)
        template = await self._load()
        copies = await self._copies(template, count) if template.loaded.result().head["twins"] else []
        if len(copies) == count:
            self._template = template
            return copies
        return [template, *copies, *await self._loads(count - 1 - len(copies))]

    async def _copies(self, template: Predictor, count: int) -> list[Predictor]:
        """As many as it allows."""
        copies: list[Predictor] = []
        try:
            while len(copies) < count:
                copies.append(await self._twin(template))
        except NoTwinError as refusal:
            _log.info("each predictor loads the model: %s", refusal)
        return copies

    async def _loads(self, count: int) -> list[Predictor]:
        loads = [asyncio.create_task(self._load()) for _ in range(count)]
        try:
            return await asyncio.gather(*loads)
        finally:
            for task in loads:
                task.cancel()

    async def stop(self) -> None:
        """End every predictor, whatever it runs."""
        for keeper in self._keepers:
            keeper.cancel()
        predictors = list(self._all)
        for predictor in predictors:
            predictor.kill("stopped")
        await asyncio.gather(*(predictor.ended() for predictor in predictors), return_exceptions=True)

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
            self._join(predictor)

    async def _replace(self) -> Predictor | None:
        for attempt in range(_MOST_FAILED_LOADS):
            try:
                template = self._template
                if template is not None and not template.gone.done():
                    with contextlib.suppress(NoTwinError):
                        return await self._twin(template)
                return await self._load()
            except LoadFailedError as failure:
                reason = str(failure)
                _log.error("a predictor could not be replaced", extra={"reason": reason, "attempt": attempt + 1})
                await asyncio.sleep(2.0**attempt)
        self._fail(f"no predictor could be started after {_MOST_FAILED_LOADS} attempts: {reason}")
        return None

    async def _load(self) -> Predictor:
        """A predictor with the model in memory that has answered on the model's own example."""
        launched, self._launched = self._launched, None
        predictor = Predictor.of(launched or launch.launch(self._settings, self._environment), self._gone)
        await self._tested(predictor)
        about = predictor.loaded.result().head
        together = "in batches" if about["row_wise"] else "one request at a time"
        _log.info("the model is called by %s, %s", about["way"], together)
        return predictor

    async def _twin(self, template: Predictor) -> Predictor:
        """The same, copied from a process that does nothing else."""
        return await self._tested(Predictor.twin_of(template, self._gone))

    async def _tested(self, predictor: Predictor) -> Predictor:
        settings = self._settings
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
        loaded = predictor.loaded.result()
        if loaded.example is None:
            return
        try:
            work = self._read(loaded, loaded.example)
        except RefusedError as refusal:
            raise LoadFailedError(f"the model's own input example is refused: {refusal.message}") from None
        job = Job(work, "self-test", True, asyncio.get_running_loop().create_future())
        answer = await predictor.ask(*batch.call([job], None))
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

    def _join(self, predictor: Predictor) -> None:
        if not predictor.gone.done():
            self._live.add(predictor)
            self.on_ready(predictor)

    def _gone(self, predictor: Predictor) -> None:
        self._live.discard(predictor)
        self._all.discard(predictor)

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)


def _death(status: int | None) -> str:
    if status == -9:
        return "the predictor was killed while loading the model; most likely it needs more memory"
    return f"the predictor ended while loading the model (exit status {status})"
