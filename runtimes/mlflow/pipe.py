"""The predictor's end of the socket to the front.

Owns the blocking socket: whole frames in and out, from any thread, and how far a stream may run ahead of whoever reads
it. Of the standard library. One idea: the front counts what its client has taken, so a slow client holds up its own
stream and nothing else.
"""

from __future__ import annotations

import socket
import threading
from array import array
from collections.abc import Iterator, Sequence
from types import TracebackType

from runtimes.mlflow.frames import (
    RECEIVE_BYTES,
    Frame,
    FrameError,
    FrameReader,
    Head,
    Kind,
    dumps,
    encode_frame,
    received_fds,
)
from runtimes.mlflow.layout import Buffer

AHEAD = 32  # pieces of a stream that nobody has taken yet
_ANCILLARY_BYTES = socket.CMSG_SPACE(16 * array("i").itemsize)


class Window:
    """How many more pieces of one stream may be sent."""

    def __init__(self) -> None:
        self._free = threading.Semaphore(AHEAD)
        self._cancelled = False

    def wait(self) -> bool:
        """Wait for room for one piece; false where nobody wants any more."""
        self._free.acquire()
        return not self._cancelled

    def widen(self, count: int) -> None:
        self._free.release(count)

    def cancel(self) -> None:
        self._cancelled = True
        self._free.release()


class Pipe:
    """Frames from and to the front."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._sending = threading.Lock()
        self._windows: dict[int, Window] = {}
        self._last: tuple[Head, bytes] = ({}, dumps({}))  # most answers are described as the one before

    def __enter__(self) -> Pipe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the socket up."""
        self._sock.close()

    def frames(self) -> Iterator[Frame]:
        """The calls that come in, until the socket ends between two frames."""
        while True:
            data, ancillary, _, _ = self._sock.recvmsg(RECEIVE_BYTES, _ANCILLARY_BYTES)
            if not data:
                if self._reader.inside:
                    raise FrameError("the stream ended inside a frame")
                return
            for frame in self._reader.feed(data, received_fds(ancillary) if ancillary else ()):
                if frame.kind is Kind.STREAM:
                    self._windows[frame.call] = Window()
                if frame.kind is Kind.TAKEN or frame.kind is Kind.CANCEL:
                    self._tell(frame)
                else:
                    yield frame

    def send(self, kind: Kind, call: int, head: Head, buffers: Sequence[Buffer] = ()) -> None:
        """Send a whole frame; waits until the socket has taken it."""
        packet = encode_frame(kind, call, head, buffers, dumps=self._dumps)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [packet.fd]))] if packet.fd is not None else []
        try:
            with self._sending:
                sent = self._sock.sendmsg(packet.parts, rights)
                if sent < sum(map(len, packet.parts)):
                    self._sock.sendall(memoryview(b"".join(packet.parts))[sent:])
        finally:
            packet.close()

    def _dumps(self, head: Head) -> bytes:
        last, text = self._last
        if head != last:
            text = dumps(head)
            self._last = head, text
        return text

    def window(self, call: int) -> Window:
        """How far this call's stream may run ahead."""
        return self._windows[call]

    def forget(self, call: int) -> None:
        """The call is over."""
        self._windows.pop(call, None)

    def _tell(self, frame: Frame) -> None:
        window = self._windows.get(frame.call)
        if window is None:
            return
        if frame.kind is Kind.CANCEL:
            window.cancel()
        else:
            window.widen(int(frame.head["more"]))
