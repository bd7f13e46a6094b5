"""The `knobless` file: what it does before there is an environment, on whatever Python it finds."""

import importlib.util
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bootstrap(tmp_path: Path) -> ModuleType:
    """The file as a module, with a checkout of its own; nothing it would start is started."""
    loader = SourceFileLoader("bootstrap", str(ROOT / "knobless"))
    spec = importlib.util.spec_from_loader("bootstrap", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    (tmp_path / "requirements").mkdir()
    for name in ("control.txt", "dev.txt"):
        (tmp_path / "requirements" / name).write_text(name)
    module.ROOT, module.VENV = tmp_path, tmp_path / ".venv"
    return module


def made(bootstrap: ModuleType, dev: bool) -> None:
    """As if an environment had been made."""
    (bootstrap.VENV / "bin").mkdir(parents=True, exist_ok=True)
    (bootstrap.VENV / "bin" / "python").touch()
    (bootstrap.VENV / "knobless.stamp").write_text(bootstrap.stamp_of(dev))


def test_an_old_python_is_refused_by_name(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    assert bootstrap.main() == 3
    assert "needs Python 3.11 or newer" in capsys.readouterr().err
    assert not bootstrap.VENV.exists()


def test_too_little_disk_is_said_before_anything_is_written(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "NEEDED_BYTES", 2**62)
    assert bootstrap.main() == 3
    assert "MiB are free" in capsys.readouterr().err
    assert not bootstrap.VENV.exists()


def test_an_interrupt_is_one_line_and_the_documented_code(
    bootstrap: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "make_environment", interrupted)
    assert bootstrap.main() == 130
    assert capsys.readouterr().err.strip() == "Interrupted. The next run makes the Python environment afresh."


def test_an_environment_of_the_tests_serves_every_run_and_no_other_way_round(bootstrap: ModuleType) -> None:
    made(bootstrap, dev=True)
    assert bootstrap.is_current(False) and bootstrap.is_current(True)
    made(bootstrap, dev=False)
    assert bootstrap.is_current(False) and not bootstrap.is_current(True)


def test_an_environment_that_was_moved_here_is_made_anew(bootstrap: ModuleType, tmp_path: Path) -> None:
    made(bootstrap, dev=False)
    (tmp_path / "elsewhere").mkdir()
    moved = bootstrap.VENV.rename(tmp_path / "elsewhere" / ".venv")
    bootstrap.VENV = moved
    assert not bootstrap.is_current(False)


def test_a_changed_lock_makes_the_environment_anew(bootstrap: ModuleType) -> None:
    made(bootstrap, dev=False)
    (bootstrap.ROOT / "requirements" / "control.txt").write_text("another")
    assert not bootstrap.is_current(False)


def test_the_toolchain_starts_on_a_python_without_any_package() -> None:
    argv = [sys.executable, "-S", "-m", "embedded.toolchain", "--help"]
    assert subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout.startswith("usage:")
