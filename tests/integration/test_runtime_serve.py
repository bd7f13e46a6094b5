"""`knobless serve` with real models: the line that it prints works, Ctrl-C ends it, a failure is told."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtimes import images
from stacks.cli import interruption, served_env, workspace
from tests.integration.runtime_process import ROOT, free_port, models, until

pytestmark = pytest.mark.process


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of its own of a real model."""
    return Path(shutil.copytree(models() / "iris", tmp_path / "iris"))


@pytest.fixture
def started(tmp_path: Path, model: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command on the model. MLflow's environment of the tests stands for the model's own."""
    real = workspace.from_process("local", "tests")
    place = workspace.from_process("local", "tests", {"KNOBLESS_HOME": str(tmp_path / "home")})
    wanted = images.environment(images.read_files(model))
    own, front = served_env._folder(place, "model", wanted.digest), served_env.front(real, print).parents[1]
    own.parent.mkdir(parents=True)
    own.symlink_to(real.mlflow_env)
    (own.parent / front.name).symlink_to(front)
    processes: list[subprocess.Popen[str]] = []

    def start(*flags: object) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "stacks.cli.main", "serve", str(model), *map(str, flags)]
        env = {**os.environ, "KNOBLESS_HOME": str(place.home)}
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=pipe, stderr=pipe, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def test_the_printed_line_sends_the_models_example_and_ctrl_c_ends_everything(
    started: Callable[..., subprocess.Popen[str]],
) -> None:
    process = started("--port", free_port())
    assert process.stdout is not None
    line = process.stdout.readline()
    answer = subprocess.run([*shlex.split(line), "-s"], capture_output=True, text=True, check=True)
    assert len(json.loads(answer.stdout)["predictions"]) == 2  # rows of the example
    below = interruption.descendants(process.pid, interruption.running().values())
    assert len(below) >= 2  # the front and a predictor
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert said.rstrip().endswith("ended")
    until(lambda: not {each.pid for each in below} & _alive(), "end of what it had started", most_s=20)


def _alive() -> set[int]:
    return {pid for pid, process in interruption.running().items() if not process.ended}


def test_a_model_that_does_not_load_is_told_with_the_runtimes_own_reason(
    started: Callable[..., subprocess.Popen[str]], model: Path
) -> None:
    for each in model.glob("model.*"):
        each.unlink()
    process = started("--port", free_port())
    out, said = process.communicate(timeout=120)
    assert process.returncode == 1, said
    assert out == ""
    assert "knobless: the model can't be served: " in said
    assert "ended with status" not in said
