"""Triton as an engine of the serving interface.

Owns what becomes of a request: read by the plan of the model's signature, as in front of any MLflow model, then run by
Triton, then written in the protocol that it came by. Leaves Triton's start to load. One idea: every rule for values and
errors holds here too, since it is the same code that keeps them.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import orjson
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from runtimes.interface.engine import About, Api, Call, Reply
from runtimes.interface.errors import MODEL_FAILED, RefusedError
from runtimes.interface.metrics import Metrics
from runtimes.mlflow.plan import LARGEST_READ_HERE, Work
from runtimes.protocols import v2, v2_answer
from runtimes.protocols.v2_answer import Output
from runtimes.termination import reason_of
from runtimes.triton import infer, load
from runtimes.triton.load import Loaded
from runtimes.triton.model import ONNX
from runtimes.triton.running import Running
from runtimes.triton.settings import TritonSettings
from runtimes.triton.tensors import Tensor

_LOOK_S = 0.5
_EMPTY = b'{"predictions":[]}'
STALLED_S = 3.0  # without an answer to a question that costs nothing: not ready
_log = logging.getLogger("runtimes.triton.engine")


class TritonEngine(Collector):
    """One Triton process with one model."""

    def __init__(self, settings: TritonSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._scratch = load.scratch()
        self._loaded: Loaded | None = None
        self._running = Running(1, 1)
        self._watching: asyncio.Task[None] | None = None
        self._answered_at = time.perf_counter()
        self._metrics_text = b""
        metrics.also(self)
        self.about: About | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def ready(self) -> bool:
        """Whether Triton answered lately and has an instance that is not stuck."""
        if self.about is None or self._silent_s() >= STALLED_S:
            return False
        return not self._running.stuck(self._settings.deadline_s)

    @property
    def live(self) -> bool:
        """False once nothing came for longer than anything takes; loading has its own limit."""
        most_s = self._settings.stuck_s
        if self.about is None:
            return True
        return self._silent_s() < most_s and not self._running.stuck(self._settings.deadline_s + most_s)

    async def start(self) -> None:
        """Start Triton on a repository made from the model, and see that the model answers."""
        settings = self._settings
        try:
            async with asyncio.timeout(settings.load_timeout_s):
                self._loaded = loaded = await load.loaded(settings, self._scratch)
        except TimeoutError:
            self._fail(f"the model did not load within {settings.load_timeout_s:g} s")
        except RuntimeError as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(reason_of(error))
        else:
            plan = loaded.plan
            self._running = Running(settings.max_in_flight if plan.merges else plan.instances, plan.instances)
            self._answered_at = time.perf_counter()
            self._watching = asyncio.create_task(self._watch(loaded))
            self.about = _about(settings, loaded)

    async def stop(self) -> None:
        """End Triton; nobody waits for it any more."""
        if self._watching is not None:
            self._watching.cancel()
        if self._loaded is not None:
            await self._loaded.server.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def answer(self, call: Call) -> Reply:
        """The model's answer to one request, in the protocol that it came by."""
        loaded = self._loaded
        assert loaded is not None, "a request before the model has loaded"
        if call.api is Api.V2:
            return await self._v2(loaded, call)
        work = await _read(loaded, call)
        if work.rows == 0:
            return Reply(_EMPTY, client_request_id=work.client_request_id)
        outputs = loaded.network.tensors.outputs
        answered = await self._run(loaded, work, [tensor.name for tensor in outputs], call)
        body, non_finite = infer.predictions(answered, bare=loaded.network.kind != ONNX and len(outputs) == 1)
        return Reply(body, non_finite=non_finite, client_request_id=work.client_request_id)

    async def _v2(self, loaded: Loaded, call: Call) -> Reply:
        asked = v2.parse(call.body, call.json_bytes, orjson.loads)
        work = v2.work(asked, loaded.reader)
        names = [tensor.name for tensor in loaded.network.tensors.outputs]
        wanted = [output.name for output in asked.outputs if output.name in names] or names
        if work.rows:
            answered = await self._run(loaded, work, wanted, call)
        else:
            answered = [infer.without_rows(tensor) for tensor in loaded.network.tensors.outputs]
        return v2_answer.written(asked, answered, self._settings.name, self._settings.version)

    async def _run(self, loaded: Loaded, work: Work, wanted: Sequence[str], call: Call) -> list[Output]:
        tensors = loaded.network.tensors
        left_us = int((call.due_at - time.perf_counter()) * 1e6)
        body, json_bytes = infer.request(work, wanted, left_us, tensors.have_rows)
        ask = partial(loaded.server.infer, body, json_bytes, call.request_id)
        answered = await self._running.run(ask)
        try:
            if answered.status == 200:
                return infer.outputs(answered, tensors.outputs)
            said = answered.body[:1000].decode(errors="replace")
        except infer.BrokenAnswerError as error:
            said = str(error)
        _log.error("Triton did not answer", extra={"request_id": call.request_id, "reason": said})
        raise RefusedError(500, MODEL_FAILED)

    # Health and metrics.

    def collect(self) -> list[Metric]:
        """Triton's own metrics, as they were a moment ago."""
        families = text_string_to_metric_families(self._metrics_text.decode())
        return [_as_told(family) for family in families if family.name.startswith("nv_inference")]

    def _silent_s(self) -> float:
        return time.perf_counter() - self._answered_at

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

    async def _watch(self, loaded: Loaded) -> None:
        ended = asyncio.create_task(loaded.server.ended())
        while not ended.done():
            if await loaded.server.loaded():
                self._answered_at = time.perf_counter()
            try:
                self._metrics_text = await loaded.server.metrics()
            except RefusedError:
                _log.warning("Triton has no metrics now")
            await asyncio.wait([ended], timeout=_LOOK_S)
        self._fail(ended.result())


def _as_told(family: Metric) -> Metric:
    """Under Triton's own names: its counters lack the ending that counters have, and the parser adds it."""
    same = Metric(family.name, family.documentation, "unknown")
    same.samples = [sample._replace(name=sample.name.removesuffix("_total")) for sample in family.samples]
    return same


async def _read(loaded: Loaded, call: Call) -> Work:
    """The request by the plan; what takes long is read beside the others."""
    if call.media in ("parquet", "arrow"):
        from runtimes.mlflow import arrow

        blocks = await asyncio.to_thread(arrow.read, call.body, call.media, loaded.reader)
        return Work(blocks.layout, blocks.buffers, blocks.rows)
    if len(call.body) > LARGEST_READ_HERE:
        return await asyncio.to_thread(loaded.reader.read_whole, call.body, call.media)
    return loaded.reader.read_whole(call.body, call.media)


def _about(settings: TritonSettings, loaded: Loaded) -> About:
    tensors = loaded.network.tensors
    return About(
        settings.name,
        settings.version,
        f"triton_{loaded.plan.backend}",
        loaded.release,
        frozenset({"/v2", "/invocations"}),
        [_described(tensor) for tensor in tensors.inputs],
        [_described(tensor) for tensor in tensors.outputs],
    )


def _described(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
