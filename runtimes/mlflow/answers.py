"""A predictor's result as the answer that a client asked for.

Owns cutting a shared result by requests and MLflow's JSON form of it; leaves the other protocols to theirs. One idea:
what was not finite leaves as null and is counted, whichever side wrote it out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from runtimes.mlflow.frames import Head
from runtimes.mlflow.layout import ITEM_BYTES, Buffer
from runtimes.mlflow.values import unpack


@dataclass(slots=True)
class Array:
    """One array of a result."""

    name: str | None
    code: str
    shape: tuple[int, ...]
    buffer: Buffer

    def values(self) -> Any:
        """Nested lists; NaN and infinite values are still in them."""
        flat = unpack(self.code, self.buffer)
        if len(self.shape) == 1:
            return flat
        return _nested(flat, self.shape) if self.shape else flat[0]


@dataclass(slots=True)
class Result:
    """What the model returned for one request: arrays (columns where ``records``), or JSON that is written already."""

    arrays: list[Array] | None = None
    records: bool = False
    text: bytes = b""
    non_finite: int = 0
    bare: bool = False  # the text is the whole answer, not what `predictions` holds
    client_request_id: str | None = None


def split(head: Head, body: Buffer, rows: Sequence[int | None]) -> list[Result]:
    """The results of the requests that shared a call."""
    view = memoryview(body)
    if "arrays" in head:
        return _split_arrays(head, view, rows)
    results, at = [], 0
    for length, non_finite in zip(head["texts"], head["non_finite"], strict=True):
        text = bytes(view[at : at + length])
        at += length
        results.append(
            Result(
                text=text,
                non_finite=non_finite,
                bare=bool(head.get("bare")),
                client_request_id=head.get("client_request_id"),
            )
        )
    return results


def encode_mlflow(result: Result) -> tuple[bytes, int]:
    """``{"predictions": ...}``, and how many values in it were not finite and became null."""
    arrays = result.arrays
    if arrays is None:
        return (result.text if result.bare else b'{"predictions":' + result.text + b"}"), result.non_finite
    document: Any
    if len(arrays) == 1 and arrays[0].name is None:
        document = arrays[0].values()
    elif result.records:
        names = [array.name for array in arrays]
        document = [
            dict(zip(names, row, strict=True)) for row in zip(*(array.values() for array in arrays), strict=True)
        ]
    else:
        document = {array.name: array.values() for array in arrays}
    body = orjson.dumps({"predictions": document})
    floats = any(array.code[0] == "f" for array in arrays)
    return body, count_non_finite(arrays) if floats and b"null" in body else 0


def count_non_finite(arrays: Sequence[Array]) -> int:
    """How many values of the arrays are NaN or infinite."""
    return sum(
        sum(not math.isfinite(value) for value in unpack(array.code, array.buffer))
        for array in arrays
        if array.code[0] == "f"
    )


def _split_arrays(head: Head, view: memoryview, rows: Sequence[int | None]) -> list[Result]:
    described = head["arrays"]
    if len(rows) == len(described) == 1:
        ((name, code, shape),) = described
        return [_result(head, [Array(name, code, tuple(shape), view)])]
    results = [_result(head, []) for _ in rows]
    at = 0
    for name, code, shape in described:
        inner = tuple(shape[1:])
        row_bytes = ITEM_BYTES[code] * math.prod(inner)
        if len(rows) == 1:
            end = at + (row_bytes * shape[0] if shape else ITEM_BYTES[code])
            results[0].arrays.append(Array(name, code, tuple(shape), view[at:end]))  # type: ignore[union-attr]
            at = end
            continue
        for result, count in zip(results, rows, strict=True):
            end = at + row_bytes * (count or 0)
            result.arrays.append(Array(name, code, (count or 0, *inner), view[at:end]))  # type: ignore[union-attr]
            at = end
    return results


def _result(head: Head, arrays: list[Array]) -> Result:
    return Result(arrays, bool(head.get("records")), client_request_id=head.get("client_request_id"))


def _nested(flat: list[Any], shape: Sequence[int]) -> list[Any]:
    if len(shape) == 1:
        return flat
    step = math.prod(shape[1:])
    return [_nested(flat[row * step : (row + 1) * step], shape[1:]) for row in range(shape[0])]
