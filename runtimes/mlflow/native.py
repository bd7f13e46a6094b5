"""The shortest ways to call a model object that MLflow loaded.

Owns which callables a flavor offers beside ``PyFuncModel.predict``; leaves choosing among them to calling, which takes
one only where it gives the same bytes. Imports no library that the model has not brought itself. One idea: the object
is the very one that MLflow loaded, nothing is converted, so a way is either the same or not taken.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from runtimes.mlflow.inputs import Given
from runtimes.mlflow.layout import Form

Call = Callable[[Given], Any]


def ways(pyfunc: Any) -> Iterator[tuple[str, Call]]:
    """Name and callable of each way that might do, the fastest first."""
    try:
        model = pyfunc.get_raw_model()
    except Exception:
        return
    flavors = getattr(pyfunc.metadata, "flavors", {})
    function = str(flavors.get("python_function", {}).get("predict_fn") or "predict")
    for flavor, offered in _OFFERED.items():
        if flavor in flavors:
            yield from offered(model, function)


def _sklearn(model: Any, function: str) -> Iterator[tuple[str, Call]]:
    call = getattr(model, function, None)
    if call is None:
        return
    # On an array scikit-learn does not compare names, which takes most of its time on one row.
    yield f"sklearn.{function}", lambda given: call(_numbers(given))


def _xgboost(model: Any, function: str) -> Iterator[tuple[str, Call]]:
    if not hasattr(model, "get_booster"):
        yield "xgboost.Booster.inplace_predict", lambda given: model.inplace_predict(_numbers(given))
        return
    if function == "predict" and (decide := _xgboost_decision(model)) is not None:
        booster, missing = model.get_booster(), model.missing
        rounds = _rounds(booster)

        def in_place(given: Given) -> Any:
            scores = booster.inplace_predict(
                _numbers(given), iteration_range=rounds, missing=missing, validate_features=False
            )
            return decide(scores)

        yield "xgboost.Booster.inplace_predict", in_place
    call = getattr(model, function)
    yield f"xgboost.{function}", lambda given: call(_numbers(given), validate_features=False)


def _xgboost_decision(model: Any) -> Callable[[Any], Any] | None:
    """From a booster's scores to the estimator's answer; None where the estimator itself has to do it."""
    if model.get_xgb_params().get("booster") == "gblinear":
        return None
    if not hasattr(model, "n_classes_"):
        return lambda scores: scores
    if model.objective == "binary:logistic" and model.n_classes_ == 2:
        return lambda scores: (scores > 0.5).astype(np.int64)
    if model.objective == "multi:softprob":
        return lambda scores: np.argmax(scores, axis=1)
    return None


def _rounds(booster: Any) -> tuple[int, int]:
    best = booster.attr("best_iteration")
    return (0, int(best) + 1) if best is not None else (0, 0)


def _lightgbm(model: Any, function: str) -> Iterator[tuple[str, Call]]:
    booster = getattr(model, "booster_", model)
    if getattr(booster, "pandas_categorical", None) or function != "predict":
        return  # its categories are those of a DataFrame
    if booster is not model and callable(getattr(model, "objective_", None)):
        return  # its scores are the objective's own
    classes = getattr(model, "classes_", None) if booster is not model else None
    threads = getattr(model, "n_jobs", None) or 1

    def values(given: Given) -> Any:
        return booster.predict(_numbers(given), num_threads=threads)

    def labels(given: Given) -> Any:
        scores = values(given)
        chosen = np.argmax(scores, axis=1) if scores.ndim > 1 else (scores > 0.5).astype(np.intp)
        return classes[chosen]  # type: ignore[index]

    yield "lightgbm.Booster.predict", values if classes is None else labels


def _catboost(model: Any, function: str) -> Iterator[tuple[str, Call]]:
    call = getattr(model, function)
    yield f"catboost.{function}", lambda given: call(_numbers(given))


def _onnx(model: Any, function: str) -> Iterator[tuple[str, Call]]:
    inputs = [(given.name, given.type) for given in model.get_inputs()]
    outputs = [output.name for output in model.get_outputs()]

    def cast(kind: str, array: Any) -> Any:
        return array.astype(np.float32) if kind == "tensor(float)" and array.dtype == np.float64 else array

    def tensors(given: Given) -> Any:
        data = given.tensors()
        fed = data if isinstance(data, dict) else {inputs[0][0]: data}
        fed = {name: cast(kind, fed[name]) for name, kind in inputs}
        return dict(zip(outputs, model.run(outputs, fed), strict=True))

    yield "onnxruntime.run", tensors


def _numbers(given: Given) -> Any:
    return given.tensors() if given.form is Form.TENSORS else given.matrix()


_OFFERED: dict[str, Callable[[Any, str], Iterator[tuple[str, Call]]]] = {
    "sklearn": _sklearn,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "onnx": _onnx,
}


def limit_jobs(model: Any, threads: int) -> int:
    """Override every ``n_jobs`` stored in an estimator and in those inside it; how many were changed."""
    seen: set[int] = set()
    changed = 0
    waiting = [model]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, list | tuple):
            waiting += item if len(item) < 4096 else []
        elif isinstance(item, dict):
            waiting += item.values()
        elif _estimator(item):
            if getattr(item, "n_jobs", None) not in (None, threads):
                item.n_jobs = threads
                changed += 1
            waiting += vars(item).values()
    return changed


def _estimator(item: Any) -> bool:
    base = getattr(sys.modules.get("sklearn.base"), "BaseEstimator", None)
    return base is not None and isinstance(item, base)
