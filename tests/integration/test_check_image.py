"""`knobless check-image` on real images: one that keeps its promises, and what is said of those that don't."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from embedded import debian, images
from embedded.services import SYSTEM_PATH
from stacks.cli import building, check_image
from stacks.cli.console import Console
from stacks.cli.session import Session
from stacks.cli.workspace import Workspace
from tests.platform_lab.command import HOME

STUB = Path(__file__).parent / "own_image"
STATED = {"protocol": "v2", "port": 19413, "stop_s": 2}
LACKING = building.lacks(os.geteuid(), lambda program: shutil.which(program, path=SYSTEM_PATH) is not None)
pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(LACKING), reason="; ".join(LACKING))]


def built(user: str, context: Path) -> str:
    shutil.copytree(STUB, context)
    containerfile = context / "Containerfile"
    containerfile.write_text(containerfile.read_text().replace("USER 1000", f"USER {user}"))
    arguments = {"BASE": debian.build(HOME)}
    return images.build(HOME, images.recipe("check-stub", containerfile, context, [context / "server.pl"], arguments))


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> str:
    return built("1000", tmp_path_factory.mktemp("stub") / "context")


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., dict[str, list[str]]]:
    """What is said of an image, by verdict."""

    def said(image: str, data: bytes | None = None, **stated: object) -> dict[str, list[str]]:
        workspace = Workspace(tmp_path, tmp_path / "stacks", HOME, "local", "default")
        session = Session(workspace, Console(err=io.StringIO(), out=io.StringIO()))
        to = "/v2/models/m/infer" if data else ""
        wanted = check_image.wanted(image, STATED | stated, 20, data, to)
        found: dict[str, list[str]] = {}
        for finding in check_image.findings(session, wanted, None):
            found.setdefault(finding.verdict.value, []).append(f"{finding.about}: {finding.said}")
        return found

    return said


def test_an_image_that_keeps_its_promises_passes_and_nothing_of_it_is_left(
    stub: str, lines: Callable[..., dict[str, list[str]]]
) -> None:
    found = lines(stub, b'{"inputs": []}')
    assert set(found) == {"ok"}, found
    assert {line.split(":")[0] for line in found["ok"]} >= {"user", "start", "port", "answer", "errors", "end"}
    assert not list((HOME / "images" / "tmp").glob("check-*"))


@pytest.mark.parametrize(
    ("env", "failed"),
    [
        ({"DEAF": "1"}, "end: it is still there 2 s after SIGTERM"),
        ({"ADDRESS": "127.0.0.1"}, "port: listens on 19413 of loopback alone"),
        ({"WRITES": "/srv/log"}, "start: it ended with status"),
    ],
)
def test_a_promise_that_is_broken_is_the_one_failure_that_is_told(
    stub: str, lines: Callable[..., dict[str, list[str]]], env: dict[str, str], failed: str
) -> None:
    (told,) = lines(stub, env=env)["FAILED"]
    assert told.startswith(failed)


def test_a_server_s_last_words_say_why_it_did_not_start(stub: str, lines: Callable[..., dict[str, list[str]]]) -> None:
    (told,) = lines(stub, env={"WRITES": "/srv/log"})["FAILED"]
    assert "can't write /srv/log: Read-only file system" in told
    assert set(lines(stub, env={"WRITES": "/var/tmp/log"}, writable=("/var/tmp",))) == {"ok", "not tried"}


def test_an_image_of_a_named_user_is_told_the_number_to_write(
    tmp_path: Path, lines: Callable[..., dict[str, list[str]]]
) -> None:
    (told,) = lines(built("daemon", tmp_path / "named"))["FAILED"]
    assert told == "user: USER daemon is a name, which a node can't judge: write USER 1, or state user"
