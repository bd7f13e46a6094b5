"""What a person sees: steps with their time on stderr, results on stdout, nothing twice.

Results go to stdout so that they can be piped; progress goes to stderr. On a terminal a progress line is
rewritten in place; elsewhere at most one is printed in ten seconds, and the last one of a long wait always is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock, Timer
from typing import TextIO

PLAIN_INTERVAL_S = 10.0


def start_timer(delay_s: float, work: Callable[[], None]) -> None:
    """Later, in a thread that keeps nothing from ending."""
    timer = Timer(delay_s, work)
    timer.daemon = True
    timer.start()


def duration(seconds: float) -> str:
    """A short human duration: `4 s`, `3 min 12 s`."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


@dataclass
class Console:
    """Steps and results of one command.

    Args:
        err: where progress goes.
        out: where results go.
        clock: seconds, monotonic.
        later: runs a function after some seconds.
    """

    err: TextIO = field(default_factory=lambda: sys.stderr)
    out: TextIO = field(default_factory=lambda: sys.stdout)
    clock: Callable[[], float] = time.monotonic
    later: Callable[[float, Callable[[], None]], None] = start_timer
    _last_plain_s: float = -PLAIN_INTERVAL_S
    _line_open: bool = False
    _lock: RLock = field(default_factory=RLock)
    _held: str | None = None  # a line whose ten seconds are not over

    def result(self, text: str = "") -> None:
        """A line that the command was run for."""
        with self._lock:
            self._close_line()
            print(text, file=self.out, flush=True)

    def note(self, text: str) -> None:
        """A line about what happens."""
        with self._lock:
            self._close_line()
            print(text, file=self.err, flush=True)

    def progress(self, text: str) -> None:
        """A line that the next progress replaces on a terminal; elsewhere at most one in ten seconds."""
        with self._lock:
            if self.err.isatty():
                print(f"\r\x1b[K  {text[:150]}", end="", file=self.err, flush=True)
                self._line_open = True
            else:
                wait_s = self._last_plain_s + PLAIN_INTERVAL_S - self.clock()
                if wait_s > 0 and self._held is None:
                    self.later(wait_s, self._print_held)
                self._held = text
                if wait_s <= 0:
                    self._print_held()

    def _print_held(self) -> None:
        with self._lock:
            if self._held is not None:
                print(f"  {self._held}", file=self.err, flush=True)
                self._held, self._last_plain_s = None, self.clock()

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Announce a step and say how long it took."""
        self.note(f"==> {title}")
        self._last_plain_s = -PLAIN_INTERVAL_S
        started_s = self.clock()
        yield
        self.note(f"    done in {duration(self.clock() - started_s)}")

    def _close_line(self) -> None:
        self._held = None  # what comes says more
        if self._line_open:
            print("\r\x1b[K", end="", file=self.err, flush=True)
            self._line_open = False


def table(rows: list[list[str]], header: list[str]) -> str:
    """A plain left-aligned table, two spaces between columns, no trailing spaces."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
