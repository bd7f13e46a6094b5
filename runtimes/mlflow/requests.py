"""Reading a request from ASGI.

Owns headers, the request id and the bounded body; leaves the answer to app. One idea: nothing is buffered that was not
admitted, neither by length nor piece by piece.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from runtimes.mlflow.errors import RefusedError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_SAFE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_WANTED = frozenset(
    {b"content-type", b"content-encoding", b"content-length", b"x-request-id", b"x-knobless-deadline-ms", b"expect"}
)
_DISCARD_FACTOR = 4  # of a refused body that is read on, so that the client sees the answer and not a reset


class ClientLeftError(Exception):
    """The client closed its connection before it got an answer."""


class Buffered:
    """The bytes of bodies in memory, over all requests, against their bound."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def take(self, count: int) -> None:
        if self.held + count > self._limit:
            raise RefusedError(429, "the bodies of the requests in flight fill this replica's memory")
        self.held += count

    def give_back(self, count: int) -> None:
        self.held -= count


def wanted_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers that this server reads."""
    return {name: value for name, value in headers if name in _WANTED}


def request_id(given: bytes | None) -> str:
    """The client's request id where it is safe to repeat, a new one otherwise."""
    if given is not None and _SAFE_ID.fullmatch(given):
        return given.decode("ascii")
    return uuid.uuid4().hex


async def read_body(receive: Receive, limit: int, length: bytes | None, buffered: Buffered) -> bytes:
    """The whole body, counted in ``buffered``, which the caller gives back; 413 as soon as it is too long."""
    if length is not None and int(length) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            if part := message.get("body", b""):
                size += len(part)
                if size > limit:
                    size -= len(part)
                    raise too_large(limit)
                buffered.take(len(part))
                parts.append(part)
            if not message.get("more_body"):
                return parts[0] if len(parts) == 1 else b"".join(parts)
    except BaseException:
        buffered.give_back(sum(map(len, parts)))
        raise


async def discard_body(receive: Receive, limit: int) -> None:
    """Read on for a while and forget it: closing on unread bytes would reset the connection under the answer."""
    left = limit * _DISCARD_FACTOR
    while left > 0:
        message = await receive()
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return
        left -= len(message.get("body", b""))


def too_large(limit: int) -> RefusedError:
    return RefusedError(413, f"the body is larger than {limit} bytes")
