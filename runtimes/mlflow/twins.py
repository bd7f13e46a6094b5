"""Predictors that share one loaded model: a process that has loaded it becomes two.

Owns when that is safe and how it is done, on both sides; leaves the sockets to pipe and predictor. Of the standard
library. One idea: a copy of a process costs milliseconds and almost no memory, but only where nothing in it goes on by
itself: no thread, no connection, no code of the customer's.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from runtimes.mlflow.pipe import Pipe
from runtimes.termination import EXIT_FAILED

# Whose loaders run nothing but the library's own code.
_LOADERS = frozenset({"mlflow.sklearn", "mlflow.xgboost", "mlflow.lightgbm"})
_LOADER = re.compile(r"^\s*loader_module:\s*(\S+)", re.MULTILINE)
_HARMLESS_THREADS = frozenset({"jemalloc_bg_thd"})  # pyarrow's memory allocator, which knows about copies of itself
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 1, 15, 36
TEMPLATE = "template"  # how a process that only makes twins is called in a list of processes


def might_fork(folder: Path) -> bool:
    """Whether the model's own file says that a process which has loaded it can probably become two."""
    try:
        found = _LOADER.search((folder / "MLmodel").read_text(encoding="utf-8"))
    except OSError:
        return False
    return found is not None and found.group(1) in _LOADERS and hasattr(os, "pidfd_open")


def can_fork(loader: str, sockets: int = 1) -> bool:
    """Whether this process, its model loaded and called, can become two; ``sockets`` are those to the front."""
    return loader in _LOADERS and _alone() and not _connected(sockets)


def fork(pipe: Pipe, fd: int, serve: Callable[[Pipe], None]) -> None:
    """Start a twin that serves the socket ``fd``; its parent is the front, so that both may end without the other."""
    _call_itself(TEMPLATE)
    between = os.fork()
    if between:
        os.close(fd)
        os.waitpid(between, 0)
        return
    try:
        own = os.getpid()
        if os.fork() == 0:
            while os.getppid() == own:  # until the front is the parent
                time.sleep(0.0005)
            os.setsid()
            _call_itself("predictor")
            end_with_front()
            pipe.close()
            with Pipe(socket.socket(fileno=fd)) as other:
                serve(other)
    finally:
        os._exit(0)


def end_with_front() -> None:
    """A predictor must not outlive a front process that was killed (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1 and os.environ.get("KNOBLESS_FRONT_PID") not in (None, "1"):
        os._exit(EXIT_FAILED)  # it was killed before the line above


def adopt() -> bool:
    """Make this process the parent of twins; false where the system does not know such a thing."""
    try:
        return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def reap(group: int) -> int | None:
    """Collect what has ended of a process group; the exit status of its leader, as asyncio gives it."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-group, os.WNOHANG))[0]:
            if ended[0] == group:
                status = os.waitstatus_to_exitcode(ended[1])
    return status


def _call_itself(name: str) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def _alone() -> bool:
    tasks = Path("/proc/self/task")
    try:
        names = [(task / "comm").read_text().strip() for task in tasks.iterdir() if task.name != str(os.getpid())]
    except OSError:
        return False
    return all(name in _HARMLESS_THREADS for name in names)


def _connected(own: int) -> bool:
    """Whether there is a socket beside those to the front."""
    try:
        return sum(entry.is_socket() for entry in Path("/proc/self/fd").iterdir()) > own
    except OSError:
        return True
