"""Runs preparations side by side: one in this thread, the others beside it, each with a line of its own.

The one in this thread is the one that Ctrl-C must reach first (the compiler). A failure of any is raised after all
have ended, so that nothing is left half-done in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from stacks.cli.console import Console

T = TypeVar("T")
Report = Callable[[str], None]


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
        futures: list[Future[object]] = [pool.submit(watched, name, work) for name, work in beside.items()]
        result = first(board.report("first"))
        board.done("first")
        for future in futures:
            future.result()
    return result
