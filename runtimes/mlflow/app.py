"""The HTTP interface of a model's pod, as one raw ASGI application.

Owns the routes, the statuses and what a client sees; leaves predicting to the pool and the sockets to serving. One
idea: every answer goes out through one function, so no path can have another error shape, lose the request id, or keep
a connection open while the process drains.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from enum import Enum

from runtimes.mlflow.deadline import allowed_s
from runtimes.mlflow.errors import RefusedError, error_body
from runtimes.mlflow.frames import Frame, Kind
from runtimes.mlflow.line import LineFullError
from runtimes.mlflow.media import parse_media
from runtimes.mlflow.metrics import CLIENT_LEFT, CONTENT_TYPE, Metrics
from runtimes.mlflow.pool import Job, Pool
from runtimes.mlflow.requests import (
    Buffered,
    ClientLeftError,
    Receive,
    Scope,
    Send,
    discard_body,
    read_body,
    request_id,
    wanted_headers,
)
from runtimes.mlflow.settings import Settings

_JSON = b"application/json"
_DISCARD_S = 5.0
_METHODS = {
    "/invocations": ("POST",),
    "/ping": ("GET", "HEAD"),
    "/health": ("GET", "HEAD"),
    "/version": ("GET", "HEAD"),
    "/live": ("GET", "HEAD"),
    "/metrics": ("GET", "HEAD"),
}
_log = logging.getLogger("runtimes.mlflow.app")


class Phase(Enum):
    """Where the process stands between its start and its end."""

    SERVING = "serving"  # ready once the pool is
    DRAINING = "draining"  # told to end: not ready, but what still arrives is served
    CLOSING = "closing"  # only what was accepted before is finished


class App:
    """The ASGI application; one instance a process."""

    def __init__(self, settings: Settings, pool: Pool, metrics: Metrics) -> None:
        self._settings = settings
        self._pool = pool
        self._metrics = metrics
        self._buffered = Buffered(settings.max_buffered_bytes)
        self._version = settings.version.encode()
        self.phase = Phase.SERVING
        self.in_flight = 0
        self.last_request_s = time.monotonic()
        metrics.in_flight.set_function(lambda: self.in_flight)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = wanted_headers(scope["headers"])
        exchange = Exchange(self, receive, send, headers, request_id(headers.get(b"x-request-id")))
        methods = _METHODS.get(scope["path"])
        if methods is None:
            await exchange.refuse(RefusedError(404, "there is no such path here; predictions are at POST /invocations"))
        elif scope["method"] not in methods:
            allow = (b"allow", ", ".join(methods).encode())
            await exchange.refuse(RefusedError(405, f"only {' and '.join(methods)} here"), allow)
        elif scope["path"] == "/invocations":
            await self._invocations(exchange)
        else:
            await self._about(scope["path"], exchange)

    async def _about(self, path: str, exchange: Exchange) -> None:
        if path == "/live":
            await exchange.answer(200, b'{"status": "live"}')
        elif path == "/metrics":
            await exchange.answer(200, self._metrics.render(), content_type=CONTENT_TYPE)
        elif self.phase is not Phase.SERVING:
            await exchange.refuse(RefusedError(503, "this replica is ending"))
        elif not self._pool.ready or self._pool.loaded is None:
            await exchange.refuse(RefusedError(503, "the model is not ready yet"))
        elif path == "/version":
            # Like MLflow's own server: the plain version of the MLflow that predicts.
            await exchange.answer(200, self._pool.loaded.mlflow.encode())
        else:
            await exchange.answer(200, b'{"status": "ready"}')

    async def _invocations(self, exchange: Exchange) -> None:
        began = time.perf_counter()
        self.last_request_s = time.monotonic()
        self.in_flight += 1
        code = 500
        try:
            code = await self._predict(exchange)
        except RefusedError as refusal:
            code = refusal.status
            await exchange.refuse(refusal)
        except ClientLeftError:
            code = CLIENT_LEFT
        except asyncio.CancelledError:  # the grace period ended
            code = 503
            await exchange.refuse(RefusedError(503, "this replica ended before the model answered"))
        except Exception:
            _log.exception("a request could not be handled", extra={"request_id": exchange.id})
            await exchange.refuse(RefusedError(500, "the server failed on this request"))
        finally:
            self.in_flight -= 1
            self.last_request_s = time.monotonic()
            self._metrics.count(code, time.perf_counter() - began)

    async def _predict(self, exchange: Exchange) -> int:
        self._admit()
        headers = exchange.headers
        media = parse_media(_text(headers.get(b"content-type")), _text(headers.get(b"content-encoding")))
        due_at = time.perf_counter() + allowed_s(self._settings.deadline_s, headers.get(b"x-knobless-deadline-ms"))
        limit = self._settings.max_body_bytes
        body = await self._body(exchange, limit, due_at)
        try:
            head = {"request_id": exchange.id, "media": media.kind, "gzip": media.gzip, "limit": limit}
            frame = await self._run(exchange, head, body, due_at)
        finally:
            self._buffered.give_back(len(body))
        if frame.kind is Kind.REFUSAL:
            raise RefusedError(frame.head["status"], frame.head["message"], frame.head.get("field"))
        if non_finite := frame.head.get("non_finite"):
            self._metrics.non_finite.inc(non_finite)
        await exchange.answer(200, frame.body)
        return 200

    def _admit(self) -> None:
        if self.phase is Phase.CLOSING:
            raise RefusedError(503, "this replica is ending")
        if not self._pool.started:
            raise RefusedError(503, "the model is not ready yet")
        if self.in_flight > self._settings.max_in_flight:
            raise _too_many(self._settings.max_in_flight)

    async def _body(self, exchange: Exchange, limit: int, due_at: float) -> bytes:
        try:
            async with asyncio.timeout(due_at - time.perf_counter()):
                return await read_body(exchange.receive, limit, exchange.headers.get(b"content-length"), self._buffered)
        except TimeoutError:
            raise RefusedError(504, "the deadline passed before the whole body had arrived") from None

    async def _run(self, exchange: Exchange, head: dict[str, object], body: bytes, due_at: float) -> Frame:
        left_s = due_at - time.perf_counter()
        if left_s <= 0:
            raise RefusedError(504, "the deadline passed before the model could start")
        try:
            job = self._pool.submit(head, body, left_s)
        except LineFullError:
            raise _too_many(self._settings.max_in_flight) from None
        try:
            if not job.started:
                await _turn(job, exchange.receive)
            return await job.future
        except BaseException:
            self._pool.abandon(job)
            raise


class Exchange:
    """One request and the one answer to it."""

    def __init__(self, app: App, receive: Receive, send: Send, headers: dict[bytes, bytes], own_id: str) -> None:
        self._app = app
        self.receive = receive
        self._send = send
        self.headers = headers
        self.id = own_id

    async def answer(
        self, status: int, body: bytes, *extra: tuple[bytes, bytes], content_type: bytes = _JSON, last: bool = True
    ) -> None:
        """Send the answer; ``last`` is false where the caller still wants to read from the connection."""
        headers = [
            (b"content-type", content_type),
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", self.id.encode()),
            (b"x-knobless-model-version", self._app._version),
            *extra,
        ]
        if self._app.phase is not Phase.SERVING and (b"connection", b"close") not in headers:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def refuse(self, refusal: RefusedError, *extra: tuple[bytes, bytes]) -> None:
        """Send an error in the one shape."""
        headers = list(extra)
        if refusal.status in (429, 503):
            headers.append((b"retry-after", b"1"))
        body = error_body(refusal.status, refusal.message, self.id, refusal.field)
        if refusal.status == 500:
            _log.error("answered 500", extra={"request_id": self.id})
        if refusal.status != 413:
            await self.answer(refusal.status, body, *headers)
            return
        await self.answer(413, body, *headers, (b"connection", b"close"), last=False)
        if b"expect" not in self.headers:  # one who waits for `100 Continue` has sent nothing
            with suppress(TimeoutError):
                async with asyncio.timeout(_DISCARD_S):
                    await discard_body(self.receive, self._app._settings.max_body_bytes)
        await self._send({"type": "http.response.body", "body": b""})


async def _turn(job: Job, receive: Receive) -> None:
    """Wait for the answer or for the client to leave, whichever comes first."""
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((job.future, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not job.future.done():
            raise ClientLeftError
    finally:
        leaving.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_many(most: int) -> RefusedError:
    return RefusedError(429, f"more than {most} requests are in flight at this replica")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def protocol_error_answer() -> bytes:
    """What a connection gets that does not speak HTTP: the same shape, and the end of the connection."""
    body = error_body(400, "this is not a valid HTTP request", request_id(None))
    head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"connection: close\r\n\r\n" + body
