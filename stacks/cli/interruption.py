"""Ctrl-C, and the signals that mean the same: what this command started ends first, then the command.

Owns the signal handlers and the end of child processes. Leaves to whoever starts a program in a process group of its
own (the compiler, `pulumi up`, apt) how that one is ended. One idea: the children that are there when the signal comes
are remembered, so that those that lose their parent meanwhile are found as well.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_S = 10.0
POLL_S = 0.05


@dataclass(frozen=True)
class Process:
    """One line of the process table; number and start together name a process for good."""

    pid: int
    parent: int
    group: int
    started_ticks: int
    ended: bool


def parse(stat: str) -> Process:
    """From /proc/PID/stat. The program's name stands in parentheses and may hold anything."""
    head, _, tail = stat.rpartition(")")
    fields = tail.split()
    return Process(int(head.split(" ", 1)[0]), int(fields[1]), int(fields[2]), int(fields[19]), fields[0] in "ZX")


def descendants(of: int, processes: Iterable[Process]) -> tuple[Process, ...]:
    """Children of `of`, their children, and so on."""
    children: dict[int, list[Process]] = {}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    todo = [of]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += [process.pid for process in below]
    return tuple(found)


def running() -> Mapping[int, Process]:
    """The process table by number."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended while being looked at
                process = parse((folder / "stat").read_text(errors="replace"))
                found[process.pid] = process
    return found


class Children:
    """What this command has started and not yet seen the end of, from the first signal on."""

    def __init__(self) -> None:
        self._seen: set[Process] = set()
        self._asked = False

    def ask_to_end(self) -> None:
        """SIGTERM to those of our own group. Asked again: SIGINT also to those that have a group of their own."""
        for process in self._look():
            if process.group == os.getpgrp():
                send(process, signal.SIGTERM)
            elif self._asked and process.pid == process.group:
                send(process, signal.SIGINT)
        self._asked = True

    def end(self, grace_s: float = GRACE_S) -> None:
        """Returns when all are gone; those that do not end in time are killed."""
        deadline_s = time.monotonic() + grace_s
        while left := self._look():
            if time.monotonic() > deadline_s:
                for process in left:
                    send(process, signal.SIGKILL)
            time.sleep(POLL_S)

    def _look(self) -> list[Process]:
        table = running()
        self._seen.update(_timeless(process) for process in descendants(os.getpid(), table.values()))
        found = [(one, table.get(one.pid)) for one in self._seen]
        return [now for one, now in found if now and now.started_ticks == one.started_ticks and not now.ended]


def _timeless(process: Process) -> Process:
    """Without what changes in a process's life."""
    return Process(process.pid, 0, 0, process.started_ticks, False)


def send(process: Process, number: signal.Signals) -> None:
    """A process that has just ended needs no signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process.pid, number)


CHILDREN = Children()


def install() -> None:
    """From now on each of the signals ends what was started and becomes a KeyboardInterrupt.

    One that was ignored when this process began (nohup, a shell's background job) stays so.
    """
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def finish() -> None:
    """Returns when nothing that was started is left. Another signal meanwhile is an order to kill."""
    grace_s = GRACE_S
    while True:
        try:
            return CHILDREN.end(grace_s)
        except KeyboardInterrupt:
            grace_s = 0.0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    CHILDREN.ask_to_end()
    raise KeyboardInterrupt
