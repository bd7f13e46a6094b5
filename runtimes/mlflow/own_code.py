"""Whether a customer's own ``predict`` can be called.

Owns asking that once, at load; leaves calling it to MLflow. One idea: how MLflow calls it follows from its signature,
so the call is tried on the signature alone: what can't be bound there would fail on every request.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

_FIT = "predict(model_input) or predict(context, model_input), with or without params=None behind; all names are free"


def check(pyfunc: Any) -> None:
    """Raise TypeError, with what would fit, where MLflow can't call what the model's author wrote."""
    model = getattr(getattr(pyfunc, "_model_impl", None), "python_model", None)
    for name in ("predict", "predict_stream"):
        method = getattr(model, name, None)
        if method is None:
            continue
        signature = inspect.signature(method)
        given = (None, None) if _wants_context(signature.parameters) else (None,)
        try:
            signature.bind(*given, **({"params": None} if "params" in signature.parameters else {}))
        except TypeError as error:
            said = f"{type(model).__name__}.{name}{signature} can't be called: {error}"
            raise TypeError(f"{said}. What fits is {_FIT.replace('predict', name)}") from None


def _wants_context(parameters: Mapping[str, Any]) -> bool:
    try:
        from mlflow.models.signature import _is_context_in_predict_function_signature as wants
    except ImportError:
        return True  # an older MLflow, which always passes one
    return bool(wants(parameters=parameters))
