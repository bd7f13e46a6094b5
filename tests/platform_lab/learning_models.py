"""Models with a knee that is known: some sleep, one burns CPU. Their input examples take as long as their load does.

Two rows take twice as long as one, so requests that share a call gain nothing: a pod's knee is how many predictors it
has.

    python learning_models.py   (with MLFLOW_TRACKING_URI, after models.py)
"""

from __future__ import annotations

import time
from typing import Any

import mlflow
import pandas as pd
from mlflow.pyfunc import PythonModel

from tests.platform_lab.models import register, requirements


class Sleeps(PythonModel):
    """Takes the time that each row asks for, and no CPU."""

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[int]:
        time.sleep(float(model_input["seconds"].sum()))
        return [1] * len(model_input)


class Burns(PythonModel):
    """Takes the CPU time that each row asks for: with a fifth of a core, five times as long."""

    def predict(self, context: Any, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> list[int]:
        end_s = time.process_time() + float(model_input["seconds"].sum())
        while time.process_time() < end_s:
            pass
        return [1] * len(model_input)


def main() -> None:
    have = {model.name for model in mlflow.MlflowClient().search_registered_models()}
    mlflow.set_experiment("suite")
    pins = requirements()
    for name, model, seconds in (("slow", Sleeps(), 0.5), ("busy", Burns(), 0.05), ("brief", Sleeps(), 0.2)):
        if name not in have:
            register(name, model, pins, pd.DataFrame({"seconds": [seconds]}))


if __name__ == "__main__":
    main()
