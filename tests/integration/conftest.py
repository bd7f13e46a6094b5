"""What tests on a cluster share: one platform, started before the first and ended after the last; and one clone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.cli import mlflow_env, workspace
from tests.platform_lab import life
from tests.platform_lab.command import ROOT, must
from tests.platform_lab.suite import ENVIRONMENT, INSTANCE, Suite

KEEP = "KNOBLESS_KEEP_SUITE"  # for whoever works on a test: leave the platform running, use it again


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Suite]:
    keep = os.environ.get(KEEP)
    folder = Path(keep) if keep else tmp_path_factory.mktemp("stacks")
    running = Suite(folder)
    if not keep:
        running.knobless("down")  # what an interrupted run left
    must(running.knobless("up", bound_s=1500))  # images may have to be built
    place = workspace.from_process(ENVIRONMENT, INSTANCE)
    mlflow_env.run_script(place, ROOT / "tests" / "platform_lab" / "models.py", running.instance.mlflow_uri)
    yield running
    if not keep:
        running.must("down")


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed, with a Python environment that the command made for itself."""
    folder = life.cloned(tmp_path_factory.mktemp("life") / "clone")
    must(life.Life(folder, "life").knobless("--version"))
    return folder
