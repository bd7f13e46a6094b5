"""What a person types wrong is one message and the documented exit code, never a traceback."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from stacks.cli import bring_up, main, views
from stacks.cli.errors import ExitCode


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KNOBLESS_HOME", str(tmp_path / "home"))
    for name in ("KNOBLESS_ENVIRONMENT", "KNOBLESS_INSTANCE", "KNOBLESS_STACKS", "KNOBLESS_ROOT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main.cli, arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-e", "Foo", "status"), "'Foo' is no name for the environment"),
        (("-e", "../x", "down"), "'../x' is no name for the environment"),
        (("--instance", "A B", "status"), "'A B' can't name an instance"),
        (("--instance", "../x", "down"), "'../x' can't name an instance"),
        (("predict", "wine", "-d", "no-such-file.json"), "'no-such-file.json' does not exist"),
        (("predict", "wine", "-d", "/"), "'/' is a directory"),
        (("predict", "wine", "--key-file", "/"), "'/' is a directory"),
    ],
)
def test_an_argument_that_can_not_be_meant_is_wrong_usage(arguments: tuple[str, ...], said: str, home: Path) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.USAGE, result.output
    assert said in result.output
    assert not home.exists()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/x"), ExitCode.MACHINE, "knobless: /x: No space left"),
        (OSError(errno.ENOTDIR, "Not a directory", "/x"), ExitCode.FAILED, "knobless: /x: Not a directory"),
        (OSError("timed out"), ExitCode.FAILED, "knobless: timed out"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), ExitCode.MACHINE, "this user may not use /x"),
    ],
)
def test_what_the_operating_system_refuses_is_one_message(
    error: OSError, code: ExitCode, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(views, "show_status", refuse)
    result = run("status")
    assert (result.exit_code, result.exception.__class__) == (code, SystemExit)
    assert said in result.output


def test_an_endpoint_that_no_file_declares_is_told_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setattr(bring_up, "_bring_up", lambda *_: pytest.fail("something was started"))
    result = run("up", "--only", "wien")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "no file declares wien (endpoints: tumour, wine)" in result.output
    assert not home.exists()


def test_every_exit_code_stands_in_the_help_and_in_the_readme() -> None:
    readme = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())
    for text in (main.EPILOG, readme[readme.index("Exit codes: 0 done") :]):
        codes = [int(number) for number in re.findall(r"(?:Exit codes: |, )([0-9]+) ", text.partition(".")[0])]
        assert codes == [code.value for code in ExitCode]
