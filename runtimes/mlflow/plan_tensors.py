"""A tensor signature, compiled: arrays in any JSON form, or a table, as one block a tensor.

Owns names and forms; leaves values and shapes to tensors. Pure and of the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from runtimes.mlflow.bodies import Table, records_table
from runtimes.mlflow.errors import Problem, RefusedError, refused
from runtimes.mlflow.layout import Block, Buffer, Form, Layout
from runtimes.mlflow.plan_table import Blocks
from runtimes.mlflow.signature import Signature, Tensor
from runtimes.mlflow.tensors import Packed, code_of, pack_plain, pack_tensor, tensor_refusal


class TensorPlan:
    """What can be known about a model's tensors before the first one arrives."""

    def __init__(self, signature: Signature) -> None:
        self._tensors = signature.tensors
        self._named = signature.named
        known = [(spec, spec.shape[1:]) for spec in signature.tensors if -1 not in spec.shape[1:]]
        # Its inner lengths may differ from request to request; then a layout is made for each.
        fixed = len(known) == len(signature.tensors)
        self._inner = [shape for _, shape in known]
        self.layout = _layout(known) if fixed else None

    def plain(self, data: Any) -> Blocks | None:
        """Lists in which every value is of its tensor's own kind; None where the request needs a closer look."""
        try:
            values = [data[spec.name] for spec in self._tensors] if type(data) is dict else [data]
            packed = [pack_plain(spec, value) for spec, value in zip(self._tensors, values, strict=True)]
            return None if None in packed else self.pack(packed)  # type: ignore[arg-type]
        except (KeyError, ValueError, RefusedError):
            return None

    def arrays(self, data: Any, form: str) -> Blocks:
        """``inputs`` or ``instances``: one array, an object of arrays, or a list of objects (one a row)."""
        if form == "instances" and isinstance(data, list) and data and isinstance(data[0], dict):
            table = records_table(data, [spec.name for spec in self._tensors], form)
            data = dict(zip(table.names, table.columns, strict=True))
        if len(self._tensors) == 1 and not isinstance(data, dict):
            return self.pack([pack_tensor(self._tensors[0], data)])
        if not isinstance(data, dict):
            names = ", ".join(f"`{spec.name}`" for spec in self._tensors)
            raise RefusedError(400, f"`{form}` must be an object with the tensors {names}", form)
        return self._by_name(data)

    def table(self, table: Table) -> Blocks:
        """A table: its columns are the tensors, or its rows are those of the one tensor."""
        columns = [_numerals(column) if table.text else column for column in table.columns]
        if self._named:
            given = dict(zip(map(str, table.names), columns, strict=True))
            return self._by_name({spec.name: _reshaped(spec, given) for spec in self._tensors if spec.name in given})
        nested = len(columns) == 1 and any(isinstance(value, list) for value in columns[0])
        rows = columns[0] if nested else [list(row) for row in zip(*columns, strict=True)]
        return self.pack([pack_tensor(self._tensors[0], rows)])

    def pack(self, packed: Sequence[Packed]) -> Blocks:
        """Checked tensors, in the signature's order."""
        given = list(zip(self._tensors, packed, strict=True))
        if any(not tensor.shape for tensor in packed):
            raise tensor_refusal(given[0][0], "a tensor without rows can't be served")
        rows = {tensor.shape[0] for tensor in packed}
        if len(rows) > 1:
            raise RefusedError(400, f"the tensors have different numbers of rows: {sorted(rows)}", "inputs")
        layout = self.layout
        if layout is None or [tensor.shape[1:] for tensor in packed] != self._inner:
            layout = _layout([(spec, tensor.shape[1:]) for spec, tensor in given])
        by_name: dict[str | None, Buffer] = {spec.name: tensor.buffer for spec, tensor in given}
        buffers = [by_name[block.names[0]] for block in layout.blocks]  # type: ignore[index]
        return Blocks(layout, buffers, rows.pop())

    def _by_name(self, data: Mapping[Any, Any]) -> Blocks:
        if not self._named:
            raise RefusedError(400, "the model takes one tensor without a name: send the array itself", "inputs")
        missing = [spec for spec in self._tensors if spec.name not in data]
        if missing:
            raise refused([Problem(f"tensor `{spec.name}` is missing", spec.name) for spec in missing])
        return self.pack([pack_tensor(spec, data[spec.name]) for spec in self._tensors])


def _layout(tensors: Sequence[tuple[Tensor, tuple[int, ...]]]) -> Layout:
    return Layout.of(Form.TENSORS, [Block(code_of(spec), (spec.name,), shape) for spec, shape in tensors])


def _reshaped(spec: Tensor, given: Mapping[str, list[Any]]) -> Any:
    """A column whose cells hold a tensor's rows as flat lists."""
    values = given[str(spec.name)]
    inner = list(spec.shape[1:])
    if len(inner) < 2 or not values or not all(isinstance(value, list) for value in values):
        return values
    if any(isinstance(item, list) for value in values for item in value):
        return values
    return [_nested(value, inner) for value in values]


def _nested(flat: list[Any], inner: Sequence[int]) -> list[Any]:
    if len(inner) < 2:
        return flat
    size = math.prod(inner[1:])
    return [_nested(flat[at : at + size], inner[1:]) for at in range(0, len(flat), size)] if size > 0 else flat


def _numerals(column: list[Any]) -> list[Any]:
    try:
        return [float(value) for value in column]
    except (TypeError, ValueError):
        return column
