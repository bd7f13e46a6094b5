"""Models that the suite registers, run in MLflow's environment: one that sleeps as told, one that can't load.

Each has the example models' requirements, so that no image of its own is built.

    python models.py   (with MLFLOW_TRACKING_URI)
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import infer_signature
from mlflow.pyfunc import PythonModel


class Sleeper(PythonModel):
    """Answers with its version after the longest sleep that a row asks for."""

    def __init__(self, version: int) -> None:
        self.version = version

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[int]:
        time.sleep(float(model_input["seconds"].max()))
        return [self.version] * len(model_input)


class Broken(PythonModel):
    """Can't load."""

    def load_context(self, context: Any) -> None:
        raise RuntimeError("the weights are for another architecture")

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[int]:
        return [0] * len(model_input)


def requirements() -> str:
    """The requirements of an example model, as a file."""
    version = mlflow.MlflowClient().get_model_version("wine", "1")
    folder = mlflow.artifacts.download_artifacts(artifact_uri=f"models:/wine/{version.version}")
    kept = Path(tempfile.mkdtemp(prefix="suite-")) / "requirements.txt"
    kept.write_text((Path(folder) / "requirements.txt").read_text())
    return str(kept)


def register(name: str, model: PythonModel, pins: str, example: pd.DataFrame | None) -> None:
    frame = pd.DataFrame({"seconds": [0.0]})
    info = mlflow.pyfunc.log_model(
        name=name,
        python_model=model,
        pip_requirements=pins,
        signature=infer_signature(frame, [1]),
        input_example=example,
        registered_model_name=name,
    )
    print(f"models:/{name}/{info.registered_model_version}")


def main() -> None:
    have = {model.name for model in mlflow.MlflowClient().search_registered_models()}
    mlflow.set_experiment("suite")
    pins = requirements()
    if "sleeper" not in have:
        for version in (1, 2, 3):
            register("sleeper", Sleeper(version), pins, pd.DataFrame({"seconds": [0.0]}))
    if "broken" not in have:
        register("broken", Broken(), pins, None)


if __name__ == "__main__":
    main()
