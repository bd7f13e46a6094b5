"""One test run on a cluster at a time for each KNOBLESS_HOME: a second one waits, and says for whom.

Owns the lock and the record of who holds it. One idea: workers of one run share the lock, so that a worker that ends
early frees nothing the others still use; and a lock of the kernel's ends with its processes, however they do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, TextIO

POLL_S: Final = 1.0


@dataclass(frozen=True)
class Run:
    """A test run: `name` is the same in all of its workers."""

    name: str
    pid: int
    folder: str

    def __str__(self) -> str:
        return f"the test run of {self.folder} (process {self.pid})"


def this_run(folder: Path) -> Run:
    pid = os.getpid()
    return Run(os.environ.get("PYTEST_XDIST_TESTRUNUID", str(pid)), pid, str(folder))


def hold(home: Path, run: Run, say: Callable[[str], None], pause: Callable[[float], None] = time.sleep) -> TextIO:
    """Returns when `run` alone uses `home`; it does so until the answer is closed or this process ends."""
    (home / "locks").mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as unless_held:
        file = unless_held.enter_context((home / "locks" / "test-run.lock").open("a+"))
        told = None
        while not _taken(file, run):
            holder = _holder(file)
            if holder != told:
                say(f"waiting: {holder} uses {home}; with another KNOBLESS_HOME, this one need not")
                told = holder
            pause(POLL_S)
        unless_held.pop_all()
    return file


def _taken(file: TextIO, run: Run) -> bool:
    """Whether the lock is ours now: taken whole, then shared with those of the same run."""
    if _locked(file, fcntl.LOCK_EX):
        file.truncate(0)
        file.write(json.dumps(asdict(run)))
        file.flush()
        # Another run may come in between the two: then the second fails, and that run's record stands.
        return _locked(file, fcntl.LOCK_SH)
    holder = _holder(file)
    return holder is not None and holder.name == run.name and _locked(file, fcntl.LOCK_SH)


def _locked(file: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(file: TextIO) -> Run | None:
    """None where it is being written just now."""
    file.seek(0)
    try:
        return Run(**json.loads(file.read()))
    except (ValueError, TypeError):
        return None
