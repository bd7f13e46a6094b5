"""The front's end of the socket to one predictor.

Owns the non-blocking socket: sending without waiting, descriptors, and frames as they arrive. Leaves what they mean to
predictor. One idea: a short message goes out in one system call at once; only what the socket can't take is kept.
"""

from __future__ import annotations

import asyncio
import socket
from array import array
from collections import deque
from collections.abc import Callable, Sequence

import orjson

from runtimes.mlflow.frames import (
    RECEIVE_BYTES,
    Frame,
    FrameError,
    FrameReader,
    Head,
    Kind,
    Packet,
    encode_frame,
    received_fds,
)
from runtimes.mlflow.layout import Buffer

_ANCILLARY_BYTES = socket.CMSG_SPACE(16 * array("i").itemsize)


class Channel:
    """Frames to and from one predictor; ``on_lost`` is called once, with why where it was not the other side's end."""

    def __init__(self, sock: socket.socket, on_frame: Callable[[Frame], None], on_lost: Callable[[str], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._reader = FrameReader(orjson.loads)
        self._waiting: deque[Packet] = deque()
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._loop.add_reader(sock, self._readable)

    def send(self, kind: Kind, call: int, head: Head, buffers: Sequence[Buffer] = (), fd: int | None = None) -> None:
        """Send a frame, now or as soon as the socket takes it; nothing where it is closed. ``fd`` is closed then."""
        packet = encode_frame(kind, call, head, buffers, fd, orjson.dumps)
        if not self._open:
            packet.close()
            return
        if self._waiting:
            self._waiting.append(packet)
        elif not self._write(packet):
            self._waiting.append(packet)
            self._loop.add_writer(self._sock, self._writable)

    def close(self, why: str = "") -> None:
        """Give the socket up."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()
        self._reader.close()
        for packet in self._waiting:
            packet.close()
        self._waiting.clear()
        self._on_lost(why)

    def _write(self, packet: Packet) -> bool:
        """Whether the whole packet went out; what did not stays in it."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [packet.fd]))] if packet.fd is not None else []
        try:
            sent = self._sock.sendmsg(packet.parts, rights)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            packet.close()
            self._loop.call_soon(self.close)  # never from inside send: the caller is not done yet
            return True
        packet.close()
        if sent == sum(map(len, packet.parts)):
            return True
        packet.parts = [memoryview(b"".join(packet.parts))[sent:]]
        return False

    def _writable(self) -> None:
        while self._waiting:
            if not self._write(self._waiting[0]):
                return
            self._waiting.popleft()
        if self._open:
            self._loop.remove_writer(self._sock)

    def _readable(self) -> None:
        try:
            data, ancillary, _, _ = self._sock.recvmsg(RECEIVE_BYTES, _ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self.close()
            return
        try:
            for frame in self._reader.feed(data, received_fds(ancillary) if ancillary else ()):
                self._on_frame(frame)
        except FrameError:
            self.close("spoke another protocol")
