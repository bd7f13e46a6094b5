"""What a network is asked before it is ready.

Owns making v2 requests from its example or from its tensors, and judging whether it answers row by row. Pure. One
idea: requests are merged only where a question of two rows has the answers of two questions of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from runtimes.triton.tensors import UNKNOWN, Tensor, Tensors

_CLOSE = 1e-3  # two rows at once may be added up in another order
_FREE_LENGTH = 1

Rows = dict[str, list[Any]]


def from_example(text: bytes, tensors: Tensors) -> Rows | None:
    """The rows of a model's serving example, by tensor; None where it does not fit."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    given = document.get("inputs", document.get("instances")) if isinstance(document, dict) else None
    if isinstance(given, list) and len(tensors.inputs) == 1:
        given = {tensors.inputs[0].name: given}
    if not isinstance(given, dict) or set(given) != {tensor.name for tensor in tensors.inputs}:
        return None
    return {name: values if isinstance(values, list) else [values] for name, values in given.items()}


def made_up(tensors: Tensors) -> Rows:
    """Two different rows: zeros and ones, of length one where a length is free."""
    return {tensor.name: _two(tensor) for tensor in tensors.inputs}


def two_rows(rows: Rows) -> Rows:
    """Two different rows that a network takes which takes these: the first, and the same values the other way round."""
    return {name: [values[0], _other(values[0])] for name, values in rows.items()}


def _two(tensor: Tensor) -> list[Any]:
    lengths = [_FREE_LENGTH if length == UNKNOWN else length for length in tensor.shape]
    if tensor.has_rows:
        return [_filled(tensor.datatype, number, lengths[1:]) for number in (0, 1)]
    filled = _filled(tensor.datatype, 1, lengths)
    return filled if isinstance(filled, list) else [filled]


def _filled(datatype: str, number: int, lengths: Sequence[int]) -> Any:
    if not lengths:
        return str(number) if datatype == "BYTES" else bool(number) if datatype == "BOOL" else number
    return [_filled(datatype, number, lengths[1:]) for _ in range(lengths[0])]


def _other(row: Any) -> Any:
    values = _flat(row) if isinstance(row, list) else [row]
    turned = values[::-1] if values[::-1] != values else [_nothing(value) for value in values]
    return _shaped(row, iter(turned))


def _nothing(value: Any) -> Any:
    return type(value)()


def _shaped(like: Any, values: Iterator[Any]) -> Any:
    return [_shaped(inner, values) for inner in like] if isinstance(like, list) else next(values)


def question(tensors: Tensors, rows: Rows, which: slice = slice(None)) -> bytes:
    """A v2 request with these rows."""
    return orjson.dumps({"inputs": [_input(tensor, rows[tensor.name][which]) for tensor in tensors.inputs]})


def _input(tensor: Tensor, rows: list[Any]) -> dict[str, Any]:
    lengths: list[int] = []
    inner: Any = rows
    while isinstance(inner, list):
        lengths.append(len(inner))
        inner = inner[0] if inner else None
    if tensor.has_rows and len(tensor.shape) == 1:
        lengths.append(1)  # a single value a row is a row of one for Triton
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": lengths, "data": _flat(rows)}


def _flat(value: Any) -> list[Any]:
    return [one for inner in value for one in _flat(inner)] if isinstance(value, list) else [value]


def row_by_row(together: bytes, apart: Sequence[bytes]) -> bool:
    """Whether the answer to all rows is the answers to each of them."""
    whole, parts = _outputs(together), [_outputs(answer) for answer in apart]
    return all(_same(values, [one for part in parts for one in part.get(name, [])]) for name, values in whole.items())


def _outputs(answer: bytes) -> Mapping[str, list[Any]]:
    return {output["name"]: output["data"] for output in orjson.loads(answer)["outputs"]}


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(_close(one, other) for one, other in zip(left, right, strict=True))


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return bool(one == other)
