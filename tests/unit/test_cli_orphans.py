"""Processes with real parents: those of a killed engine are ended, a running engine's and others' are not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stacks.cli import orphans
from stacks.cli.interruption import Process
from stacks.cli.stack_lock import program_of

# Says the number of its plugin, of the plugin's own child, and waits.
ENGINE = "bash -c 'sleep 60 & echo $$ $!; wait' & wait"
Start = Callable[[Path], tuple[subprocess.Popen[str], list[int]]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A program named pulumi that starts a plugin, which starts a child."""
    pulumi = shutil.copy("/bin/bash", tmp_path / "pulumi")
    engines: list[subprocess.Popen[str]] = []
    plugins: list[int] = []

    def begin(cluster_dir: Path) -> tuple[subprocess.Popen[str], list[int]]:
        environment = {**os.environ, **orphans.mark(cluster_dir)}
        engine = subprocess.Popen([pulumi, "-c", ENGINE], env=environment, stdout=subprocess.PIPE, text=True)
        assert engine.stdout is not None
        started = [int(word) for word in engine.stdout.readline().split()]
        engines.append(engine)
        plugins.extend(started)
        return engine, started

    yield begin
    for pid in filter(runs, plugins):
        os.kill(pid, signal.SIGKILL)
    for engine in engines:
        engine.kill()
        engine.communicate()


def runs(pid: int) -> bool:
    return program_of(pid) is not None


def test_plugins_of_a_killed_engine_end_and_a_running_engines_go_on(start: Start, tmp_path: Path) -> None:
    killed, orphaned = start(tmp_path / "ours")
    _, busy = start(tmp_path / "ours")
    killed.kill()
    killed.wait()
    assert all(map(runs, orphaned))
    assert orphans.end(tmp_path / "ours") == 2
    assert not any(map(runs, orphaned))
    assert all(map(runs, busy))
    assert orphans.end(tmp_path / "ours") == 0


def test_another_environments_plugins_are_left_alone(start: Start, tmp_path: Path) -> None:
    killed, orphaned = start(tmp_path / "theirs")
    killed.kill()
    killed.wait()
    assert orphans.end(tmp_path / "their") == 0
    assert all(map(runs, orphaned))


def process(pid: int, parent: int) -> Process:
    return Process(pid, parent, pid, 1, False)


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        ({2: "pulumi", 3: "pulumi-resource", 4: "python"}, []),
        ({2: "setpriv"}, []),  # it is about to become pulumi
        ({3: "pulumi-resource", 4: "python"}, [3, 4]),
        ({3: "pulumi-resource", 4: "python", 5: "pulumi-language"}, [3, 5, 4]),
    ],
)
def test_an_orphan_has_no_engine_above_it(programs: dict[int, str], found: list[int]) -> None:
    parents = {2: 1, 3: 2, 4: 3, 5: 1}
    marked = {pid: process(pid, parents[pid]) for pid in programs}
    assert [each.pid for each in orphans.orphans(marked, programs.get)] == found
