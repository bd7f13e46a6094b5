"""Reading a request from ASGI.

Owns headers, the request id and the bounded body; leaves the answer to exchange. One idea: nothing is buffered that
was not admitted: by its announced length before a byte of it is read, otherwise piece by piece.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable

from runtimes.interface.engine import Header, Receive
from runtimes.interface.errors import RefusedError
from runtimes.interface.patience import ClientLeftError

_SAFE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_WANTED = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"inference-header-content-length",
        b"traceparent",
        b"x-knobless-deadline-ms",
        b"x-request-id",
    }
)
_DISCARD_FACTOR = 4  # of a refused body that is read on, so that the client sees the answer and not a reset
_OWN = os.urandom(10).hex()  # of this process; a random number for each request would be a system call for each
_number = itertools.count(1)


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


def wanted_headers(headers: Iterable[Header]) -> dict[bytes, bytes]:
    """The headers that the interface reads."""
    return {name: value for name, value in headers if name in _WANTED}


def request_id(given: bytes | None) -> str:
    """The client's request id where it is safe to repeat, a new one otherwise."""
    if given is not None and _SAFE_ID.fullmatch(given):
        return given.decode("ascii")
    return f"{_OWN}{next(_number):012x}"


async def read_body(receive: Receive, limit: int, length: bytes | None, buffered: Buffered) -> bytes:
    """The whole body, counted in ``buffered``, which the caller gives back; 413 as soon as it is too long."""
    announced = 0 if length is None else int(length)
    if announced > limit:
        raise too_large(limit)
    buffered.take(announced)
    taken, size = announced, 0
    parts: list[bytes] = []
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeftError
            if part := message.get("body", b""):
                size += len(part)
                if size > limit:
                    raise too_large(limit)
                if size > taken:
                    buffered.take(size - taken)
                    taken = size
                parts.append(part)
            if not message.get("more_body"):
                break
    except BaseException:
        buffered.give_back(taken)
        raise
    buffered.give_back(taken - size)
    return parts[0] if len(parts) == 1 else b"".join(parts)


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
