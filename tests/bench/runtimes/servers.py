"""Who is compared: how each is started on a model, and what is asked of it. Each has an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stacks.cli import served_env, workspace
from tests.bench.runtimes.load import Request
from tests.runtime_lab import environments
from tests.runtime_lab.environments import ROOT

HERE = Path(__file__).parent
NAMES = ("sepal_length", "sepal_width", "petal_length", "petal_width")
ROW = (5.1, 3.5, 1.4, 0.2)
SPLIT = Request("/invocations", json.dumps({"dataframe_split": {"columns": NAMES, "data": [ROW]}}))
KSERVE = Request("/v1/models/m:predict", json.dumps({"instances": [ROW]}))
_V2 = [
    {"name": name, "shape": [1, 1], "datatype": "FP64", "data": [value]} for name, value in zip(NAMES, ROW, strict=True)
]
V2 = Request("/v2/models/m/infer", json.dumps({"parameters": {"content_type": "pd"}, "inputs": _V2}))
# One thread a prediction for everybody: more of them only wait for each other on one row.
QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Started:
    """A command line to be run in `folder`."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """One contender. ``start`` gets the model's folder, a folder of its own and a port."""

    name: str
    about: str
    request: Request
    start: Callable[[Path, Path, int], Started]


def _ours(*words: str, with_model: bool = False) -> Callable[[Path, Path, int], Started]:
    def start(model: Path, folder: Path, port: int) -> Started:
        site = folder / "site"
        site.mkdir(exist_ok=True)
        if not (site / "runtimes").exists():
            (site / "runtimes").symlink_to(ROOT / "runtimes")  # as in the image: nothing else of ours can be imported
        python = served_env.front(workspace.from_process("local", "tests"), print)
        argv = [str(python), str(HERE / "ours.py"), *words, str(port)]
        argv += [str(model), str(models_python())] if with_model else []
        return Started(argv, {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"})

    return start


def _mlflow(model: Path, folder: Path, port: int) -> Started:
    python = models_python()
    words = ["models", "serve", "-m", str(model), "-h", "127.0.0.1", "-p", str(port), "--env-manager", "local"]
    return Started([str(python.with_name("mlflow")), *words], {"PATH": f"{python.parent}:{os.environ['PATH']}"})


def _kserve(model: Path, folder: Path, port: int) -> Started:
    python = environments._ensure("bench-kserve")
    return Started([str(python), str(HERE / "kserve_server.py"), str(model), str(port)])


def _mlserver(model: Path, folder: Path, port: int) -> Started:
    python = environments._ensure("bench-mlserver")
    settings = {"host": "127.0.0.1", "http_port": port, "grpc_port": port + 1, "metrics_port": port + 2}
    settings |= {"parallel_workers": 0, "debug": False}
    named = {"name": "m", "implementation": "mlserver_mlflow.MLflowRuntime", "parameters": {"uri": str(model)}}
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps(named))
    return Started([str(python.with_name("mlserver")), "start", str(folder)])


def log_models(folder: Path) -> None:
    """The models that are served, a folder each."""
    command = [str(models_python()), str(HERE / "models.py"), str(folder)]
    subprocess.run(command, env={**os.environ, **QUIET}, check=True, stderr=subprocess.DEVNULL)


def models_python() -> Path:
    """The models' own environment: of MLflow's server, and of our predictors."""
    return environments.flavors_python()


OURS, MLFLOW, KSERVE_, MLSERVER, CONSTANT, SILENT = "ours", "mlflow", "kserve", "mlserver", "constant", "silent"
SERVERS = (
    Server(OURS, "one predictor, hooks on", SPLIT, _ours("model", with_model=True)),
    Server(MLFLOW, "mlflow models serve, dataframe_split", SPLIT, _mlflow),
    Server(KSERVE_, "KServe, the model object on instances of v1, as its own servers", KSERVE, _kserve),
    Server(MLSERVER, "MLServer's MLflow runtime, v2 as pandas, no parallel workers", V2, _mlserver),
    Server(CONSTANT, "our interface and hooks, a constant answer", SPLIT, _ours("constant")),
    Server(SILENT, "that without metrics and hooks", SPLIT, _ours("silent")),
)
RIVALS = (MLFLOW, KSERVE_, MLSERVER)
WITH_MODEL = (OURS, *RIVALS)
