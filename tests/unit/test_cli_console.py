"""Progress on a terminal replaces itself; in a log it is rare, and what a long wait is about is never left out."""

from __future__ import annotations

import io
from collections.abc import Callable

from stacks.cli.console import PLAIN_INTERVAL_S, Console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Log:
    """A console whose lines go to a file, and the time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []
        self.console = Console(io.StringIO(), io.StringIO(), lambda: self.now_s, self._later)

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        self._due.append((self.now_s + delay_s, work))

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        for at_s, work in self._due:
            if at_s <= self.now_s:
                work()
        self._due = [(at_s, work) for at_s, work in self._due if at_s > self.now_s]

    @property
    def lines(self) -> list[str]:
        return [line.strip() for line in str(self.console.err.getvalue()).splitlines()]  # type: ignore[attr-defined]


def test_in_a_log_the_last_line_of_a_burst_comes_when_its_turn_is() -> None:
    log = Log()
    for text in ("one", "two", "three"):
        log.console.progress(text)
    assert log.lines == ["one"]
    log.pass_s(PLAIN_INTERVAL_S)
    assert log.lines == ["one", "three"]
    log.pass_s(1)
    log.console.progress("four")
    assert log.lines == ["one", "three"]
    log.pass_s(PLAIN_INTERVAL_S - 1)
    assert log.lines == ["one", "three", "four"]


def test_a_line_is_not_printed_after_what_says_more() -> None:
    log = Log()
    log.console.progress("one")
    log.console.progress("two")
    log.console.note("done")
    log.pass_s(2 * PLAIN_INTERVAL_S)
    assert log.lines == ["one", "done"]


def test_a_step_begins_its_own_ten_seconds() -> None:
    log = Log()
    log.console.progress("of the first step")
    with log.console.step("the second"):
        log.console.progress("of the second")
        log.pass_s(3)
    assert log.lines == ["of the first step", "==> the second", "of the second", "done in 3 s"]


def test_on_a_terminal_progress_replaces_itself() -> None:
    console = Console(Terminal(), io.StringIO())
    for text in ("one", "two"):
        console.progress(text)
    console.note("done")
    assert console.err.getvalue() == "\r\x1b[K  one\r\x1b[K  two\r\x1b[Kdone\n"  # type: ignore[attr-defined]
