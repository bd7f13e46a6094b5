"""What a client hears while the model loads, and always from a node that only works for its leader.

Owns answering on the socket until vLLM takes it over; leaves the same words afterwards to the interface. One idea:
both accept on one listening socket, so from the first moment to the last no connection is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from runtimes.interface.errors import error_body
from runtimes.interface.metrics import CONTENT_TYPE
from runtimes.interface.requests import request_id
from runtimes.interface.routes import Does, api_of, find

_MOST_HEAD_BYTES = 64 * 1024
_PATIENCE_S = 5.0
LIVE, READY = b'{"status": "live"}', b'{"status": "ready"}'
_JSON = b"application/json"
_PHRASES = {200: "OK", 503: "Service Unavailable"}


Told = Callable[[Does], bytes | None]  # the body of a 200; None for a 503


def loading(does: Does) -> bytes | None:
    """What is told while the model loads: that the process lives."""
    return LIVE if does is Does.LIVE else None


async def answer_meanwhile(listening: socket.socket, told: Told = loading) -> asyncio.Server:
    """Answer what is told with 200 and all else with 503; close the server to leave the socket to another process."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _one(reader, writer, told)

    return await asyncio.start_server(one, sock=listening.dup(), limit=_MOST_HEAD_BYTES)


async def _one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: Told) -> None:
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(head, told))
            await writer.drain()
            writer.write_eof()
            while await reader.read(_MOST_HEAD_BYTES):  # closing on unread bytes would reset the connection
                pass
    writer.close()


def answer(head: bytes, told: Told = loading) -> bytes:
    """The whole answer to a request with this head."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    path = words[1].partition(b"?")[0].decode("latin-1") if len(words) > 1 else "/"
    given_id = request_id(_header(head, b"x-request-id"))
    route = find(path, frozenset())
    if route is not None and (body := told(route.does)) is not None:
        return _answer(200, body, given_id, CONTENT_TYPE if route.does is Does.METRICS else _JSON)
    return _answer(503, error_body(503, "the model is not ready yet", given_id, api=api_of(path)), given_id)


def _answer(status: int, body: bytes, given_id: str, content_type: bytes = _JSON) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {_PHRASES[status]}",
        f"content-type: {content_type.decode()}",
        f"content-length: {len(body)}",
        f"x-request-id: {given_id}",
        "connection: close",
        *(["retry-after: 1"] if status == 503 else []),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        found, _, value = line.partition(b":")
        if found.strip().lower() == name:
            return value.strip()
    return None
