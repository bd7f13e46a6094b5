"""What `knobless serve` says before it starts anything, and whose environments it takes."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from runtimes.images import Environment
from stacks.cli import main, serve, served_env
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import Workspace

MLMODEL = "flavors:\n  python_function:\n    python_version: 3.11.9\n  sklearn: {}\n"
WRITES = (
    "flavors:\n  python_function:\n    python_version: 3.11.9\n"
    "  transformers: {task: text-generation, pipeline_model_type: LlamaForCausalLM}\n"
)


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KNOBLESS_HOME", str(tmp_path / "home"))
    for name in ("KNOBLESS_ENVIRONMENT", "KNOBLESS_INSTANCE", "KNOBLESS_STACKS", "KNOBLESS_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    def write(mlmodel: str = MLMODEL, requirements: str | None = "mlflow==3.17.2\n") -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        (folder / "MLmodel").write_text(mlmodel)
        if requirements is not None:
            (folder / "requirements.txt").write_text(requirements)
        return folder

    return write


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main.cli, ["serve", *map(str, arguments)])


@pytest.mark.parametrize("given", ["fraud", "/", "no/such/folder"])
def test_what_is_neither_a_model_nor_a_uri_is_told_as_that(given: str) -> None:
    result = run(given)
    assert result.exit_code == ExitCode.NOT_FOUND, result.output
    assert f"{given} is neither a folder with an MLmodel file nor an MLflow URI" in result.output


def test_a_uri_needs_a_model_registry_and_says_how_to_name_one() -> None:
    result = run("models:/fraud/1")
    assert result.exit_code == ExitCode.NOT_FOUND, result.output
    assert "no model registry is known here" in result.output
    assert "MLFLOW_TRACKING_URI" in result.output


@pytest.mark.parametrize(
    ("mlmodel", "requirements", "code", "said"),
    [
        (MLMODEL.replace("3.11.9", "3.8.1"), "mlflow\n", ExitCode.SPEC, "logged with Python 3.8.1"),
        (MLMODEL, None, ExitCode.SPEC, "has no requirements.txt"),
        (MLMODEL, "scikit-learn\n", ExitCode.SPEC, "does not list mlflow"),
        ("flavors: [", "mlflow\n", ExitCode.SPEC, "MLmodel file can't be read"),
        (WRITES, "mlflow\n", ExitCode.FAILED, "this model is one for vllm"),
    ],
)
def test_a_model_that_the_platform_would_not_serve_so_is_refused_before_anything_is_installed(
    model: Callable[..., Path], mlmodel: str, requirements: str | None, code: ExitCode, said: str, tmp_path: Path
) -> None:
    result = run(model(mlmodel, requirements))
    assert result.exit_code == code, result.output
    assert said in result.output
    assert not (tmp_path / "home").exists()


def test_a_port_that_is_taken_is_told_before_anything_is_installed(model: Callable[..., Path], tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        result = run(model(), "--port", port)
    assert result.exit_code == ExitCode.MACHINE, result.output
    assert f"port {port} is taken" in result.output
    assert not (tmp_path / "home").exists()


def test_the_curl_line_sends_the_models_own_example(tmp_path: Path) -> None:
    assert serve.curl(tmp_path, 8080).endswith("-d @body.json http://127.0.0.1:8080/invocations")
    (tmp_path / serve.EXAMPLE).write_text("{}")
    assert f"-d @{tmp_path}/{serve.EXAMPLE} " in serve.curl(tmp_path, 8080)


def test_models_with_the_same_requirements_share_an_environment_that_is_there_already(tmp_path: Path) -> None:
    place = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "local", "default")
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    pythons: list[Path] = []
    told: list[str] = []
    for requirements in (("mlflow",), ("mlflow",), ("mlflow", "numpy")):
        wanted = Environment(version, requirements)
        folder = served_env._folder(place, "model", wanted.digest)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / served_env.STAMP).touch()
        pythons.append(served_env.of_model(place, wanted, told.append))
    assert pythons[0] == pythons[1] != pythons[2]
    assert told == []


def test_a_machine_without_the_models_python_is_told_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert served_env.interpreter(f"{sys.version_info[0]}.{sys.version_info[1]}") == sys.executable
    with pytest.raises(CliError, match=r"no python3\.99") as raised:
        served_env.interpreter("3.99")
    assert raised.value.code is ExitCode.MACHINE
