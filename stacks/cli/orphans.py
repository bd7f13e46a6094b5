"""Plugins that outlive a killed `pulumi`: each has a process group of its own and misses its engine only minutes later.

Owns telling them from everything else, and their end. One idea: what a run of ours starts inherits a mark in its
environment; a marked process whose parent has none, and which is not `pulumi` itself, has lost its engine.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from stacks.cli import interruption
from stacks.cli.interruption import Process
from stacks.cli.stack_lock import program_of

MARK: Final = "KNOBLESS_PULUMI_RUN"
# `setpriv` becomes `pulumi` a moment after it is started.
ENGINES: Final = frozenset({"pulumi", "setpriv"})
# One that is seen only once was on its way out, or its engine had just begun.
PATIENCE_S: Final = 0.5
GRACE_S: Final = 5.0
POLL_S: Final = 0.05


def mark(cluster_dir: Path) -> dict[str, str]:
    """The variable that tells the runs on this environment from all others."""
    return {MARK: str(cluster_dir)}


def orphans(marked: Mapping[int, Process], program_of: Callable[[int], str | None]) -> tuple[Process, ...]:
    """Those among the marked processes that have no engine above them."""
    tops = [one for one in marked.values() if one.parent not in marked and program_of(one.pid) not in ENGINES]
    below = [each for top in tops for each in interruption.descendants(top.pid, marked.values())]
    return (*tops, *below)


def end(cluster_dir: Path) -> int:
    """End those of this environment; returns how many there were, when all are gone."""
    seen = found(cluster_dir)
    if seen:
        time.sleep(PATIENCE_S)
    told = left = [process for process in found(cluster_dir) if process in seen]
    number, deadline_s = signal.SIGTERM, time.monotonic() + GRACE_S
    while left:
        for process in left:
            interruption.send(process, number)
        while left and time.monotonic() < deadline_s:
            time.sleep(POLL_S)
            left = [process for process in left if _runs(process)]
        number, deadline_s = signal.SIGKILL, time.monotonic() + GRACE_S
    return len(told)


def found(cluster_dir: Path) -> tuple[Process, ...]:
    """Those of this environment, now."""
    return orphans(_marked(cluster_dir), program_of)


def _marked(cluster_dir: Path) -> dict[int, Process]:
    line = f"{MARK}={cluster_dir}".encode()
    return {
        pid: process
        for pid, process in interruption.running().items()
        if not process.ended and line in _environment(pid).split(b"\0")
    }


def _environment(pid: int) -> bytes:
    """As the program was started with it; empty of one that has ended, or is another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def _runs(process: Process) -> bool:
    """The same process still, not another one that got its number."""
    try:
        now = interruption.parse(Path(f"/proc/{process.pid}/stat").read_text(errors="replace"))
    except OSError:
        return False
    return now.started_ticks == process.started_ticks and not now.ended
