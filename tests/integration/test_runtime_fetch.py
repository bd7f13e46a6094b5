"""The fetch step against a real MLflow server: what it brings, and what it says when it can't."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runtimes.digest import tree_digest
from tests.integration.runtime_process import ROOT, free_port, listens, model_python, until

pytestmark = pytest.mark.process

REGISTER = """
import json, sys
import mlflow
from runtimes.digest import tree_digest
with mlflow.start_run():
    info = mlflow.sklearn.log_model(
        __import__("sklearn.linear_model", fromlist=["x"]).LinearRegression().fit([[0.0], [1.0]], [0, 1]),
        name="model", registered_model_name="line", pip_requirements=["mlflow"],
    )
path = mlflow.artifacts.download_artifacts(artifact_uri="models:/line/1", dst_path=sys.argv[1])
print(json.dumps({"id": info.model_id, "sha256": tree_digest(__import__("pathlib").Path(path))}))
"""


@dataclass(frozen=True)
class Registry:
    url: str
    model_id: str
    sha256: str
    log: Path

    def downloads(self) -> Counter[str]:
        """How often each file has been asked for, by the server's own log of requests."""
        return Counter(re.findall(r"GET /api/2\.0/mlflow-artifacts/artifacts/(\S+) HTTP", self.log.read_text()))


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    folder, port = tmp_path_factory.mktemp("mlflow"), free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(model_python()), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: listens(port), "the model registry", server)
        done = python("-c", REGISTER, str(folder / "copy"), MLFLOW_TRACKING_URI=url)
        assert done.returncode == 0, done.stderr[-3000:]
        said = json.loads(done.stdout.splitlines()[-1])
        yield Registry(url, said["id"], said["sha256"], folder / "log")
    finally:
        os.killpg(server.pid, 9)
        server.wait()


def environment(**own: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "MLFLOW_DISABLE_TELEMETRY": "true", **own}


def python(*arguments: str, **own: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(model_python()), *arguments], env=environment(**own), capture_output=True, text=True, check=False
    )


def fetch(url: str, uri: str, sha256: str, to: Path) -> tuple[int, str, list[dict[str, object]]]:
    """Exit status, termination message and log lines of the real step."""
    reason = to.parent / "termination-log"
    done = python(
        "-m", "runtimes.fetch", "--uri", uri, "--sha256", sha256, "--to", str(to),
        MLFLOW_TRACKING_URI=url, KNOBLESS_TERMINATION_LOG=str(reason),
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    return done.returncode, reason.read_text() if reason.exists() else "", lines


@pytest.mark.case("runtimes-H1", "runtimes-H2", "runtimes-H3")
def test_a_version_and_a_logged_model_arrive_whole_and_only_once(registry: Registry, tmp_path: Path) -> None:
    to = tmp_path / "model"
    first = fetch(registry.url, "models:/line/1", registry.sha256, to)
    again = fetch(registry.url, "models:/line/1", registry.sha256, to)
    by_id = fetch(registry.url, f"models:/{registry.model_id}", registry.sha256, tmp_path / "by-id")
    assert [(status, reason) for status, reason, _ in (first, again, by_id)] == [(0, "")] * 3
    assert [lines[-1]["downloaded"] for _, _, lines in (first, again, by_id)] == [True, False, True]
    assert (to / "MLmodel").is_file()
    assert tree_digest(to) == tree_digest(tmp_path / "by-id") == registry.sha256
    assert not list(to.glob(".fetch-*"))


@pytest.mark.case("runtimes-H5")
def test_each_file_is_fetched_once_and_once_it_is_there_never_again(registry: Registry, tmp_path: Path) -> None:
    to, before = tmp_path / "model", registry.downloads()
    fetch(registry.url, "models:/line/1", registry.sha256, to)
    first = registry.downloads() - before
    fetch(registry.url, "models:/line/1", registry.sha256, to)
    files = [str(path.relative_to(to)) for path in to.rglob("*") if path.is_file()]
    fetched = [name.partition("/artifacts/")[2] for name in first]
    assert sorted([*fetched, "registered_model_meta"]) == sorted(files)  # which the client writes itself
    assert set(first.values()) == {1}
    assert registry.downloads() - before == first


def test_a_version_that_is_not_there_is_told_at_once(registry: Registry, tmp_path: Path) -> None:
    status, reason, _ = fetch(registry.url, "models:/line/9", registry.sha256, tmp_path / "model")
    assert status == 3
    assert reason.startswith(f"models:/line/9 is not in the model registry {registry.url}: ")


def test_a_model_that_changed_is_refused_and_nothing_of_it_stays(registry: Registry, tmp_path: Path) -> None:
    status, reason, _ = fetch(registry.url, "models:/line/1", "0" * 64, tmp_path / "model")
    assert (status, list((tmp_path / "model").iterdir())) == (3, [])
    assert f"its files have the digest {registry.sha256}, the endpoint asks for {'0' * 64}" in reason


def test_a_registry_that_does_not_answer_is_given_up_after_bounded_attempts(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    status, reason, lines = fetch(url, "models:/line/1", "0" * 64, tmp_path / "model")
    assert status == 3
    assert reason.startswith(f"the model registry {url} did not give models:/line/1 in 5 attempts: ")
    assert sum("tried again" in str(line["message"]) for line in lines) == 4
