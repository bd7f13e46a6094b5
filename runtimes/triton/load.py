"""From a model's folder to a Triton that has answered.

Owns the order: repository, start, self-test, and again without merging where the model turns out to look at its rows
together. Leaves health and requests to engine. One idea: Triton's own word that it is ready is not enough, since it
says so before a model can answer; ready is who has answered.
"""

from __future__ import annotations

import logging
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from runtimes import gpus, quota
from runtimes.interface.errors import RefusedError
from runtimes.mlflow.plan import Plan as Reader
from runtimes.protocols.v2_answer import Output
from runtimes.triton import infer, model, process, questions, repository
from runtimes.triton.config import PYTHON, Plan
from runtimes.triton.model import Network
from runtimes.triton.questions import Rows
from runtimes.triton.server import Server
from runtimes.triton.settings import TritonSettings

_SELF_TEST_S = 300.0
_log = logging.getLogger("runtimes.triton.load")


@dataclass(frozen=True)
class Loaded:
    """A running Triton, what it runs and how; ``reader`` reads requests, ``release`` is Triton's version."""

    server: Server
    network: Network
    plan: Plan
    reader: Reader
    release: str


def scratch() -> Path:
    """A folder for the repository."""
    return Path(tempfile.mkdtemp(prefix="knobless-triton-"))


async def loaded(settings: TritonSettings, root: Path) -> Loaded:
    """A Triton that has answered; RuntimeError with one line where there can be none."""
    network = model.read(settings.model)
    reader = Reader(network.tensors.signature, loads=orjson.loads)
    plan = _plan(settings, repository.backend(network, process.installed(settings.triton), settings.backend))
    rows = questions.rows(None if network.example is None else network.example.read_bytes(), network.tensors)
    if not network.tensors.have_rows:
        plan = replace(plan, merged_rows=0)
    server = await _started(settings, root, network, plan, reader, rows)
    if plan.merges and not await _row_by_row(server, network, reader, rows):
        _log.warning("the model does not answer row by row, so requests are not merged")
        await server.stop()
        plan = replace(plan, merged_rows=0)
        server = await _started(settings, root, network, plan, reader, rows)
    return Loaded(server, network, plan, reader, orjson.loads(await server.release())["version"])


def _plan(settings: TritonSettings, backend: str) -> Plan:
    """On a GPU one instance, which its batches fill; on a CPU one a core, each with its share of the threads."""
    here = gpus.found()
    cpu = quota.cpu(settings.instances, quota.cpu_quota(), quota.own_affinity())
    parameters = (("threads", str(cpu.threads)),) if backend == PYTHON else ()
    instances = (settings.instances or 1) if here else cpu.predictors
    return Plan(backend, settings.merged_rows, instances, bool(here), parameters)


async def _started(
    settings: TritonSettings, root: Path, network: Network, plan: Plan, reader: Reader, rows: Rows
) -> Server:
    """A Triton that has answered; it is ended where it does not."""
    version = int(settings.version) if settings.version.isdigit() else 1
    repository.write(root, settings.name, version, network, plan)
    own = process.environment(settings.triton, settings.model_python, quota.own_affinity())
    server = Server(settings.name, settings.max_answer_bytes)
    try:
        await server.start(settings.triton, root, own)
        try:
            await _ask(server, network, reader, questions.question(rows))
        except RefusedError as refusal:
            what = "a question of zeros and ones" if network.example is None else "its own input example"
            raise RuntimeError(f"the model failed on {what}: {refusal.message}") from None
    except BaseException:
        await server.stop()
        raise
    return server


async def _row_by_row(server: Server, network: Network, reader: Reader, rows: Rows) -> bool:
    two = questions.two_rows(rows)
    parts = (slice(0, 1), slice(1, 2), slice(0, 2))
    try:
        first, second, together = [await _ask(server, network, reader, questions.question(two, part)) for part in parts]
    except RefusedError:
        return False
    return questions.row_by_row(together, (first, second))


async def _ask(server: Server, network: Network, reader: Reader, body: bytes) -> list[Output]:
    tensors = network.tensors
    names = [tensor.name for tensor in tensors.outputs]
    asked, json_bytes = infer.request(
        reader.read_whole(body, "json"), names, int(_SELF_TEST_S * 1e6), tensors.have_rows
    )
    answered = await server.infer(asked, json_bytes, "self-test", lambda: None)
    if answered.status != 200:
        raise RefusedError(500, answered.body[:300].decode(errors="replace"))
    try:
        return infer.outputs(answered, tensors.outputs)
    except infer.BrokenAnswerError as error:
        raise RefusedError(500, str(error)) from None
