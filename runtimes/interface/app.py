"""The interface of a model's pod, as one raw ASGI application.

Owns which request goes where, admission, limits, and what becomes of everything that can go wrong; leaves predicting
to the engine, answers to exchange and the sockets to serving. One idea: all that must hold whatever the engine is
decided here, before an engine hears of a request and after it has answered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from http import HTTPStatus

from runtimes.interface import describe, packing, routes, stateless, threads
from runtimes.interface.deadline import allowed_s
from runtimes.interface.drain import Phase, State
from runtimes.interface.engine import About, Call, CalledEngine, Receive, Reply, Scope, Send, UpstreamEngine
from runtimes.interface.errors import RefusedError, error_body
from runtimes.interface.exchange import Exchange
from runtimes.interface.hooks import Hook, Record, tell
from runtimes.interface.media import Media, parse_media, wanted_form
from runtimes.interface.metrics import CLIENT_LEFT, CONTENT_TYPE, Metrics
from runtimes.interface.patience import ClientLeftError, Patience, Young
from runtimes.interface.requests import Buffered, read_body, request_id, wanted_headers
from runtimes.interface.routes import Does, Route
from runtimes.interface.settings import Settings
from runtimes.interface.upstream import called

_LATE_BODY = "the deadline passed before the whole body had arrived"
_LATE = "the deadline passed before the model answered"
_NOT_READY = "the model is not ready yet"
_ENDING = "this replica is ending"
_NO_BODY = Media("json")
_MOST_DIGITS = 12
_TEXT = b"text/plain; charset=utf-8"
_log = logging.getLogger("runtimes.interface.app")


class Interface:
    """The ASGI application in front of one engine; one instance a process."""

    def __init__(
        self,
        settings: Settings,
        engine: CalledEngine | UpstreamEngine,
        metrics: Metrics,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self._settings = settings
        self._engine = called(engine)
        self._metrics = metrics
        self._hooks = tuple(hooks)
        self._buffered = Buffered(settings.max_buffered_bytes)
        self._young = Young()
        self.state = State(last_request_s=time.perf_counter())
        metrics.in_flight.set_function(lambda: self.state.in_flight)
        metrics.buffered.set_function(lambda: self._buffered.held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        about = self._engine.about
        route = routes.find(path, about.paths if about is not None else frozenset())
        headers = wanted_headers(scope["headers"])
        api = routes.api_of(path) if route is None else route.api
        exchange = Exchange(self._settings, self.state, receive, send, headers, api)
        if route is None or (about is not None and not routes.exists(route, about.paths)):
            await exchange.refuse(RefusedError(404, _no_such_path(about)))
        elif scope["method"] not in route.methods:
            allow = (b"allow", ", ".join(route.methods).encode())
            await exchange.refuse(RefusedError(405, f"only {' and '.join(route.methods)} here"), [allow])
        elif route.does is Does.PREDICT:
            await self._counted(exchange, route, scope)
        else:
            await self._told(exchange, route, scope)

    # What is not a prediction.

    async def _told(self, exchange: Exchange, route: Route, scope: Scope) -> None:
        try:
            if route.does is Does.LIVE:
                await self._alive(exchange)
            elif route.does is Does.METRICS:
                await exchange.answer(200, self._metrics.render(), content_type=CONTENT_TYPE)
            elif route.does is Does.DESCRIBE:
                await self._describe(exchange, route, scope)
            else:
                about = self._ready()
                if about.tells_itself and route.model is not None:  # it knows its models by names of their own
                    await self._describe(exchange, route, scope)
                    return
                describe.check_model(about, route)
                if route.does is Does.VERSION:
                    await exchange.answer(200, about.engine_version.encode(), content_type=_TEXT)
                else:
                    await exchange.answer(200, b'{"status": "ready"}')
        except RefusedError as refusal:
            await exchange.refuse(refusal)
        except ClientLeftError:
            pass
        except Exception:
            _log.exception("a question about the model could not be answered", extra={"request_id": exchange.id})
            await exchange.refuse(RefusedError(500, "the server failed on this request"))

    async def _alive(self, exchange: Exchange) -> None:
        if not self._engine.live:
            raise RefusedError(503, "only a new process can help here")
        await exchange.answer(200, b'{"status": "live"}')

    def _ready(self) -> About:
        about = self._engine.about
        if self.state.phase is not Phase.SERVING:
            raise RefusedError(503, _ENDING)
        if about is None or not self._engine.ready:
            raise RefusedError(503, _NOT_READY)
        return about

    async def _describe(self, exchange: Exchange, route: Route, scope: Scope) -> None:
        about = self._engine.about
        if about is None:
            raise RefusedError(503, _NOT_READY)
        if not about.tells_itself:
            await exchange.reply(Reply(describe.document(about, route)))
            return
        due_at = time.perf_counter() + self._settings.deadline_s
        with Patience(due_at, exchange.receive, _LATE, self._young) as patience:
            patience.watch()
            reply = await self._engine.answer(_call(exchange, scope, _NO_BODY, b"", due_at))
            if reply.pieces is not None:
                await self._stream(exchange, reply, patience)
        if reply.pieces is None:
            await exchange.reply(reply)

    # A prediction.

    async def _counted(self, exchange: Exchange, route: Route, scope: Scope) -> None:
        state = self.state
        began = state.last_request_s = time.perf_counter()
        if self._hooks:
            exchange.record = Record(exchange.id, scope["path"], exchange.headers.get(b"traceparent"), time.time())
        state.in_flight += 1
        code = 500
        try:
            code = await self._outcome(exchange, route, scope, began)
        finally:
            state.in_flight -= 1
            ended = state.last_request_s = time.perf_counter()
            self._metrics.count(code, ended - began)
            if exchange.record is not None:
                exchange.record.status, exchange.record.duration_s = code, ended - began
                self._metrics.hooks_failed.inc(tell(self._hooks, exchange.record))

    async def _outcome(self, exchange: Exchange, route: Route, scope: Scope, began: float) -> int:
        """Answer in any case, unless there is nobody to answer to; the status for the metrics."""
        try:
            await self._predict(exchange, route, scope, began)
            return 200
        except RefusedError as error:
            # Not the error itself: its traceback would keep what was read or unpacked so far until a collection.
            refusal = RefusedError(error.status, error.message, error.field)
        except ClientLeftError:
            return CLIENT_LEFT
        except asyncio.CancelledError:  # the grace period ended
            refusal = RefusedError(503, "this replica ended before the model answered")
        except Exception:
            _log.exception("a request could not be handled", extra={"request_id": exchange.id})
            refusal = RefusedError(500, "the server failed on this request")
        await exchange.refuse(refusal)
        return refusal.status

    async def _predict(self, exchange: Exchange, route: Route, scope: Scope, began: float) -> None:
        about = self._admit()
        if route.model is not None and not about.tells_itself:
            describe.check_model(about, route)
        settings, headers = self._settings, exchange.headers
        media = _NO_BODY
        if scope["method"] != "GET":
            media = parse_media(
                route.api, headers.get(b"content-type"), headers.get(b"content-encoding"), about.tells_itself
            )
        due_at = began + allowed_s(settings.deadline_s, headers.get(b"x-knobless-deadline-ms"))
        with Patience(due_at, exchange.receive, _LATE_BODY, self._young) as patience:
            reply = await self._asked(exchange, scope, media, patience)
            if reply.pieces is not None:
                await self._stream(exchange, reply, patience)
        if reply.non_finite:
            self._metrics.non_finite.inc(reply.non_finite)
        if reply.pieces is None:
            if len(reply.body) > settings.max_answer_bytes:
                raise RefusedError(500, f"the model's answer is larger than {settings.max_answer_bytes} bytes")
            await exchange.reply(reply)

    async def _asked(self, exchange: Exchange, scope: Scope, media: Media, patience: Patience) -> Reply:
        """The engine's reply. The body is held, and counted as that, no longer than until then."""
        body = await self._body(exchange, media)
        try:
            patience.late = _LATE
            patience.watch()
            if scope["path"] == stateless.PATH:
                stateless.check(body)
            return await self._engine.answer(_call(exchange, scope, media, body, patience.due_at))
        finally:
            self._buffered.give_back(len(body))

    def _admit(self) -> About:
        about = self._engine.about
        if self.state.phase is Phase.CLOSING:
            raise RefusedError(503, _ENDING)
        if about is None:
            raise RefusedError(503, _NOT_READY)
        if self.state.in_flight > self._settings.max_in_flight:
            raise RefusedError(429, f"more than {self._settings.max_in_flight} requests are in flight at this replica")
        return about

    async def _body(self, exchange: Exchange, media: Media) -> bytes:
        """The body, unpacked and counted in what is buffered."""
        limit = self._settings.max_body_bytes
        body = await read_body(exchange.receive, limit, exchange.headers.get(b"content-length"), self._buffered)
        exchange.body_read = True
        if media.packed is not None:
            body = await self._unpacked(media.packed, body, limit)
        if exchange.record is not None:
            exchange.record.asked(body)
        return body

    async def _unpacked(self, how: str, body: bytes, limit: int) -> bytes:
        try:
            if len(body) < threads.FROM_BYTES:
                unpacked = packing.unpack(how, body, limit)
            else:
                unpacked = await threads.run(packing.unpack, how, body, limit)
        finally:
            self._buffered.give_back(len(body))
        self._buffered.take(len(unpacked))
        return unpacked

    async def _stream(self, exchange: Exchange, reply: Reply, patience: Patience) -> None:
        """Pass pieces on as they come. The deadline is for the first one; after it the time between two counts."""
        pieces, idle_s = reply.pieces, self._settings.idle_s
        assert pieces is not None
        try:
            piece = await anext(pieces, None)
            patience.late = f"the stream said nothing for {idle_s:g} s"
            patience.due_at = time.perf_counter() + idle_s
            await exchange.begin(reply.headers)
            while piece is not None:
                await exchange.piece(piece)
                patience.due_at = time.perf_counter() + idle_s
                piece = await anext(pieces, None)
        finally:
            await pieces.aclose()
        await exchange.end()


def _call(exchange: Exchange, scope: Scope, media: Media, body: bytes, due_at: float) -> Call:
    headers = exchange.headers
    text = headers.get(b"inference-header-content-length")
    if text is not None and not (text.isdigit() and len(text) <= _MOST_DIGITS and int(text) <= len(body)):
        raise RefusedError(400, "not the length of a header inside this body", "inference-header-content-length")
    return Call(
        exchange.id,
        exchange.api,
        media.kind,
        body,
        due_at,
        scope["path"],
        wanted_form(headers.get(b"accept")),
        None if text is None else int(text),
        headers.get(b"traceparent"),
        scope["method"],
        scope["query_string"],
        scope["headers"],
    )


def _no_such_path(about: About | None) -> str:
    declared = sorted(about.paths) if about is not None else ["/invocations"]
    return f"there is no such path here; predictions are at {', '.join(declared)}"


def protocol_error_answer(status: int, message: str) -> bytes:
    """What a connection gets that no request can come from: the same shape, and the end of the connection."""
    body = error_body(status, message, request_id(None))
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
    head += "retry-after: 1\r\n" if status == 503 else ""
    return head.encode() + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
