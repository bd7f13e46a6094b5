"""One embedded cluster is one environment's."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import embedded
from stacks.cli import local_cluster
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import Workspace


def workspace(home: Path, environment: str, instance: str = "default") -> Workspace:
    return Workspace(home / "src", home / "src" / "stacks", home, environment, instance)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The instance `default` runs the environment `local`."""
    local = workspace(tmp_path, "local")
    kubeconfig = local.node_dir / "kubeconfig"
    for file, text in ((kubeconfig, ""), (local.cluster_file, json.dumps({"kubeconfig": str(kubeconfig)}))):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return tmp_path


def test_another_environment_is_told_whose_the_cluster_is(home: Path) -> None:
    with pytest.raises(CliError, match="instance 'default' is the cluster of environment 'local'") as caught:
        local_cluster.check_owner(workspace(home, "staging"))
    assert caught.value.code is ExitCode.USAGE
    assert "`knobless -e local down`" in caught.value.hint


def test_its_own_environment_and_another_instance_are_not_held_up(home: Path) -> None:
    local_cluster.check_owner(workspace(home, "local"))
    local_cluster.check_owner(workspace(home, "staging", "second"))
    local_cluster.check_owner(workspace(home, "y", "default-x"))


def test_facts_of_a_cluster_that_is_gone_hold_nobody_up(home: Path) -> None:
    (workspace(home, "local").node_dir / "kubeconfig").unlink()
    local_cluster.check_owner(workspace(home, "staging"))


def test_down_does_not_end_another_environments_cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr(embedded, "down", lambda instance, _: ended.append(instance.name), raising=False)
    console = Console(err=io.StringIO(), out=io.StringIO())
    with pytest.raises(CliError, match="environment 'local'"):
        local_cluster.stop(workspace(home, "staging"), console)
    assert ended == []
    local_cluster.stop(workspace(home, "local"), console)
    assert ended == ["default"]


@pytest.mark.parametrize(
    ("missing_tools", "has_environment", "said"),
    [(3, False, "3 tools are built"), (0, False, "Images and MLflow's environment are made once"), (0, True, "")],
)
def test_what_a_first_run_makes_is_announced_before_it_begins(
    missing_tools: int, has_environment: bool, said: str
) -> None:
    announced = local_cluster.to_come(missing_tools, has_environment)
    assert announced.startswith(said) and bool(announced) is bool(said)
    assert not announced or "minutes" in announced
