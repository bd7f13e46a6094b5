"""The state folder: what of it is ours, and which folders can't be one."""

from __future__ import annotations

from pathlib import Path

import pytest

from embedded import instance
from embedded.instance import Instance
from stacks.cli import workspace
from stacks.cli.workspace import Workspace

HOME = Path("/state")
PLACES = (
    Instance(home=HOME),
    Workspace(Path("/src"), Path("/src/stacks"), HOME, "local", "default"),
)


@pytest.mark.parametrize("place", PLACES, ids=lambda place: type(place).__name__)
def test_every_path_below_the_home_is_in_a_folder_that_a_purge_removes(place: Instance | Workspace) -> None:
    found = [getattr(place, name) for name, kind in vars(type(place)).items() if isinstance(kind, property)]
    below = [path.relative_to(HOME) for path in found if isinstance(path, Path) and path.is_relative_to(HOME)]
    assert below
    assert {path.parts[0] for path in below} <= instance.FOLDERS | workspace.FOLDERS


@pytest.mark.parametrize(
    ("home", "said"),
    [
        ("/", "which is or holds /root"),
        ("/root", "name a folder of its own, such as /root/knobless"),
        ("/src", "which is or holds /src/knobless"),
        ("/src/knobless", "which is or holds /src/knobless"),
        ("/root/../root", "which is or holds /root"),
        ("state", "write an absolute path"),
    ],
)
def test_a_home_that_holds_what_is_a_persons_is_refused(home: str, said: str) -> None:
    problem = workspace.home_problem(Path(home), Path("/src/knobless"), Path("/root"))
    assert problem is not None and said in problem


@pytest.mark.parametrize("home", ["/var/lib/knobless", "/root/knobless", "/src/knobless/state", "/rootless"])
def test_a_folder_of_its_own_is_a_home(home: str) -> None:
    assert workspace.home_problem(Path(home), Path("/src/knobless"), Path("/root")) is None
    assert workspace.home_problem(Path(home), Path("/src/knobless"), None) is None
