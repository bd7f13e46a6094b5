"""The MLflow engine: predictor processes behind the one serving interface.

Owns what the interface asks of an engine: reading a request with the plan, running it, and writing its answer in the
protocol that it came by. Leaves the line and the batches to pool and the processes to fleet. One idea: a request whose
task is cancelled is abandoned in the pool, so that it never starts where it still waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import orjson

from runtimes.interface import metrics as interface
from runtimes.interface.engine import About, Api, Call, Reply
from runtimes.interface.sse import event
from runtimes.mlflow import describe
from runtimes.mlflow.answers import Result, encode_mlflow
from runtimes.mlflow.bodies import SPOKEN
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.fleet import Fleet
from runtimes.mlflow.launch import Launched, usable
from runtimes.mlflow.line import LineFullError
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.pieces import Pieces
from runtimes.mlflow.plan import BODY_LAYOUT, Plan, Work
from runtimes.mlflow.pool import Pool
from runtimes.mlflow.predictor import Loaded
from runtimes.mlflow.settings import Settings
from runtimes.mlflow.signature import parse_signature
from runtimes.protocols import v2, v2_answer

_EMPTY = b'{"predictions":[]}'
_DONE = b"data: [DONE]\n\n"
_SPOKEN = tuple(f'"{key}"'.encode() for key in SPOKEN)


class MlflowEngine:
    """One model in predictor processes of its own environment."""

    def __init__(self, settings: Settings, metrics: interface.Metrics, first: Launched | None = None) -> None:
        self._settings = settings
        own = Metrics(metrics)
        fleet = Fleet(settings, usable(settings), own, self._example, first)
        self._fleet = fleet
        self._pool = Pool(fleet, settings.deadline_s, settings.max_in_flight, own)
        self._plan: Plan | None = None
        self._about: About | None = None
        self._speaks = False
        self.failed: asyncio.Future[str] = fleet.failed

    @property
    def about(self) -> About | None:
        if self._about is None and (loaded := self._fleet.loaded) is not None:
            self._about = describe.about(self._settings.name, self._settings.version, loaded.head)
        return self._about

    @property
    def ready(self) -> bool:
        return self._fleet.ready

    @property
    def live(self) -> bool:
        return True  # a stuck predictor is replaced, and where that can't be done the process ends by itself

    async def start(self) -> None:
        await self._fleet.start()
        if self._fleet.loaded is not None:
            self._planned(self._fleet.loaded)

    async def stop(self) -> None:
        await self._fleet.stop()

    async def answer(self, call: Call) -> Reply:
        """The model's answer to one request, in the protocol that it came by."""
        plan = self._plan
        assert plan is not None, "a request before the model has loaded"
        if call.api is Api.V2:
            return await self._v2(plan, call)
        if call.media == "json" and (call.api is Api.OPENAI or self._is_spoken(plan, call.body)):
            return await self._chat(call)
        if call.media in ("parquet", "arrow"):
            work = await _columnar(plan, call)
        else:
            work = plan.read(call.body, call.media)
        if work.rows == 0:
            return Reply(_EMPTY, client_request_id=work.client_request_id)
        result = await self._run(work, call.request_id, as_text=call.wants == "json")
        client_request_id = work.client_request_id or result.client_request_id
        if call.wants == "arrow":
            return await _arrow_reply(result, client_request_id)
        body, non_finite = encode_mlflow(result)
        return Reply(body, non_finite=non_finite, client_request_id=client_request_id)

    async def _run(self, work: Work, request_id: str, *, as_text: bool, streamed: bool = False) -> Any:
        """The result, or the pieces of one."""
        try:
            job = self._pool.submit(work, request_id, as_text=as_text, streamed=streamed)
        except LineFullError:
            most = self._settings.max_in_flight
            raise RefusedError(429, f"more than {most} requests are in flight at this replica") from None
        try:
            return await job.future
        except asyncio.CancelledError:
            self._pool.abandon(job)
            raise

    async def _v2(self, plan: Plan, call: Call) -> Reply:
        asked = v2.parse(call.body, call.json_bytes, orjson.loads)
        work = v2.work(asked, plan)
        result = Result([]) if work.rows == 0 else await self._run(work, call.request_id, as_text=False)
        loaded = self._fleet.loaded
        assert loaded is not None
        return v2_answer.reply(asked, result, self._settings.name, self._settings.version, loaded.head["outputs"])

    async def _chat(self, call: Call) -> Reply:
        work = _unread(call.body)
        loaded = self._fleet.loaded
        if loaded is None or not loaded.head["streams"] or not _wants_stream(call.body):
            result = await self._run(work, call.request_id, as_text=True)
            body, non_finite = encode_mlflow(result)
            if call.api is Api.OPENAI:
                body = _single(body)
            return Reply(body, non_finite=non_finite, client_request_id=result.client_request_id)
        pieces: Pieces = await self._run(work, call.request_id, as_text=True, streamed=True)
        try:
            await pieces.ready()
        except BaseException:
            await pieces.aclose()
            raise
        return Reply(pieces=Events(pieces, done=call.api is Api.OPENAI and call.path != "/v1/responses"))

    def _example(self, loaded: Loaded, example: bytes) -> Work:
        """The model's own example as a request."""
        plan = self._planned(loaded)
        return _unread(example) if self._is_spoken(plan, example) else plan.read(example, "json")

    def _is_spoken(self, plan: Plan, body: bytes) -> bool:
        """Whether a body is for the model's own side to read, which alone knows a chat or texts to embed."""
        if plan.chat or not self._speaks or not any(key in body for key in _SPOKEN):
            return plan.chat  # a table of megabytes is not parsed to find that out
        try:
            document = orjson.loads(body)
        except ValueError:
            return False  # the plan says what is wrong with it
        return isinstance(document, dict) and any(key in document for key in SPOKEN)

    def _planned(self, loaded: Loaded) -> Plan:
        """The plan, which is compiled from what the first predictor says."""
        if self._plan is None:
            head = loaded.head
            signature = parse_signature(head["inputs"], head["params"], raw=head["raw"])
            self._plan = plan = Plan(signature, chat=head["chat"], loads=orjson.loads)
            compiled = plan.tables.layout if plan.tables else plan.tensors.layout if plan.tensors else None
            self._speaks = bool(head["speaks"])
            self._pool.usual, self._pool.shares = compiled, bool(head["row_wise"])
        return self._plan


