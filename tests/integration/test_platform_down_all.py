"""`make down-all`: nothing of a home stays, and nothing of anybody else's goes.

The home is this test's own. Programs and environments are links to what the machine has; of images and the registry,
only what is never written again is shared, and by hard links.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import embedded
from embedded.instance import Instance, choose_index, registered
from tests.platform_lab.command import HOME
from tests.platform_lab.life import Life, left_behind, of_home

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

LINKED: Final = ("tools", "envs")
BLOBS: Final = "registry/docker/registry/v2/blobs"
WRITTEN_ONCE: Final = ("images/storage/overlay", BLOBS)
COPIED: Final = ("images", "registry")
THEIRS: Final = "notes.txt"


def filled(home: Path) -> None:
    """Everything that a first `make up` would build, and the address slices that are in use."""
    for name in LINKED:
        (home / name).symlink_to(HOME / name)
    for name in WRITTEN_ONCE:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        copy("--link", str(HOME / name), str(home / name))
    for name in COPIED:
        copy("--no-clobber", f"{HOME / name}/.", str(home / name))
    for name, index in registered(HOME).items():
        (home / "nodes" / name).mkdir(parents=True)
        (home / "nodes" / name / "index").write_text(f"{index}\n")


def copy(*arguments: str) -> None:
    """What another run takes away meanwhile is none of the finished images."""
    subprocess.run(("cp", "--archive", *arguments), check=False, capture_output=True)


def lasting(home: Path) -> set[str]:
    """What no run takes away: programs, environments and blobs, with the sizes of files."""
    files = [path for name in (*LINKED, BLOBS) for path in (home / name).glob("*/*")]
    return {f"{path.relative_to(home)} {path.stat().st_size if path.is_file() else ''}" for path in files}


@pytest.fixture
def life(clone: Path) -> Iterator[Life]:
    one = Life(clone, "leaving", Path(tempfile.mkdtemp(prefix="kn-", dir=HOME.parent)))
    one.begins()
    filled(one.home)
    yield one
    if one.home.exists():
        one.knobless("down")
        shutil.rmtree(one.home)


@pytest.fixture
def neighbour(life: Life) -> Iterator[Instance]:
    """Another instance of the same home, where one is to be started."""
    found = Instance("staying", life.home, choose_index("staying", {**registered(life.home), **registered(HOME)}))
    yield found
    embedded.down(found)


def test_down_all_leaves_nothing_of_its_home_and_takes_nothing_of_anybody_elses(
    life: Life, neighbour: Instance
) -> None:
    others = lasting(HOME)
    assert "HTTP 200" in life.make("up").out
    tools = shutil.which("kube-apiserver")
    assert tools is not None
    embedded.up(neighbour, Path(tools).parent)

    refused = life.try_make("down-all")
    assert refused.code != 0
    assert "instance staying runs; end it first" in refused.err
    status = embedded.status(neighbour)
    assert status is not None and status.all_ready

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
