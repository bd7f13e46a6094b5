"""Nested lists as the numpy array that a tensor signature asks for, or the reason why not.

Owns the check of kind, range and shape; runs in the model's environment on its numpy. One idea: the values decide, not
the type they arrived in, so whole floats fit an integer tensor and 2.7 never becomes 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.signature import Tensor

_EXACT_FLOAT = float(1 << 53)  # above it a float no longer tells neighbouring integers apart
_NUMBERS = "iufc"


def convert_tensor(spec: Tensor, value: Any) -> Any:
    """The array; shape and values fit the spec."""
    try:
        raw = np.array(value)
    except (ValueError, TypeError, OverflowError):
        raise _refusal(spec, "its rows have different lengths") from None
    if raw.size == 0 and raw.shape[:1] in ((0,), ()):
        return np.empty((0, *(max(length, 0) for length in spec.shape[1:])), dtype=_dtype(spec))
    array = _cast(spec, raw, _dtype(spec))
    _check_shape(spec, array)
    return array


def _dtype(spec: Tensor) -> Any:
    return np.dtype(object) if spec.dtype == "object" else np.dtype(spec.dtype)


def _cast(spec: Tensor, raw: Any, target: Any) -> Any:
    if target.kind in "OM":
        return raw.astype(target) if target.kind == "O" else raw
    if target.kind in "US":
        if raw.dtype.kind != target.kind:
            raise _refusal(spec, "every value must be a string")
        return raw
    if target.kind == "b":
        if raw.dtype.kind == "b" or (raw.dtype.kind in "iuf" and bool(np.isin(raw, (0, 1)).all())):
            return raw.astype(target)
        raise _refusal(spec, "every value must be a boolean")
    if raw.dtype.kind not in _NUMBERS:
        raise _refusal(spec, "every value must be a number that fits 64 bits")
    return _integers(spec, raw, target) if target.kind in "iu" else _floats(spec, raw, target)


def _integers(spec: Tensor, raw: Any, target: Any) -> Any:
    if raw.dtype.kind == "f":
        if not bool((np.isfinite(raw) & (raw == np.floor(raw)) & (np.abs(raw) < _EXACT_FLOAT)).all()):
            raise _refusal(spec, "every value must be a whole number")
        raw = raw.astype(np.int64)
    bounds = np.iinfo(target)
    if int(raw.min()) < bounds.min or int(raw.max()) > bounds.max:
        raise _refusal(spec, f"a value is out of the range of {target.name}")
    return raw.astype(target)


def _floats(spec: Tensor, raw: Any, target: Any) -> Any:
    with np.errstate(over="ignore"):
        array = raw.astype(target)
    if not bool(np.isfinite(array).all()):
        raise _refusal(spec, f"a value is out of the range of {target.name}")
    return array


def _check_shape(spec: Tensor, array: Any) -> None:
    fits = len(array.shape) == len(spec.shape) and all(
        wanted in (-1, length) for wanted, length in zip(spec.shape, array.shape, strict=True)
    )
    ragged = array.dtype.kind == "O"  # MLflow's way to say that lengths differ from row to row
    if not fits and not ragged:
        raise _refusal(spec, f"its shape is {list(array.shape)}, the model takes {list(spec.shape)}")


def _refusal(spec: Tensor, reason: str) -> RefusedError:
    name = f"tensor `{spec.name}`" if spec.name else "the input tensor"
    return RefusedError(400, f"{name}: {reason}", spec.name)
