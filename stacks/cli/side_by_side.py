"""Runs preparations side by side: one in this thread, the others beside it, each with a line of its own.

The one in this thread is the one that Ctrl-C must reach first (the compiler). A failure of any is raised after all
have ended, so that nothing is left half-done in the background; programs that the others started are ended by
`interruption`, but for those in a process group of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import TypeVar

from stacks.cli.console import Console

T = TypeVar("T")
Report = Callable[[str], None]
QUIET_WAIT_S = 2.0


class Board:
    """The last line of each preparation, shown together."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: dict[str, str] = {}
        self._lock = Lock()

    def report(self, name: str) -> Report:
        def say(line: str) -> None:
            with self._lock:
                self._lines[name] = line.strip()
                self._console.progress(" | ".join(text for text in self._lines.values() if text))

        return say

    def done(self, name: str) -> None:
        with self._lock:
            self._lines.pop(name, None)


def run(console: Console, first: Callable[[Report], T], beside: Mapping[str, Callable[[Report], object]]) -> T:
    """Run all; returns what `first` returned. Raises the first failure, the others' after it are dropped."""
    board = Board(console)

    def watched(name: str, work: Callable[[Report], object]) -> object:
        try:
            return work(board.report(name))
        finally:
            board.done(name)

    with ThreadPoolExecutor(max_workers=max(1, len(beside))) as pool:
        futures = {name: pool.submit(watched, name, work) for name, work in beside.items()}
        try:
            result = first(board.report("first"))
            board.done("first")
            for future in futures.values():
                future.result()
        except KeyboardInterrupt:
            _tell_of_the_wait(console, futures)
            raise
    return result


def _tell_of_the_wait(console: Console, futures: Mapping[str, Future[object]]) -> None:
    """apt is let finish what it began; a person who interrupted is told why nothing happens."""
    wait(futures.values(), QUIET_WAIT_S)
    left = [name for name, future in futures.items() if not future.done()]
    if left:
        console.note(f"    interrupted; waiting for what must not be cut off: {', '.join(left)}")
