"""The MLflow engine: predictor processes behind the one serving interface.

Owns what the interface asks of an engine; leaves predicting to the pool. One idea: a request whose task is cancelled is
abandoned in the pool, so that it never starts where it still waits.
"""

from __future__ import annotations

import asyncio
import time

from runtimes.interface import metrics as interface
from runtimes.interface.engine import About, Call, Reply
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.frames import Frame, Kind
from runtimes.mlflow.line import LineFullError
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.pool import Pool
from runtimes.mlflow.settings import Settings
from runtimes.quota import cpu, cpu_quota, own_affinity


class MlflowEngine:
    """One model in predictor processes of its own environment."""

    def __init__(self, settings: Settings, metrics: interface.Metrics) -> None:
        self._settings = settings
        self._pool = Pool(settings, cpu(settings.predictors, cpu_quota(), own_affinity()), Metrics(metrics))
        self._about: About | None = None
        self.failed: asyncio.Future[str] = self._pool.failed

    @property
    def about(self) -> About | None:
        if self._about is None and (loaded := self._pool.loaded) is not None:
            self._about = About(self._settings.name, self._settings.version, "mlflow", loaded.mlflow)
        return self._about

    @property
    def ready(self) -> bool:
        return self._pool.ready

    @property
    def live(self) -> bool:
        return True  # a stuck predictor is replaced, and where that can't be done the process ends by itself

    async def start(self) -> None:
        await self._pool.start()

    async def stop(self) -> None:
        await self._pool.stop()

    async def answer(self, call: Call) -> Reply:
        """The model's answer to one request."""
        head = {"request_id": call.request_id, "media": call.media, "gzip": False, "limit": len(call.body)}
        try:
            job = self._pool.submit(head, call.body, call.due_at - time.perf_counter())
        except LineFullError:
            most = self._settings.max_in_flight
            raise RefusedError(429, f"more than {most} requests are in flight at this replica") from None
        try:
            return _reply(await job.future)
        except asyncio.CancelledError:
            self._pool.abandon(job)
            raise


def _reply(frame: Frame) -> Reply:
    if frame.kind is Kind.REFUSAL:
        raise RefusedError(frame.head["status"], frame.head["message"], frame.head.get("field"))
    return Reply(frame.body, non_finite=frame.head.get("non_finite", 0))
