"""What a model returned, as buffers that the front can split by requests, or as JSON.

Owns the shapes that MLflow's server gives (records for a DataFrame, lists for an array); runs in the model's
environment. One idea: numbers leave as they lie in memory; only what has no array form is written out here, a text for
each request of the call, so that the front never looks inside it.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from runtimes.mlflow.calls import UnsplittableError
from runtimes.mlflow.layout import ITEM_BYTES, Buffer

LARGEST_ENCODED_IN_FRONT = 256 * 1024  # a longer result would hold up every other request while it is written out


_CODES = {np.dtype(code): code for code in ITEM_BYTES if code not in ("M8", "f2")}


@dataclass(slots=True)
class Outcome:
    """A result's description and its bytes.

    Arrays: ``arrays`` of [name, code, shape] and one buffer each; ``records`` where they are a DataFrame's columns.
    JSON: ``texts`` of lengths, one a request, and as many counts of what left as null.
    """

    head: dict[str, Any]
    buffers: list[Buffer] = field(default_factory=list)


def outcome(result: Any, rows: Sequence[int | None], *, as_text: bool) -> Outcome:
    """The result of one call for requests of so many rows each; ``as_text`` where only JSON is of use to the client."""
    arrays = _arrays(result)
    if arrays is not None:
        named, records = arrays
        if len(rows) > 1:
            total = sum(count or 0 for count in rows)
            if any(not array.ndim or len(array) != total for _, array in named):
                raise UnsplittableError
        size = sum(array.nbytes for _, array in named)
        if not (as_text and size > LARGEST_ENCODED_IN_FRONT):
            described = [[name, _code(array), list(array.shape)] for name, array in named]
            return Outcome({"arrays": described, "records": records}, [_bytes(array) for _, array in named])
    return _texts(_parts(_jsonable(result), rows))


def encode(value: Any) -> tuple[bytes, int]:
    """A value as JSON that a strict parser reads, and how many of its numbers were not finite and became null."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False, separators=(",", ":")).encode(), 0
    except (ValueError, TypeError):
        # NaN, infinity, or keys that are not strings: rebuild it value by value. Anything else fails again.
        count = _Counter()
        clean = _clean(value, count)
        return json.dumps(clean, allow_nan=False, separators=(",", ":")).encode(), count.value


def _arrays(result: Any) -> tuple[list[tuple[str | None, Any]], bool] | None:
    """The arrays of a result that is nothing else, and whether they are columns."""
    if isinstance(result, np.ndarray):
        array = _numeric(result)
        return None if array is None else ([(None, array)], False)
    if type(result).__module__.split(".")[0] == "pandas" and hasattr(result, "columns"):
        return _columns(result)
    if isinstance(result, dict) and result and all(isinstance(value, np.ndarray) for value in result.values()):
        named = [(name, _numeric(value)) for name, value in result.items()]
        usable = all(isinstance(name, str) and array is not None for name, array in named)
        return (named, False) if usable else None
    return None


def _columns(frame: Any) -> tuple[list[tuple[str | None, Any]], bool] | None:
    if (
        not all(isinstance(name, str) for name in frame.columns)
        or not frame.columns.is_unique
        or not len(frame.columns)
    ):
        return None
    named: list[tuple[str | None, Any]] = []
    for name in frame.columns:
        column = frame[name]
        if not isinstance(column.dtype, np.dtype) or (array := _numeric(column.to_numpy())) is None:
            return None
        named.append((name, array))
    return named, True


def _numeric(array: Any) -> Any:
    if type(array) is np.ndarray and array.dtype in _CODES:
        return array
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        return None
    if array.dtype == np.float16:
        array = array.astype(np.float32)  # exact, and everybody can read it
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        return None
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _bytes(array: Any) -> Buffer:
    if not array.size:
        return b""
    contiguous: Any = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    return memoryview(contiguous).cast("B")


def _code(array: Any) -> str:
    code = _CODES.get(array.dtype)
    if code is None:
        raise TypeError(f"a result of type {array.dtype} has no form here")
    return code


def _parts(value: Any, rows: Sequence[int | None]) -> list[Any]:
    if len(rows) == 1:
        return [value]
    if not isinstance(value, list) or len(value) != sum(count or 0 for count in rows):
        raise UnsplittableError
    parts, at = [], 0
    for count in rows:
        parts.append(value[at : at + (count or 0)])
        at += count or 0
    return parts


def _texts(parts: Sequence[Any]) -> Outcome:
    encoded = [encode(part) for part in parts]
    head = {"texts": [len(text) for text, _ in encoded], "non_finite": [count for _, count in encoded]}
    return Outcome(head, [text for text, _ in encoded])


def _jsonable(data: Any) -> Any:
    import pandas as pd

    if isinstance(data, pd.Series):
        data = pd.DataFrame(data)
    if isinstance(data, pd.DataFrame):
        return data.to_dict(orient="records")
    return data.tolist() if isinstance(data, np.ndarray) else data


def _plain(value: Any) -> Any:
    """The standard JSON form of a value that the encoder does not know."""
    import pandas as pd

    if value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(np.datetime_as_string(value))
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, pd.DataFrame | pd.Series):
        return _jsonable(value)
    for kinds, convert in _FORMS:
        if isinstance(value, kinds):
            return convert(value)
    if hasattr(value, "model_dump"):  # a pydantic model, whichever version the model's environment has
        return value.model_dump(mode="json")
    if hasattr(value, "to_dict"):  # MLflow's own chat types
        return value.to_dict()
    raise TypeError(f"a result of type {type(value).__name__} has no JSON form")


def _number(value: Decimal) -> Any:
    return float(value)


_FORMS: tuple[tuple[tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((np.ndarray,), lambda value: value.tolist()),
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
