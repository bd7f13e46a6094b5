"""Triton as an engine of the serving interface.

Owns its life: repository, start, self-test, whether requests may be merged, health. Leaves inference to Triton and the
way there to server. One idea: Triton's own word that it is ready is not enough, since it says so before a model can
answer; ready is who has answered.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from runtimes import gpus, quota
from runtimes.interface.engine import About, Call, Forwarded
from runtimes.interface.errors import RefusedError
from runtimes.interface.finite import finite
from runtimes.interface.metrics import Metrics
from runtimes.termination import reason_of
from runtimes.triton import model, process, questions, repository
from runtimes.triton.config import PYTHON, Plan
from runtimes.triton.model import Network
from runtimes.triton.refusals import reworded
from runtimes.triton.server import Server
from runtimes.triton.settings import TritonSettings
from runtimes.triton.tensors import Tensor

_LOOK_S = 0.5
STALLED_S = 3.0  # without an answer to a question that costs nothing: not ready
_log = logging.getLogger("runtimes.triton.engine")


class TritonEngine(Collector):
    """One Triton process with one model."""

    def __init__(self, settings: TritonSettings, metrics: Metrics) -> None:
        self._settings = settings
        self._scratch = Path(tempfile.mkdtemp(prefix="knobless-triton-"))
        self._server: Server | None = None
        self._watching: asyncio.Task[None] | None = None
        self._answered_at = time.perf_counter()
        self._metrics_text = b""
        metrics.also(self)
        self.about: About | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def ready(self) -> bool:
        """Whether Triton answered lately."""
        return self.about is not None and self._silent_s() < STALLED_S

    @property
    def live(self) -> bool:
        """False once it said nothing for longer than anything it does takes; loading has its own limit."""
        return self.about is None or self._silent_s() < self._settings.stuck_s

    async def start(self) -> None:
        """Write the repository, start Triton on it, and see that the model answers."""
        try:
            async with asyncio.timeout(self._settings.load_timeout_s):
                self._server, self.about = await self._loaded()
        except TimeoutError:
            self._fail(f"the model did not load within {self._settings.load_timeout_s:g} s")
        except RuntimeError as error:
            self._fail(str(error))
        except OSError as error:
            self._fail(reason_of(error))
        else:
            self._answered_at = time.perf_counter()
            self._watching = asyncio.create_task(self._watch(self._server))

    async def stop(self) -> None:
        """End Triton; nobody waits for it any more."""
        if self._watching is not None:
            self._watching.cancel()
        if self._server is not None:
            await self._server.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    async def forward(self, call: Call) -> Forwarded:
        """Triton's answer; RefusedError where it is an error."""
        assert self._server is not None
        request = call.body if call.json_bytes is None else call.body[: call.json_bytes]
        answered = await self._server.forward(call)
        if answered.status >= 400:
            raise reworded(answered.status, answered.body, request, self._settings.name)
        return answered

    def collect(self) -> list[Metric]:
        """Triton's own metrics, as they were a moment ago."""
        found = [family for family in _families(self._metrics_text) if family.name.startswith("nv_inference")]
        for family in found:
            family.type = "unknown"  # its counters lack the ending that counters have
        return found

    def _silent_s(self) -> float:
        return time.perf_counter() - self._answered_at

    def _fail(self, reason: str) -> None:
        if not self.failed.done():
            self.failed.set_result(reason)

    async def _watch(self, server: Server) -> None:
        ended = asyncio.create_task(server.ended())
        while not ended.done():
            if await server.loaded():
                self._answered_at = time.perf_counter()
            try:
                self._metrics_text = await server.metrics()
            except RefusedError:
                _log.warning("Triton has no metrics now")
            await asyncio.wait([ended], timeout=_LOOK_S)
        self._fail(ended.result())

    # Loading.

    async def _loaded(self) -> tuple[Server, About]:
        settings = self._settings
        network = model.read(settings.model)
        backend = repository.backend(network, process.installed(settings.triton), settings.backend)
        plan, rows = _plan(settings, backend), _rows(network)
        server = await self._started(network, plan, rows)
        if network.tensors.have_rows and not await _row_by_row(server, network, rows):
            _log.warning("the model does not answer row by row, so requests are not merged")
            await server.stop()
            server = await self._started(network, replace(plan, merged_rows=0), rows)
        release = orjson.loads(await server.release())["version"]
        return server, _about(settings, network, backend, release)

    async def _started(self, network: Network, plan: Plan, rows: questions.Rows) -> Server:
        """A Triton that has answered; it is ended where it does not."""
        settings = self._settings
        version = int(settings.version) if settings.version.isdigit() else 1
        repository.write(self._scratch, settings.name, version, network, plan)
        own = process.environment(settings.triton, settings.model_python, quota.own_affinity())
        server = Server(settings.name, settings.max_answer_bytes)
        try:
            await server.start(settings.triton, self._scratch, own)
            await _self_test(server, network, rows)
        except BaseException:
            await server.stop()
            raise
        return server


def _plan(settings: TritonSettings, backend: str) -> Plan:
    """On a GPU one instance, which its batches fill; on a CPU one a core, each with its share of the threads."""
    here = gpus.found()
    cpu = quota.cpu(settings.instances, quota.cpu_quota(), quota.own_affinity())
    parameters = (("threads", str(cpu.threads)),) if backend == PYTHON else ()
    instances = (settings.instances or 1) if here else cpu.predictors
    return Plan(backend, settings.merged_rows, instances, bool(here), parameters)


async def _self_test(server: Server, network: Network, rows: questions.Rows) -> None:
    answered = await server.infer(questions.question(network.tensors, rows))
    if answered.status != 200:
        what = "a question of zeros and ones" if network.example is None else "its own input example"
        raise RuntimeError(f"the model failed on {what}: {answered.body[:300].decode(errors='replace')}")


async def _row_by_row(server: Server, network: Network, rows: questions.Rows) -> bool:
    two = questions.two_rows(rows)
    parts = (slice(0, 1), slice(1, 2), slice(0, 2))
    asked = [await server.infer(questions.question(network.tensors, two, part)) for part in parts]
    if any(answer.status != 200 for answer in asked):
        return False
    first, second, together = (finite(answer.body)[0] for answer in asked)
    return questions.row_by_row(together, (first, second))


def _rows(network: Network) -> questions.Rows:
    example = None if network.example is None else network.example.read_bytes()
    found = None if example is None else questions.from_example(example, network.tensors)
    return found or questions.made_up(network.tensors)


def _about(settings: TritonSettings, network: Network, backend: str, release: str) -> About:
    rows = network.tensors.have_rows
    return About(
        settings.name,
        settings.version,
        f"triton_{backend}",
        release,
        frozenset({"/v2"}),
        [_described(tensor, rows) for tensor in network.tensors.inputs],
        [_described(tensor, rows) for tensor in network.tensors.outputs],
    )


def _described(tensor: Tensor, rows: bool) -> dict[str, Any]:
    shape = [*tensor.shape, 1] if rows and len(tensor.shape) == 1 else list(tensor.shape)
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": shape}


def _families(text: bytes) -> list[Metric]:
    return list(text_string_to_metric_families(text.decode()))
