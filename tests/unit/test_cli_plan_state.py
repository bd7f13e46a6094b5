"""A plan is made on a copy of the state: what it sees there, and that nothing of it stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from stacks.cli import plan_state
from stacks.cli.errors import CliError
from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.workspace import Workspace

STACK = "local.alpha.wine"
DEPLOYMENT = {
    "manifest": {"version": "v3"},
    "resources": [{"urn": "a", "protect": True, "inputs": {"protect": True}}, {"urn": "b"}],
}
# Stands for pulumi: notes how it is called and what it finds where it is sent for the state.
PROGRAM = """#!/bin/sh
case "$*" in
*" stack export "*) echo '{"version": 3, "deployment": %(deployment)s}' ;;
*)  echo "$@" >> %(folder)s/calls
    cp -r "${PULUMI_BACKEND_URL#file://}" %(folder)s/seen
    echo "$PULUMI_BACKEND_URL" >> %(folder)s/places
    touch "${PULUMI_BACKEND_URL#file://}/.pulumi/left-behind"
    echo '{"steps": []}'
    exit ${EXIT_OF_THIS_TEST:-0} ;;
esac
"""


@pytest.fixture
def pulumi(tmp_path: Path) -> Pulumi:
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.write_text(PROGRAM % {"deployment": json.dumps(DEPLOYMENT), "folder": tmp_path})
    program.chmod(0o755)
    (tmp_path / "root").mkdir()
    return Pulumi(Workspace(tmp_path / "root", tmp_path / "stacks", tmp_path / "home", "local", "one"), program.parent)


def seen(folder: Path) -> dict[str, Any]:
    text = (folder / "seen" / ".pulumi" / "stacks" / "knobless" / f"{STACK}.json").read_text()
    return dict(json.loads(text)["checkpoint"])


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def test_in_the_copy_nothing_is_protected_and_all_else_is_as_it_stands() -> None:
    assert plan_state.unprotected(DEPLOYMENT) == {
        "manifest": {"version": "v3"},
        "resources": [{"urn": "a", "inputs": {"protect": True}}, {"urn": "b"}],
    }
    assert plan_state.unprotected({"manifest": {}})["resources"] == []


def test_a_plan_of_a_stack_that_stands_sees_a_copy_of_its_state(pulumi: Pulumi, tmp_path: Path) -> None:
    pulumi.preview(STACK)
    assert seen(tmp_path)["latest"] == plan_state.unprotected(DEPLOYMENT)
    assert "--config-file" not in (tmp_path / "calls").read_text(), "the settings with the state's own salt are meant"


def test_a_plan_of_a_new_stack_sees_an_empty_one_and_makes_none(pulumi: Pulumi, tmp_path: Path) -> None:
    before = files(tmp_path / "home")
    pulumi.preview(STACK, is_new=True)
    assert seen(tmp_path) == {"stack": f"organization/knobless/{STACK}", "latest": None}
    assert "--config-file" in (tmp_path / "calls").read_text(), "no settings are generated in the checkout"
    assert files(tmp_path / "home") == before
    assert files(tmp_path / "root") == set()


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_copy_is_gone_with_the_plan_also_where_that_fails(
    pulumi: Pulumi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool, exit_code: int
) -> None:
    pulumi._env["EXIT_OF_THIS_TEST"] = str(exit_code)
    if exit_code:
        with pytest.raises(CliError):
            pulumi.preview(STACK, is_new=is_new)
    else:
        pulumi.preview(STACK, is_new=is_new)
    places = (tmp_path / "places").read_text().split()
    assert places and not any(Path(place.removeprefix("file://")).exists() for place in places)


def test_the_copy_is_gone_after_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), plan_state.copied(STACK, DEPLOYMENT) as copy:
        folder = Path(copy.backend_url.removeprefix("file://"))
        assert folder.stat().st_mode & 0o077 == 0, "nobody else reads it meanwhile"
        raise KeyboardInterrupt
    assert not folder.exists()


PROTECTING = """#!/bin/sh
case "$*" in
*" stack export "*) echo '{"deployment": {"resources": [{"urn": "stays"}]}}' ;;
*" state "*) shift 5; echo "$1 $2 $3" >> %(folder)s/asked ;;
*) exit %(code)s ;;
esac
"""


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        (0, ["state unprotect goes", "state unprotect stays"]),
        (1, ["state unprotect goes", "state unprotect stays", "state protect stays"]),
    ],
)
def test_what_was_announced_and_still_stands_after_a_failed_run_is_protected_again(
    pulumi: Pulumi, tmp_path: Path, code: int, asked: list[str]
) -> None:
    (tmp_path / "bin" / "pulumi").write_text(PROTECTING % {"folder": tmp_path, "code": code})
    try:
        pulumi.up(STACK, lambda _: None, lambda: None, ["goes", "stays"])
    except CliError:
        assert code == 1
    assert (tmp_path / "asked").read_text().splitlines() == asked


@pytest.mark.case("pulumi-H2", "pulumi-G3")
def test_no_experimental_switch_and_no_dropped_checkpoint_reaches_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_EXPERIMENTAL", "true")
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
    workspace = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "local", "one")
    told = Pulumi(workspace, tmp_path)._env
    assert not {"PULUMI_EXPERIMENTAL", "PULUMI_SKIP_CHECKPOINTS"} & set(told)
    assert told["PATH"].endswith(os.environ["PATH"]), "the rest of the shell's variables stay"
