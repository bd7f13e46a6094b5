"""How a container ends: when it is told to, however early, and with the reason in one line.

Owns the line that Kubernetes shows as a container's termination message; leaves every other exit to the caller. One
idea: whoever reads the endpoint's status sees the cause without opening a log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

EXIT_FAILED = 3  # the process could not do its work, and said why
_LONGEST_REASON = 1000  # Kubernetes keeps 4,096 bytes of the message


def end_when_told() -> None:
    """SIGTERM ends this process with status 0 until something that drains listens to it: the first thing that a
    container's process does. The kernel keeps a signal from process 1 that has no handler for it, and a pod that was
    deleted as it began would serve until its grace is over."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


def one_line(text: str, longest: int = _LONGEST_REASON) -> str:
    """The text on one line, cut where it gets too long to be read in a status."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def reason_of(error: BaseException) -> str:
    """An exception as one line: its type and what it says."""
    said = one_line(str(error))
    return one_line(f"{type(error).__name__}: {said}") if said else type(error).__name__


def write_reason(reason: str, environ: Mapping[str, str] = os.environ) -> None:
    """Leave the reason where Kubernetes looks for it; outside a pod there is no such file, which is fine."""
    path = Path(environ.get("KNOBLESS_TERMINATION_LOG", "/dev/termination-log"))
    if not path.parent.is_dir() or (path.parent == Path("/dev") and not path.exists()):
        return  # never litter /dev of a machine that is not a pod
    with contextlib.suppress(OSError):
        path.write_text(one_line(reason) + "\n", encoding="utf-8")