class Events(AsyncGenerator[bytes, None]):
    """Pieces as server-sent events, with OpenAI's last word where its API is spoken."""

    def __init__(self, pieces: Pieces, *, done: bool) -> None:
        self._pieces = pieces
        self._last = [_DONE] if done else []

    async def asend(self, value: None) -> bytes:
        try:
            return event(await self._pieces.asend(None))
        except StopAsyncIteration:
            if self._last:
                return self._last.pop()
            raise

    async def athrow(self, typ: Any, val: Any = None, tb: Any = None) -> bytes:
        return await self._pieces.athrow(typ, val, tb)


async def _columnar(plan: Plan, call: Call) -> Work:
    """A request of columns; reading them, and the first import of what reads them, would hold up every other one."""
    from runtimes.mlflow import arrow

    if plan.reads:
        blocks = await asyncio.to_thread(arrow.read, call.body, call.media, plan)
        return Work(blocks.layout, blocks.buffers, blocks.rows)
    body = await asyncio.to_thread(arrow.as_parquet, call.body, call.media)
    return Work(BODY_LAYOUT, [body], None, "parquet", alone=True)


async def _arrow_reply(result: Result, client_request_id: str | None) -> Reply:
    from runtimes.mlflow import arrow

    body = await asyncio.to_thread(arrow.write, result)
    return Reply(body, content_type=arrow.STREAM, client_request_id=client_request_id)


def _single(body: bytes) -> bytes:
    """A list of one answer as the answer: several of MLflow's flavors take one chat for a batch of one."""
    if not body.startswith(b"["):
        return body
    answers = orjson.loads(body)
    return orjson.dumps(answers[0]) if len(answers) == 1 else body


def _unread(body: bytes) -> Work:
    return Work(BODY_LAYOUT, [body], None, alone=True)


def _wants_stream(body: bytes) -> bool:
    if b'"stream"' not in body:
        return False
    try:
        document = orjson.loads(body)
    except ValueError:
        return False  # the predictor says what is wrong with it
    return isinstance(document, dict) and document.get("stream") is True
