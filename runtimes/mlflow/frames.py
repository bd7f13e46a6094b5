"""The protocol between the front process and a predictor: length-prefixed frames over a UNIX socket.

Owns the bytes; leaves their meaning to predictor (front side) and worker (model side). One idea: a frame is a kind, a
small JSON head and a raw body that nobody copies or escapes, so a 16 MB request costs two writes.

    kind: u8 | head length: u32 | body length: u64 | head (JSON object, UTF-8) | body
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

_PREFIX = struct.Struct("!BIQ")
MAX_HEAD_BYTES = 1 << 20
MAX_BODY_BYTES = 1 << 32

Head = dict[str, Any]


class Kind(IntEnum):
    """What a frame says, and who says it."""

    LOADED = 1  # worker: the model is in memory; the body is its serving example, if it has one
    FAILED = 2  # worker: it can't be loaded; head: reason
    PREDICT = 3  # front: one request; head: request_id, media, gzip
    ANSWER = 4  # worker: the JSON body of a 200; head: non_finite
    REFUSAL = 5  # worker: head: status, message, field


class Readable(Protocol):
    """A blocking stream of bytes that returns less than it was asked for only at its end."""

    def read(self, size: int, /) -> bytes: ...


class FrameError(ValueError):
    """The other side does not speak this protocol."""


@dataclass(frozen=True)
class Frame:
    kind: Kind
    head: Head
    body: bytes


def encode_prefix(kind: Kind, head: Head, body_bytes: int) -> bytes:
    """Everything of a frame but its body."""
    text = json.dumps(head, separators=(",", ":")).encode()
    if len(text) > MAX_HEAD_BYTES or body_bytes > MAX_BODY_BYTES:
        raise FrameError("a frame is larger than the protocol allows")
    return _PREFIX.pack(kind, len(text), body_bytes) + text


def decode_prefix(data: bytes | bytearray | memoryview) -> tuple[Kind, int, int]:
    """Kind, head length and body length of the frame that begins with these bytes."""
    code, head_bytes, body_bytes = _PREFIX.unpack_from(data)
    if head_bytes > MAX_HEAD_BYTES or body_bytes > MAX_BODY_BYTES:
        raise FrameError("a frame is larger than the protocol allows")
    try:
        return Kind(code), head_bytes, body_bytes
    except ValueError:
        raise FrameError(f"no frame has kind {code}") from None


class FrameReader:
    """Frames out of a stream that arrives in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with this piece."""
        self._buffer += data
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        buffer = self._buffer
        if len(buffer) < _PREFIX.size:
            return None
        kind, head_bytes, body_bytes = decode_prefix(buffer)
        body_at = _PREFIX.size + head_bytes
        end = body_at + body_bytes
        if len(buffer) < end:
            return None
        frame = Frame(kind, _head(bytes(buffer[_PREFIX.size : body_at])), bytes(buffer[body_at:end]))
        del buffer[:end]
        return frame


def read_frame(stream: Readable) -> Frame | None:
    """The next frame of a blocking stream; None where the stream ends between two frames."""
    prefix = stream.read(_PREFIX.size)
    if not prefix:
        return None
    kind, head_bytes, body_bytes = decode_prefix(_whole(prefix, _PREFIX.size))
    head = _whole(stream.read(head_bytes), head_bytes)
    return Frame(kind, _head(head), _whole(stream.read(body_bytes), body_bytes))


def _whole(data: bytes, expected: int) -> bytes:
    if len(data) < expected:
        raise FrameError("the stream ended inside a frame")
    return data


def _head(text: bytes) -> Head:
    try:
        head = json.loads(text)
    except ValueError:
        raise FrameError("a frame's head is not JSON") from None
    if not isinstance(head, dict):
        raise FrameError("a frame's head is not an object")
    return head
