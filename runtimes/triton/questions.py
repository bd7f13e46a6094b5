"""What a network is asked before it is ready.

Owns making requests from its example or from its tensors, and judging whether it answers row by row. Pure. One idea:
requests are merged only where a question of two rows has the answers of two questions of one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from runtimes.protocols.v2_answer import Output
from runtimes.triton.tensors import UNKNOWN, Tensor, Tensors

_CLOSE = 1e-3  # two rows at once may be added up in another order
_FREE_LENGTH = 1

Rows = dict[str, list[Any]]


def rows(example: bytes | None, tensors: Tensors) -> Rows:
    """The rows of a model's serving example, by tensor; zeros and ones where there is none that fits."""
    return (None if example is None else _of_example(example, tensors)) or {t.name: _two(t) for t in tensors.inputs}


def two_rows(given: Rows) -> Rows:
    """Two different rows that a network takes which takes these: the first, and the same values the other way round."""
    return {name: [values[0], _other(values[0])] for name, values in given.items()}


def question(given: Rows, which: slice = slice(None)) -> bytes:
    """The body of a request with these rows."""
    return orjson.dumps({"inputs": {name: values[which] for name, values in given.items()}})


def row_by_row(together: Sequence[Output], apart: Sequence[Sequence[Output]]) -> bool:
    """Whether the answer to all rows is the answers to each of them."""
    parts = [{output.name: list(output.values()) for output in answer} for answer in apart]
    return all(
        _same(list(output.values()), [one for part in parts for one in part.get(output.name, [])])
        for output in together
    )


def _of_example(text: bytes, tensors: Tensors) -> Rows | None:
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


def _two(tensor: Tensor) -> list[Any]:
    lengths = [_FREE_LENGTH if length == UNKNOWN else length for length in tensor.shape]
    if tensor.has_rows:
        return [_filled(tensor.datatype, number, lengths[1:]) for number in (0, 1)]
    return list(_filled(tensor.datatype, 1, lengths))


def _filled(datatype: str, number: int, lengths: Sequence[int]) -> Any:
    if not lengths:
        return str(number) if datatype == "BYTES" else bool(number) if datatype == "BOOL" else number
    return [_filled(datatype, number, lengths[1:]) for _ in range(lengths[0])]


def _other(row: Any) -> Any:
    values = list(_flat(row))
    turned = values[::-1] if values[::-1] != values else [type(value)() for value in values]
    return _shaped(row, iter(turned))


def _shaped(like: Any, values: Iterator[Any]) -> Any:
    return [_shaped(inner, values) for inner in like] if isinstance(like, list) else next(values)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for inner in value:
            yield from _flat(inner)
    else:
        yield value


def _same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return len(left) == len(right) and all(_close(one, other) for one, other in zip(left, right, strict=True))


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        both_not = math.isnan(one) and math.isnan(other)
        return both_not or math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return bool(one == other)
