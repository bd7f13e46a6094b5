"""Runs in MLflow's environment: log the models that the runtime's process tests serve, and what they should answer.

python runtime_models.py FOLDER
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema, TensorSpec
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

ROW = {
    "qty": 3,
    "price": 9.5,
    "ratio": 0.25,
    "city": "Oslo",
    "member": False,
    "seen": "2024-03-01T10:00:00",
    "score": 0.5,
}


class Acts(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Answers with what it sees, unless the first row's city is an order."""

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        import logging
        import os
        import time

        order, _, argument = str(model_input["city"].iloc[0]).partition(":")
        if order == "sleep":
            time.sleep(float(argument))
        elif order == "die":
            os._exit(9)
        elif order == "raise":
            raise ValueError("token 4711")
        elif order == "odd":
            return [float("nan"), float("inf"), 1.0]
        elif order == "count":
            return list(range(len(model_input)))
        elif order == "log":
            logging.warning("a word from the model")
        elif order == "exit":
            raise SystemExit(1)
        elif order == "unspeakable":
            return object()
        elif order == "threads":
            return [os.environ["OMP_NUM_THREADS"]]
        return [
            {"seen": {name: [type(value).__name__, str(value)] for name, value in row.items()}, "params": params}
            for row in model_input.to_dict(orient="records")
        ]


class Broken(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def load_context(self, context: Any) -> None:
        raise RuntimeError("the weights are corrupt\nat byte 7")

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return []


class SlowToLoad(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def load_context(self, context: Any) -> None:
        import time

        time.sleep(2)

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return [1.0] * len(model_input)


class FailsOnItsExample(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        import os

        if "KNOBLESS_FRONT_PID" in os.environ:  # in a predictor, and not while it is logged
            raise LookupError("no such shard")
        return [1.0] * len(model_input)


class Hinted(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, model_input: list[str]) -> list[str]:
        return [text.upper() for text in model_input]


class Echo(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return {"type": type(model_input).__name__, "value": np.asarray(model_input).tolist()}


def main(folder: Path) -> None:
    warnings.filterwarnings("ignore")
    _iris(folder)
    _tensors(folder)
    _acts(folder)
    one = ModelSignature(Schema([ColSpec("double", "x")]))
    example = pd.DataFrame({"x": [1.0]})
    for name, model in (("broken", Broken()), ("slow", SlowToLoad())):
        mlflow.pyfunc.save_model(folder / name, python_model=model, signature=one, pip_requirements=["mlflow"])
    mlflow.pyfunc.save_model(
        folder / "fails", python_model=FailsOnItsExample(), signature=one, input_example=example,
        pip_requirements=["mlflow"],
    )  # fmt: skip
    mlflow.pyfunc.save_model(folder / "hinted", python_model=Hinted(), pip_requirements=["mlflow"])
    mlflow.pyfunc.save_model(folder / "unsigned", python_model=Echo(), pip_requirements=["mlflow"])


def _iris(folder: Path) -> None:
    x, y = load_iris(return_X_y=True, as_frame=True)
    x.columns = ["sl", "sw", "pl", "pw"]
    model = LogisticRegression(max_iter=500).fit(x, y)
    signature = infer_signature(x, model.predict(x))
    mlflow.sklearn.save_model(model, folder / "iris", signature=signature, input_example=x.head(2))
    rows = x.iloc[::25]
    rows.to_csv(folder / "iris.csv", index=False)
    rows.to_parquet(folder / "iris.parquet")
    expected = mlflow.pyfunc.load_model(str(folder / "iris")).predict(rows).tolist()
    (folder / "iris.json").write_text(json.dumps({"rows": rows.to_dict(orient="split"), "expected": expected}))


def _tensors(folder: Path) -> None:
    x, y = load_iris(return_X_y=True)
    model = LogisticRegression(max_iter=500).fit(x, y)
    mlflow.sklearn.save_model(
        model, folder / "tensor", signature=infer_signature(x, model.predict(x)), input_example=x[:2]
    )
    schema = Schema([TensorSpec(np.dtype("int64"), (-1, 2), "ids"), TensorSpec(np.dtype("float32"), (-1,), "w")])
    mlflow.pyfunc.save_model(
        folder / "named", python_model=NamedTensors(), signature=ModelSignature(schema), pip_requirements=["mlflow"]
    )


class NamedTensors(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return {name: [str(array.dtype), array.tolist()] for name, array in model_input.items()}


def _acts(folder: Path) -> None:
    types = {"qty": "long", "price": "double", "ratio": "float", "city": "string", "member": "boolean"}
    columns = [ColSpec(kind, name) for name, kind in types.items()]
    columns += [ColSpec("datetime", "seen"), ColSpec("double", "score", required=False)]
    columns += [ColSpec("string", "note", required=False), ColSpec("integer", "small", required=False)]
    params = ParamSchema([ParamSpec("k", "long", 5), ParamSpec("t", "double", 0.5)])
    example = pd.DataFrame([ROW]).astype({"ratio": "float32"})
    example["seen"] = pd.to_datetime(example["seen"])
    mlflow.pyfunc.save_model(
        folder / "acts", python_model=Acts(), signature=ModelSignature(Schema(columns), params=params),
        input_example=example, pip_requirements=["mlflow", "pandas"],
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
