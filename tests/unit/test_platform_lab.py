"""Two test runs on one KNOBLESS_HOME: the second waits and says for whom; workers of one run do not wait."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.platform_lab.command import ROOT
from tests.platform_lab.one_run import Run, hold

FIRST = Run("first", 4711, "/home/one")
SECOND = Run("second", 4712, "/home/two")
OTHER_PROCESS = """
import sys, pathlib
from tests.platform_lab.one_run import Run, hold
kept = hold(pathlib.Path(sys.argv[1]), Run("first", 4711, "/home/one"), print)
print("held", flush=True)
sys.stdin.read()
"""


class StillHeldError(Exception):
    pass


def give_up(_pause_s: float) -> None:
    raise StillHeldError


def test_a_second_run_waits_and_says_for_whom(tmp_path: Path) -> None:
    said: list[str] = []
    with hold(tmp_path, FIRST, said.append):
        assert said == []
        with pytest.raises(StillHeldError):
            hold(tmp_path, SECOND, said.append, give_up)
    assert len(said) == 1
    assert "the test run of /home/one (process 4711)" in said[0] and str(tmp_path) in said[0]


def test_who_waits_goes_on_when_the_first_has_ended_and_is_told_once(tmp_path: Path) -> None:
    said: list[str] = []
    pauses: list[float] = []
    first = hold(tmp_path, FIRST, said.append)

    def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 3:
            first.close()

    with hold(tmp_path, SECOND, said.append, pause), pytest.raises(StillHeldError):
        hold(tmp_path, FIRST, said.append, give_up)
    assert len(pauses) == 3
    assert [line.partition(" (")[0] for line in said] == [
        "waiting: the test run of /home/one",
        "waiting: the test run of /home/two",
    ]


def test_workers_of_one_run_share_it_and_the_last_one_frees_it(tmp_path: Path) -> None:
    one = hold(tmp_path, FIRST, print, give_up)
    with hold(tmp_path, Run("first", 4713, "/home/one"), print, give_up):
        one.close()
        with pytest.raises(StillHeldError):
            hold(tmp_path, SECOND, print, give_up)
    hold(tmp_path, SECOND, print, give_up).close()


def test_homes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with hold(tmp_path / "a", FIRST, print, give_up), hold(tmp_path / "b", SECOND, print, give_up):
        pass


def test_a_killed_run_holds_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(StillHeldError):
            hold(tmp_path, SECOND, print, give_up)
        process.kill()
        process.wait()
        hold(tmp_path, SECOND, print, give_up).close()
