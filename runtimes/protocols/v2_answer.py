"""The Open Inference Protocol's inference response.

Owns how a result becomes output tensors, in JSON or behind it; leaves requests to v2. Pure. One idea: what was not
finite is null in JSON and itself in bytes.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from runtimes.interface.engine import Reply
from runtimes.mlflow.answers import Array, Result, count_non_finite
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.layout import Buffer
from runtimes.protocols.v2 import Asked, Wanted
from runtimes.protocols.v2_tensors import DATATYPES, to_bytes

_BINARY = b"application/octet-stream"
_LENGTH = b"inference-header-content-length"
_UNNAMED = "predictions"


@dataclass(slots=True)
class Output:
    """One output tensor: an array of the result, or texts."""

    name: str
    datatype: str
    shape: list[int]
    array: Array | None = None
    texts: list[Any] | None = None

    def values(self) -> Any:
        """Flat values."""
        if self.array is None:
            return self.texts
        return Array(None, self.array.code, (math.prod(self.array.shape),), self.array.buffer).values()

    def buffer(self) -> Buffer:
        """Its bytes in the binary extension."""
        return to_bytes(self.texts or []) if self.array is None else self.array.buffer


def reply(
    asked: Asked, result: Result, name: str, version: str, schema: Sequence[Mapping[str, Any]] | None = None
) -> Reply:
    """The response to a request; ``schema`` names the outputs that the model itself leaves nameless."""
    return written(asked, _outputs(result, schema or ()), name, version, result.non_finite)


def written(asked: Asked, outputs: list[Output], name: str, version: str, non_finite: int = 0) -> Reply:
    """The response with those of the model's outputs that were asked for."""
    described, tail = [], []
    for output, binary in _chosen(outputs, asked.outputs):
        about: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": output.shape}
        if asked.binary if binary is None else binary:
            tail.append(output.buffer())
            about["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            about["data"] = output.values()
            if output.array is not None and output.datatype[:2] == "FP":
                non_finite += count_non_finite([output.array])
        described.append(about)
    document: dict[str, Any] = {"model_name": name, "model_version": version, "outputs": described}
    if asked.id is not None:
        document["id"] = asked.id
    head = orjson.dumps(document)
    if not tail:
        return Reply(head, non_finite=non_finite, client_request_id=asked.id)
    body = b"".join([head, *tail])
    return Reply(body, _BINARY, [(_LENGTH, b"%d" % len(head))], non_finite, asked.id)


def _outputs(result: Result, schema: Sequence[Mapping[str, Any]]) -> list[Output]:
    declared = str(schema[0].get("name") or _UNNAMED) if len(schema) == 1 else _UNNAMED
    if result.arrays is None:
        return _of_values(orjson.loads(result.text), declared)
    return [
        Output(array.name or declared, DATATYPES[array.code], list(array.shape) or [1], array)
        for array in result.arrays
    ]


def _of_values(values: Any, name: str) -> list[Output]:
    """Output tensors of what has no array form: a table of mixed columns, or one tensor of texts."""
    listed = values if isinstance(values, list) else [values]
    if listed and all(isinstance(row, dict) and row.keys() == listed[0].keys() for row in listed):
        return [_of_column(str(key), [row[key] for row in listed]) for key in listed[0]]
    return [_of_column(name, listed)]


def _of_column(name: str, values: list[Any]) -> Output:
    kinds = set(map(type, values))
    if kinds <= {str, type(None)}:
        return Output(name, "BYTES", [len(values)], texts=values)
    if kinds == {bool}:
        return Output(name, "BOOL", [len(values)], Array(name, "b1", (len(values),), bytes(values)))
    if kinds == {int} and all(-(1 << 63) <= value < 1 << 63 for value in values):
        packed = b"".join(value.to_bytes(8, "little", signed=True) for value in values)
        return Output(name, "INT64", [len(values)], Array(name, "i8", (len(values),), packed))
    if kinds <= {int, float, type(None)}:
        return Output(name, "FP64", [len(values)], _floats(name, values))
    return Output(name, "BYTES", [len(values)], texts=[orjson.dumps(value).decode() for value in values])


def _floats(name: str, values: Sequence[Any]) -> Array:
    packed = array("d", [float("nan") if value is None else value for value in values]).tobytes()
    return Array(name, "f8", (len(values),), packed)


def _chosen(outputs: list[Output], wanted: Sequence[Wanted]) -> list[tuple[Output, bool | None]]:
    if not wanted:
        return [(output, None) for output in outputs]
    by_name = {output.name: output for output in outputs}
    for ask in wanted:
        if ask.name not in by_name:
            known = ", ".join(f"`{name}`" for name in by_name)
            raise RefusedError(400, f"the model has no output `{ask.name[:64]}`; it has {known}", "outputs")
    return [(by_name[ask.name], ask.binary) for ask in wanted]
