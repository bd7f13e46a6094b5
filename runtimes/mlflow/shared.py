"""Memory that two processes share for as long as one message lives.

Owns making it, filling it and mapping it; leaves passing the descriptor to whoever has the socket. Of the standard
library. One idea: what is too long for the socket is written once and mapped on the other side, and nobody has to name
it or remember to remove it.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Sequence

from runtimes.mlflow.layout import Buffer

SHARED_ABOVE_BYTES = 64 * 1024  # below it two copies through the socket are cheaper than a descriptor and its pages
AVAILABLE = hasattr(os, "memfd_create") and hasattr(socket, "SCM_RIGHTS")
_MOST_BUFFERS = 256  # in one call of writev


def to_shared(buffers: Sequence[Buffer]) -> int:
    """The buffers one after the other in new shared memory; the caller closes the descriptor."""
    fd = os.memfd_create("knobless", os.MFD_CLOEXEC)
    try:
        waiting = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while waiting:
            written = os.writev(fd, waiting[:_MOST_BUFFERS])
            while waiting and written >= len(waiting[0]):
                written -= len(waiting.pop(0))
            if written:
                waiting[0] = waiting[0][written:]
    except BaseException:
        os.close(fd)
        raise
    return fd


def from_shared(fd: int, size: int) -> memoryview:
    """What is in shared memory, ours to change without anybody seeing it; closes the descriptor."""
    try:
        if os.fstat(fd).st_size < size:
            raise ValueError("the shared memory is shorter than its message says")
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY))
    finally:
        os.close(fd)
