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
from mlflow.types.llm import (
    ChatChoice,
    ChatChoiceDelta,
    ChatChunkChoice,
    ChatCompletionChunk,
    ChatCompletionResponse,
    ChatMessage,
)
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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
    """Answers with what it sees, unless a row's city is an order; what it returns instead is up to the first row."""

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        import os

        for city in model_input["city"]:
            obey(str(city))
        order = str(model_input["city"].iloc[0]).partition(":")[0]
        if order == "odd":
            return [float("nan"), float("inf"), 1.0]
        if order == "count":
            return list(range(len(model_input)))
        if order == "unspeakable":
            return object()
        if order == "threads":
            return [os.environ["OMP_NUM_THREADS"]]
        return [
            {"seen": {name: [type(value).__name__, str(value)] for name, value in row.items()}, "params": params}
            for row in model_input.to_dict(orient="records")
        ]


def obey(city: str) -> None:
    import logging
    import os
    import time

    order, _, argument = city.partition(":")
    if order == "sleep":
        time.sleep(float(argument))
    elif order == "die":
        os._exit(9)
    elif order == "raise":
        raise ValueError("token 4711")
    elif order == "log":
        logging.warning("a word from the model")
    elif order == "exit":
        raise SystemExit(1)


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


class Ranks(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    """Looks at its rows together: the rank of each among them."""

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return model_input.rank().iloc[:, 0].to_numpy()


class Table(mlflow.pyfunc.PythonModel):  # type: ignore[misc]
    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        return pd.DataFrame({"twice": model_input["sl"] * 2, "text": [str(x) for x in model_input["sw"]]})


class Chat(mlflow.pyfunc.ChatModel):  # type: ignore[misc]
    """Says what it hears, in upper case or word by word, unless that is an order."""

    def predict(self, context, messages, params):  # type: ignore[no-untyped-def]
        obey(messages[-1].content)
        choice = ChatChoice(index=0, message=ChatMessage(role="assistant", content=messages[-1].content.upper()))
        return ChatCompletionResponse(choices=[choice], model="chat")

    def predict_stream(self, context, messages, params):  # type: ignore[no-untyped-def]
        for word in messages[-1].content.split():
            obey(word)
            delta = ChatChoiceDelta(role="assistant", content=word)
            yield ChatCompletionChunk(choices=[ChatChunkChoice(index=0, delta=delta)])


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
    mlflow.pyfunc.save_model(folder / "chat", python_model=Chat(), pip_requirements=["mlflow"])
    _rows(folder)


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


class Wakes(LogisticRegression):  # type: ignore[misc]
    """Starts a thread that never ends, as numeric libraries do, once it gets many rows."""

    def predict(self, X):  # type: ignore[no-untyped-def]  # noqa: N803
        import threading

        if len(X) > 100:
            threading.Thread(target=threading.Event().wait, daemon=True).start()
        return super().predict(X)


def _rows(folder: Path) -> None:
    x, y = load_iris(return_X_y=True, as_frame=True)
    x.columns = ["sl", "sw", "pl", "pw"]
    for name, model in (("ranks", Ranks()), ("table", Table())):
        mlflow.pyfunc.save_model(
            folder / name, python_model=model, signature=infer_signature(x), input_example=x.head(1),
            pip_requirements=["mlflow"],
        )  # fmt: skip
    scores = LogisticRegression(max_iter=500).fit(x, y)
    mlflow.sklearn.save_model(
        scores, folder / "scores", signature=infer_signature(x, scores.predict_proba(x)), input_example=x.head(2),
        pyfunc_predict_fn="predict_proba",
    )  # fmt: skip
    mlflow.sklearn.save_model(
        Wakes(max_iter=500).fit(x, y), folder / "wakes", signature=infer_signature(x, y), input_example=x,
        serialization_format="cloudpickle",
    )  # fmt: skip
    steps = make_pipeline(StandardScaler(), RandomForestClassifier(5, n_jobs=-1))
    forest = GridSearchCV(steps, {"randomforestclassifier__max_depth": [2]}, cv=2, n_jobs=-1).fit(x, y)
    mlflow.sklearn.save_model(
        forest, folder / "forest", signature=infer_signature(x, forest.predict(x)), input_example=x.head(2),
        serialization_format="cloudpickle",
    )  # fmt: skip


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
