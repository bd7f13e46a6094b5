"""What the process does with memory that a large body has left.

Owns one setting of the C library's allocator. One idea: a large block goes back to the system when it is freed. By
default the allocator raises the size from which it does so to that of the largest block freed, and a process that once
had many bodies of 16 MB at the same time would keep them all.
"""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20


def give_back_large_blocks() -> None:
    """Once a process, before its first request; without glibc there is nothing to set."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
