"""Ctrl-C: which processes are ours, and that all of them end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from stacks.cli.interruption import Process, descendants, parse, running

ROOT = Path(__file__).parents[2]
# Starts a child that ignores SIGTERM and one that does not, then waits for a signal as the command line does.
PROGRAM = """
import subprocess, sys, time
from stacks.cli import interruption
interruption.install()
children = [subprocess.Popen(["sh", "-c", body + "echo; exec sleep 300"], stdout=subprocess.PIPE)
            for body in ("trap '' TERM; ", "")]
for child in children:
    child.stdout.readline()
try:
    print(*(child.pid for child in children), flush=True)
    time.sleep(300)
except KeyboardInterrupt:
    interruption.CHILDREN.end(0.2)
    print("ended", flush=True)
    sys.exit(130)
"""


def process(pid: int, parent: int) -> Process:
    return Process(pid, parent, 1, 1, False)


def test_a_name_with_parentheses_and_spaces_is_read_right() -> None:
    numbers = " ".join(str(n) for n in range(9, 23))
    assert parse(f"12 (a) b (c)) S 3 4 5 6 7 8 {numbers}") == Process(12, 3, 4, 22 - 1, False)


def test_children_of_children_are_descendants_and_others_are_not() -> None:
    table = [process(2, 1), process(3, 2), process(4, 3), process(5, 1), process(1, 0)]
    assert {one.pid for one in descendants(2, table)} == {3, 4}


def test_the_process_table_has_this_process_and_its_start() -> None:
    own = running()[os.getpid()]
    assert (own.parent, own.group, own.ended) == (os.getppid(), os.getpgrp(), False)
    assert own.started_ticks > 0


def still_there(pids: Iterable[int]) -> list[int]:
    table = running()
    return [pid for pid in pids if pid in table and not table[pid].ended]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_was_started_and_then_the_command(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as command:
        assert command.stdout is not None
        children = [int(word) for word in command.stdout.readline().split()]
        command.send_signal(number)
        assert command.stdout.readline() == "ended\n"
        assert command.wait(30) == 130
    assert still_there(children) == []


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    program = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from stacks.cli import interruption; interruption.install()\n"
        "signal.raise_signal(signal.SIGHUP); print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "went on\n"
