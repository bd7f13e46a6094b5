"""The protocol between the front process and a predictor: length-prefixed frames over a UNIX socket.

Owns the bytes; leaves their meaning to predictor (front side) and worker (model side), and shared memory to shared. One
idea: a frame is a kind, the call it belongs to, a small JSON head and raw buffers that nobody copies or escapes; above
a size they do not pass the socket at all, only the descriptor of the memory they are in.

    kind: u8 | descriptor: u8 | call: u32 | head length: u32 | body length: u64 | head (JSON object, UTF-8) | body

The descriptor is 0 for none, 1 for the memory that holds the body, 2 for one that the frame itself is about.
"""

from __future__ import annotations

import json
import os
import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from runtimes.mlflow.layout import Buffer
from runtimes.mlflow.shared import AVAILABLE, SHARED_ABOVE_BYTES, from_shared, to_shared

_PREFIX = struct.Struct("!BBIIQ")
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_decode = json.JSONDecoder().raw_decode  # what `json.loads` calls, past what a head of our own does not need
Dumps = Callable[[Any], bytes]
Loads = Callable[[bytes | bytearray], Any]
MAX_HEAD_BYTES = 1 << 22
MAX_BODY_BYTES = 1 << 32
RECEIVE_BYTES = 1 << 16
_MOST_PARTS = 64  # of one system call

Head = dict[str, Any]


class Kind(IntEnum):
    """What a frame says, and who says it."""

    LOADED = 1  # worker: the model is in memory; the body is its serving example, if it has one
    FAILED = 2  # worker: it can't be loaded; head: reason
    PREDICT = 3  # front: one call, with the rows of one or more requests
    ANSWER = 4  # worker: what the model returned
    REFUSAL = 5  # worker: head: status, message, field
    STREAM = 6  # front: one call whose answer comes in pieces
    PIECE = 7  # worker: one piece; its end is an ANSWER or a REFUSAL
    TAKEN = 8  # front: head: how many more pieces the worker may send
    CANCEL = 9  # front: nobody wants the rest of this call
    TWIN = 10  # front: become two; the descriptor is the other one's socket


_KINDS = {kind.value: kind for kind in Kind}


class FrameError(ValueError):
    """The other side does not speak this protocol."""


@dataclass(slots=True)
class Frame:
    kind: Kind
    call: int
    head: Head
    body: Buffer
    fd: int | None = None


@dataclass(slots=True)
class Packet:
    """A frame ready to be sent: its bytes, and the descriptor that goes with the first of them."""

    parts: list[Buffer]
    fd: int | None

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def dumps(head: Any) -> bytes:
    """A head's JSON, by the standard library; the front brings a faster one."""
    return _encode(head).encode()


def loads(text: bytes | bytearray) -> Any:
    """What ``dumps`` wrote; ValueError where it is anything else."""
    decoded = text.decode()
    found, end = _decode(decoded)
    if end != len(decoded):
        raise ValueError("something follows the JSON")
    return found


def encode_frame(
    kind: Kind, call: int, head: Head, buffers: Sequence[Buffer] = (), fd: int | None = None, dumps: Dumps = dumps
) -> Packet:
    """A frame; a long body goes into shared memory, and ``fd`` is closed once it is sent."""
    text = dumps(head)
    size = sum(map(len, buffers))
    if len(text) > MAX_HEAD_BYTES or size > MAX_BODY_BYTES:
        raise FrameError("a frame is larger than the protocol allows")
    if fd is not None:
        return Packet([_PREFIX.pack(kind, 2, call, len(text), size) + text, *buffers], fd)
    if size > SHARED_ABOVE_BYTES and AVAILABLE:
        return Packet([_PREFIX.pack(kind, 1, call, len(text), size) + text], to_shared(buffers))
    if len(buffers) > _MOST_PARTS:
        buffers = [b"".join(buffers)]
    return Packet([_PREFIX.pack(kind, 0, call, len(text), size) + text, *buffers], None)


class FrameReader:
    """Frames out of a stream that arrives in pieces of any size, and descriptors that come with them."""

    def __init__(self, loads: Loads = loads) -> None:
        self._loads = loads
        self._buffer = bytearray()
        self._fds: deque[int] = deque()

    def feed(self, data: bytes, fds: Sequence[int] = ()) -> Iterator[Frame]:
        """The frames that are complete with this piece."""
        if not self._buffer and not fds and (frame := self._only(data)) is not None:
            yield frame  # the usual piece is one short frame
            return
        self._buffer += data
        self._fds.extend(fds)
        while (frame := self._next()) is not None:
            yield frame

    @property
    def inside(self) -> bool:
        """Whether a frame has begun and not ended."""
        return bool(self._buffer)

    def close(self) -> None:
        """Forget descriptors whose frame never came."""
        while self._fds:
            os.close(self._fds.popleft())

    def _only(self, data: bytes) -> Frame | None:
        """The one frame that the piece is, without a copy of more than its body."""
        if len(data) < _PREFIX.size:
            return None
        kind, descriptor, call, head_bytes, body_bytes = _prefix(data)
        body_at = _PREFIX.size + head_bytes
        if descriptor or len(data) != body_at + body_bytes:
            return None
        return Frame(kind, call, self._head(data[_PREFIX.size : body_at]), bytearray(memoryview(data)[body_at:]))

    def _next(self) -> Frame | None:
        buffer = self._buffer
        if len(buffer) < _PREFIX.size:
            return None
        kind, descriptor, call, head_bytes, body_bytes = _prefix(buffer)
        body_at = _PREFIX.size + head_bytes
        end = body_at if descriptor == 1 else body_at + body_bytes
        if len(buffer) < end:
            return None
        head = self._head(buffer[_PREFIX.size : body_at])
        if descriptor and not self._fds:
            raise FrameError("a frame came without its descriptor")
        body = self._shared(body_bytes) if descriptor == 1 else buffer[body_at:end]
        del buffer[:end]
        return Frame(kind, call, head, body, self._fds.popleft() if descriptor == 2 else None)

    def _head(self, text: bytes | bytearray) -> Head:
        try:
            head = self._loads(text)
        except ValueError:
            raise FrameError("a frame's head is not JSON") from None
        if not isinstance(head, dict):
            raise FrameError("a frame's head is not an object")
        return head

    def _shared(self, size: int) -> memoryview:
        try:
            return from_shared(self._fds.popleft(), size)
        except ValueError as error:
            raise FrameError(str(error)) from None


def received_fds(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors among what ``recvmsg`` brought beside the data."""
    found = array("i")
    for _, _, data in ancillary:  # nothing else is ever sent on this socket
        found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()


def _prefix(buffer: bytes | bytearray) -> tuple[Kind, int, int, int, int]:
    code, descriptor, call, head_bytes, body_bytes = _PREFIX.unpack_from(buffer)
    if head_bytes > MAX_HEAD_BYTES or body_bytes > MAX_BODY_BYTES:
        raise FrameError("a frame is larger than the protocol allows")
    kind = _KINDS.get(code)
    if kind is None:
        raise FrameError(f"no frame has kind {code}")
    return kind, descriptor, call, head_bytes, body_bytes
