"""A model's result as the JSON body of a 200.

Owns the shapes that MLflow's server gives (records for a DataFrame, lists for an array); runs in the model's
environment. One idea: the answer is JSON that a strict parser reads, so what is not finite leaves as null.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Answer:
    """The body, and how many values in it were not finite and became null."""

    body: bytes
    non_finite: int = 0


def encode_answer(predictions: Any) -> Answer:
    """``{"predictions": ...}``; raises TypeError where the model returned something JSON has no form for."""
    document = {"predictions": _jsonable(predictions)}
    try:
        return Answer(json.dumps(document, default=_plain, allow_nan=False).encode())
    except (ValueError, TypeError):
        # NaN, infinity, or keys that are not strings: rebuild it value by value. Anything else fails again.
        count = _Counter()
        clean = _clean(document, count)
        return Answer(json.dumps(clean, allow_nan=False).encode(), count.value)


def _jsonable(data: Any) -> Any:
    if isinstance(data, pd.Series):
        data = pd.DataFrame(data)
    if isinstance(data, pd.DataFrame):
        return data.to_dict(orient="records")
    return data.tolist() if isinstance(data, np.ndarray) else data


def _plain(value: Any) -> Any:
    """The standard JSON form of a value that the encoder does not know."""
    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(np.datetime_as_string(value))
    if isinstance(value, np.generic):
        return value.item()
    for kinds, convert in _FORMS:
        if isinstance(value, kinds):
            return convert(value)
    if hasattr(value, "model_dump"):  # a pydantic model, whichever version the model's environment has
        return value.model_dump(mode="json")
    raise TypeError(f"a result of type {type(value).__name__} has no JSON form")


def _number(value: Decimal) -> Any:
    return float(value)


_FORMS: tuple[tuple[tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((np.ndarray,), lambda value: value.tolist()),
    ((pd.DataFrame, pd.Series), lambda value: _jsonable(value)),
    ((date, time), lambda value: value.isoformat()),  # a Timestamp and a datetime are dates
    ((timedelta,), lambda value: value.total_seconds()),
    ((Decimal,), _number),
    ((bytes, bytearray), lambda value: base64.encodebytes(value).decode("ascii")),
    ((set, frozenset, tuple), list),
)


class _Counter:
    def __init__(self) -> None:
        self.value = 0


def _clean(value: Any, count: _Counter) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        count.value += 1
        return None
    if isinstance(value, dict):
        return {_key(key): _clean(item, count) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item, count) for item in value]
    return _clean(_plain(value), count)


def _key(key: Any) -> Any:
    plain = key.item() if isinstance(key, np.generic) else key
    return plain if isinstance(plain, str | int | float | bool | None) else str(plain)
