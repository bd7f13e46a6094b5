"""One request and the one answer to it.

Owns the headers of every answer, packing, errors in the shape of their path, and streams. Leaves what is in an answer
to app. One idea: everything goes out through here, so no path can have another error shape, lose the request id, or
keep a connection open while the process drains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from runtimes.interface import packing, threads
from runtimes.interface.drain import Phase, State
from runtimes.interface.engine import EVENTS, JSON, Api, Header, Receive, Reply, Send
from runtimes.interface.errors import RefusedError, error_body
from runtimes.interface.hooks import Record
from runtimes.interface.requests import discard_body, request_id
from runtimes.interface.settings import Settings
from runtimes.interface.sse import event

_DISCARD_S = 5.0
_LAST_WORD_S = 1.0
_CLOSE = (b"connection", b"close")
_log = logging.getLogger("runtimes.interface.exchange")


class Exchange:
    """One request and the one answer to it."""

    __slots__ = ("_send", "_settings", "_state", "api", "body_read", "headers", "id", "receive", "record", "streaming")

    def __init__(
        self, settings: Settings, state: State, receive: Receive, send: Send, headers: dict[bytes, bytes], api: Api
    ) -> None:
        self._settings = settings
        self._state = state
        self._send = send
        self.receive = receive
        self.headers = headers
        self.api = api
        self.id = request_id(headers.get(b"x-request-id"))
        self.record: Record | None = None
        self.body_read = False
        self.streaming = False

    async def reply(self, reply: Reply) -> None:
        """A successful answer, packed where the client asked for it and it is worth it."""
        body, extra = reply.body, list(reply.headers)
        if self.record is not None:
            self.record.answered(body)
            self.record.client_request_id = reply.client_request_id
        if reply.client_request_id is not None:
            extra.append((b"x-client-request-id", _header_safe(reply.client_request_id)))
        if len(body) >= packing.PACK_FROM_BYTES:
            body = await self._packed(body, extra)
        await self.answer(reply.status, body, extra, content_type=reply.content_type)

    async def answer(
        self, status: int, body: bytes, extra: Sequence[Header] = (), content_type: bytes = JSON, last: bool = True
    ) -> None:
        """Send an answer; ``last`` is false where the caller still wants to read from the connection."""
        headers = self._head(content_type, extra)
        headers.append((b"content-length", b"%d" % len(body)))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": not last})

    async def refuse(self, refusal: RefusedError, extra: Sequence[Header] = ()) -> None:
        """Send an error in the shape of its path; in the middle of a stream, as its last event."""
        body = error_body(refusal.status, refusal.message, self.id, refusal.field, self.api)
        if self.record is not None:
            self.record.answered(body)
        if refusal.status == 500:
            _log.error("answered 500", extra={"request_id": self.id})
        if self.streaming:
            with suppress(TimeoutError):  # the client may be one that reads nothing
                async with asyncio.timeout(_LAST_WORD_S):
                    await self.piece(event(body))
                    await self.end()
            return
        headers = list(extra)
        if refusal.status in (429, 503):
            headers.append((b"retry-after", b"1"))
        if refusal.status == 413 and not self.body_read:
            await self._refuse_unread(body, headers)
        else:
            await self.answer(refusal.status, body, headers)

    async def begin(self, headers: Sequence[Header]) -> None:
        """The head of a streamed answer."""
        extra = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"), *headers]
        self.streaming = True
        await self._send({"type": "http.response.start", "status": 200, "headers": self._head(EVENTS, extra)})

    async def piece(self, piece: bytes) -> None:
        """The next events of a streamed answer."""
        if self.record is not None:
            self.record.answered(piece)
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """Nothing follows."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _head(self, content_type: bytes, extra: Sequence[Header]) -> list[Header]:
        headers = [
            (b"content-type", content_type),
            (b"x-request-id", self.id.encode()),
            (b"x-knobless-model-version", self._settings.version.encode()),
            *extra,
        ]
        if self._state.phase is not Phase.SERVING and _CLOSE not in headers:
            headers.append(_CLOSE)
        return headers

    async def _packed(self, body: bytes, extra: list[Header]) -> bytes:
        extra.append((b"vary", b"accept-encoding"))
        accepted = self.headers.get(b"accept-encoding")
        how = packing.chosen(accepted) if accepted else None
        if how is None:
            return body
        extra.append((b"content-encoding", how.encode()))
        if len(body) < threads.FROM_BYTES:
            return packing.pack(how, body)
        return await threads.run(packing.pack, how, body)

    async def _refuse_unread(self, body: bytes, headers: list[Header]) -> None:
        await self.answer(413, body, [*headers, _CLOSE], last=False)
        if b"expect" not in self.headers:  # one who waits for `100 Continue` has sent nothing
            with suppress(TimeoutError):
                async with asyncio.timeout(_DISCARD_S):
                    await discard_body(self.receive, self._settings.max_body_bytes)
        await self._send({"type": "http.response.body", "body": b""})


def _header_safe(text: str) -> bytes:
    return "".join(character if " " <= character <= "~" else "?" for character in text[:128]).encode()
