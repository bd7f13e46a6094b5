"""`make down-all`: nothing of a home stays, and nothing of anybody else's goes.

The home is this test's own; its programs and environments are links to what the machine has. A node with a pod stands
for the platform: what the command line makes besides are files below the home.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import embedded
from embedded import pause
from embedded.instance import Instance, choose_index, registered
from stacks.cli import workspace
from tests.platform_lab.command import HOME
from tests.platform_lab.life import Life, left_behind, of_home

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

LINKED: Final = ("tools", "envs")
THEIRS: Final = "notes.txt"


def linked(home: Path) -> None:
    """What a first `make up` would build, and the address slices that are in use."""
    for name in LINKED:
        (home / name).symlink_to(HOME / name)
    for name, index in registered(HOME).items():
        (home / "nodes" / name).mkdir(parents=True)
        (home / "nodes" / name / "index").write_text(f"{index}\n")


def lasting(home: Path) -> set[str]:
    """What no run takes away: programs and environments, with the sizes of files."""
    files = [path for name in LINKED for path in (home / name).glob("*/*")]
    return {f"{path.relative_to(home)} {path.stat().st_size if path.is_file() else ''}" for path in files}


def start(instance: Instance) -> None:
    """A node with MLflow, and a pod on it."""
    tools = Path(str(shutil.which("kube-apiserver"))).parent
    embedded.up(instance, tools, instance.home / "envs" / "mlflow" / "bin" / "python")
    spec = {"containers": [{"name": "main", "image": pause.reference(instance)}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, "spec": spec}
    kubectl(instance, "apply", "-f", "-", stdin=json.dumps(pod))
    kubectl(instance, "wait", "--for=condition=Ready", "pod/one", "--timeout=120s")


def kubectl(instance: Instance, *arguments: str, stdin: str = "") -> str:
    argv = ("kubectl", f"--kubeconfig={instance.kubeconfig}", *arguments)
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def life(clone: Path) -> Iterator[Life]:
    one = Life(clone, "leaving", Path(tempfile.mkdtemp(prefix="kn-", dir=HOME.parent)))
    one.begins()
    linked(one.home)
    yield one
    if one.home.exists():
        one.knobless("down")
        shutil.rmtree(one.home)


@pytest.fixture
def neighbour(life: Life) -> Iterator[Instance]:
    """Another instance of the same home, where one is to be started."""
    index = choose_index("staying", {**registered(HOME), life.name: life.instance.index})
    found = replace(life.instance, name="staying", index=index)
    yield found
    embedded.down(found)


def test_down_all_leaves_nothing_of_its_home_and_takes_nothing_of_anybody_elses(
    life: Life, neighbour: Instance
) -> None:
    others = lasting(HOME)
    for name in workspace.FOLDERS - {"envs"}:
        (life.home / name).mkdir()
    start(life.instance)
    start(neighbour)

    refused = life.try_make("down-all")
    assert refused.code != 0
    assert "instance staying runs; end it first" in refused.err
    assert kubectl(neighbour, "get", "pod", "one", "--output=jsonpath={.status.phase}") == "Running"

    embedded.down(neighbour)
    (life.home / THEIRS).write_text("a person's own")
    assert f"left in {life.home}, since knobless did not make it: {THEIRS}" in life.make("down-all").err
    assert [path.name for path in life.home.iterdir()] == [THEIRS]

    (life.home / THEIRS).unlink()
    life.make("down-all")
    assert not life.home.exists()
    assert of_home(life.home) == []
    assert left_behind(life) == []
    assert lasting(HOME) >= others
