"""The script that keeps the gateway's control plane running inside its container, run by a real shell."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from components.manifests.gateway import restarting

pytestmark = pytest.mark.process
# Notes its own process, then waits to be ended; on SIGTERM it notes that it was asked.
COMMAND = """sh -c 'trap "echo asked >> asked; exit 0" TERM; echo $$ >> started; while :; do sleep 0.05; done'"""


def until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


@contextmanager
def shell_of(script: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    shell = subprocess.Popen(["/bin/sh", "-c", script], cwd=folder)
    try:
        yield shell
    finally:
        shell.kill()
        shell.wait()


def test_a_control_plane_that_dies_comes_back_and_one_that_is_asked_to_leave_does_not(tmp_path: Path) -> None:
    started = tmp_path / "started"
    with shell_of(restarting(COMMAND), tmp_path) as shell:
        for count in (1, 2, 3):
            until(lambda count=count: len(lines(started)) == count, f"start number {count}")
            if count < 3:
                os.kill(int(lines(started)[-1]), signal.SIGKILL)
        assert shell.poll() is None
        shell.terminate()
        assert shell.wait(20) == 0
    assert lines(tmp_path / "asked") == ["asked"]
    assert len(lines(started)) == 3


def test_the_shell_waits_for_the_control_plane_to_end(tmp_path: Path) -> None:
    slow = (
        """sh -c 'trap "sleep 0.5; echo done >> done; exit 0" TERM; echo $$ >> started; while :; do sleep 0.05; done'"""
    )
    with shell_of(restarting(slow), tmp_path) as shell:
        until(lambda: bool(lines(tmp_path / "started")), "the start")
        shell.terminate()
        shell.wait(20)
    assert lines(tmp_path / "done") == ["done"]


def test_a_shell_that_is_told_to_end_before_it_knows_its_child_tells_it_too(tmp_path: Path) -> None:
    """The signal comes between the start and the assignment; it hung until it was killed."""
    script = restarting(COMMAND).replace("child=$!", "sleep 1; child=$!")
    assert "sleep 1; child" in script
    with shell_of(script, tmp_path) as shell:
        until(lambda: bool(lines(tmp_path / "started")), "the start")
        shell.terminate()
        assert shell.wait(20) == 0
    assert lines(tmp_path / "asked") == ["asked"]
