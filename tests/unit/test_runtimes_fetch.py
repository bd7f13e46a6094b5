"""Fetching: the whole right model or a one-line reason, and nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtimes.digest import tree_digest
from runtimes.fetch import ATTEMPTS, FetchError, fetch, main


class Registry:
    """A stand-in for the registry's client that fails a number of times before it downloads."""

    def __init__(self, content: str = "flavors: {}\n", failures: list[Exception] | None = None) -> None:
        self.content = content
        self.failures = list(failures or [])
        self.downloads = 0

    def download(self, uri: str, folder: Path) -> Path:
        self.downloads += 1
        if self.failures:
            (folder / "half").write_text("partial")
            raise self.failures.pop(0)
        (folder / "data").mkdir()
        (folder / "MLmodel").write_text(self.content)
        (folder / "data" / "model.pkl").write_bytes(b"\x01")
        return folder


class NoSuchModelError(Exception):
    error_code = "RESOURCE_DOES_NOT_EXIST"


@pytest.fixture
def right(tmp_path: Path) -> str:
    folder = tmp_path / "reference"
    folder.mkdir()
    return tree_digest(Registry().download("", folder))


def test_the_folder_holds_the_model_and_nothing_else(tmp_path: Path, right: str) -> None:
    to = tmp_path / "model"
    assert fetch("models:/iris/1", right, to, Registry().download) is True
    assert tree_digest(to) == right
    assert sorted(path.name for path in to.iterdir()) == ["MLmodel", "data"]


def test_a_restart_that_finds_the_model_downloads_nothing(tmp_path: Path, right: str) -> None:
    registry = Registry()
    fetch("models:/iris/1", right, tmp_path / "model", registry.download)
    assert fetch("models:/iris/1", right, tmp_path / "model", registry.download) is False
    assert registry.downloads == 1


def test_what_an_interrupted_run_left_is_replaced(tmp_path: Path, right: str) -> None:
    to = tmp_path / "model"
    (to / ".fetch-abc" / "x").mkdir(parents=True)
    (to / "data").mkdir()
    (to / "data" / "stale").write_text("old")
    (to / "MLmodel").write_text("half")
    assert fetch("models:/iris/1", right, to, Registry().download) is True
    assert tree_digest(to) == right
    assert sorted(path.name for path in to.iterdir()) == ["MLmodel", "data"]


def test_a_passing_failure_is_tried_again_after_growing_waits(tmp_path: Path, right: str) -> None:
    registry = Registry(failures=[ConnectionError("refused"), ConnectionError("refused")])
    waits: list[float] = []
    assert fetch("models:/iris/1", right, tmp_path / "model", registry.download, waits.append) is True
    assert (registry.downloads, waits) == (3, [1.0, 2.0])


def test_an_unreachable_registry_is_given_up_after_bounded_attempts(tmp_path: Path, right: str) -> None:
    registry = Registry(failures=[ConnectionError(f"http://user:secret@host refused\n{i}") for i in range(99)])
    with pytest.raises(FetchError, match=f"in {ATTEMPTS} attempts") as caught:
        fetch("models:/iris/1", right, tmp_path / "model", registry.download, lambda _: None)
    assert registry.downloads == ATTEMPTS
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "model").iterdir()) == []


def test_an_unknown_model_is_told_at_once(tmp_path: Path, right: str) -> None:
    registry = Registry(failures=[NoSuchModelError("Model Version (name=iris, version=9) not found")])
    with pytest.raises(FetchError, match="models:/iris/9 is not in the model registry"):
        fetch("models:/iris/9", right, tmp_path / "model", registry.download)
    assert registry.downloads == 1


def test_other_files_than_those_asked_for_are_refused_with_both_digests(tmp_path: Path, right: str) -> None:
    to = tmp_path / "model"
    with pytest.raises(FetchError, match=f"the endpoint asks for {right}"):
        fetch("models:/iris/1", right, to, Registry("changed").download)
    assert list(to.iterdir()) == []


def test_a_folder_without_mlmodel_is_not_a_model(tmp_path: Path, right: str) -> None:
    def download(uri: str, folder: Path) -> Path:
        (folder / "readme").write_text("hello")
        return folder

    with pytest.raises(FetchError, match="has no MLmodel"):
        fetch("models:/iris/1", right, tmp_path / "model", download)


def test_a_failed_fetch_leaves_its_reason_and_exits_with_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def download(uri: str, folder: Path) -> Path:
        raise NoSuchModelError("not found")

    monkeypatch.setattr("runtimes.fetch.mlflow_download", download)
    monkeypatch.setattr("runtimes.jsonlog.configure", lambda: None)
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT", "DO_NOT_TRACK"):
        monkeypatch.setenv(name, "1")
    for name in ("MLFLOW_DISABLE_TELEMETRY", "MLFLOW_CONFIGURE_LOGGING", "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@registry:5500")
    monkeypatch.setenv("KNOBLESS_TERMINATION_LOG", str(tmp_path / "log"))
    status = main(["--uri", "models:/iris/9", "--sha256", "0" * 64, "--to", str(tmp_path / "model")])
    reason = (tmp_path / "log").read_text()
    assert status == 3
    assert reason == "models:/iris/9 is not in the model registry http://registry:5500: not found\n"
