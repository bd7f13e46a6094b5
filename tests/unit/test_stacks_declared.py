"""From a folder to an environment: what lies in it that declares nothing, or hides what does."""

from pathlib import Path

import pytest

from spec.problems import SpecError
from stacks.declared import read_environment

PLATFORM = "environment: local\ncluster: embedded\nteams: {alpha: {}}\n"
WINE = "endpoint: wine\nmodel: models:/wine/1\nconcurrency: {min: 1, max: 64}\n"


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    folder = tmp_path / "local" / "endpoints" / "alpha"
    folder.mkdir(parents=True)
    (tmp_path / "local" / "platform.yaml").write_text(PLATFORM)
    (folder / "wine.yaml").write_text(WINE)
    return tmp_path


@pytest.mark.parametrize("name", ["wine.yaml~", "wine.yaml.orig", ".wine.yaml.swp", "README.md"])
def test_what_an_editor_leaves_is_passed_over(stacks: Path, name: str) -> None:
    (stacks / "local" / "endpoints" / "alpha" / name).write_text("anything")
    assert [spec.endpoint for spec in read_environment(stacks, "local").endpoints] == ["wine"]


def test_a_link_to_nowhere_is_a_problem_and_not_a_removed_endpoint(stacks: Path) -> None:
    (stacks / "local" / "endpoints" / "alpha" / "gone.yaml").symlink_to("nowhere.yaml")
    with pytest.raises(SpecError, match=r"alpha/gone\.yaml: is a symbolic link"):
        read_environment(stacks, "local")


def test_a_linked_team_folder_is_a_problem_too(stacks: Path, tmp_path: Path) -> None:
    (stacks / "local" / "endpoints" / "beta").symlink_to(tmp_path)
    with pytest.raises(SpecError, match="endpoints/beta: is a symbolic link"):
        read_environment(stacks, "local")
