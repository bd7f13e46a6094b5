"""The blocks of a call as what a model takes: an array, a DataFrame, or a dictionary of arrays.

Owns the step from buffers to numpy and pandas of the model's environment; runs there. Leaves every check to the plan,
which has made the buffers. One idea: an array is a view of the message that brought it, and a DataFrame is only made
where the model needs one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtimes.mlflow.layout import Block, Buffer, Form, Layout
from runtimes.mlflow.signature import Signature

_DTYPES = {"M8": "datetime64[ns]", "b1": "bool"}


class Given:
    """One call's values; each form of them is made when it is asked for."""

    def __init__(
        self,
        signature: Signature,
        layout: Layout,
        buffers: Sequence[Buffer],
        rows: int,
        index: list[Any] | None = None,
    ) -> None:
        self._signature = signature
        self.layout = layout
        self._blocks = list(zip(layout.blocks, buffers, strict=True))
        self._index = index
        self.rows = rows

    @property
    def form(self) -> Form:
        return self.layout.form

    @property
    def beyond_mlflow(self) -> bool:
        """Whether MLflow's own check has no form for a value in it: an integer that is missing."""
        return any(block.code in ("Int32", "Int64") for block in self.layout.blocks)

    @property
    def plain(self) -> bool:
        """Whether its rows have no labels of their own."""
        return self._index is None

    def data(self) -> Any:
        """What ``PyFuncModel.predict`` takes."""
        return self.tensors() if self.layout.form is Form.TENSORS else self.frame()

    def matrix(self) -> Any:
        """The columns as one array in their common type, laid out as pandas does; TypeError where there is none.

        Column after column in memory, since the order of the values decides how a sum is rounded.
        """
        if any(block.item_bytes is None or block.code == "M8" for block, _ in self._blocks):
            raise TypeError("the columns have no common numeric type")
        arrays = [self._rows(block, buffer) for block, buffer in self._blocks]
        if len(arrays) == 1:
            return np.asfortranarray(arrays[0])
        names = [column.name for column in self._signature.columns]
        own = [name for block, _ in self._blocks for name in block.names]
        order = [own.index(name) for name in names if name in own]
        return np.asfortranarray(np.concatenate(arrays, axis=1)[:, order])

    def frame(self) -> Any:
        """The columns as a DataFrame in the signature's order."""
        import pandas as pd

        index: Any = pd.RangeIndex(self.rows) if self._index is None else pd.Index(self._index)
        if len(self._blocks) == 1 and self._blocks[0][0].item_bytes is not None:
            block, buffer = self._blocks[0]
            return pd.DataFrame(np.asfortranarray(self._rows(block, buffer)), columns=list(block.names), index=index)
        columns = {
            name: values for block, buffer in self._blocks for name, values in self._columns(block, buffer, index)
        }
        ordered = {column.name: columns[column.name] for column in self._signature.columns if column.name in columns}
        return pd.DataFrame(ordered, index=index)

    def tensors(self) -> Any:
        """One array, or a dictionary where the signature has names."""
        arrays = {block.names[0]: self._tensor(block, buffer) for block, buffer in self._blocks}
        if None in arrays:
            return arrays[None]
        return {tensor.name: arrays[tensor.name] for tensor in self._signature.tensors}

    def _rows(self, block: Block, buffer: Buffer) -> Any:
        return _array(block.code, buffer).reshape(self.rows, len(block.names))

    def _columns(self, block: Block, buffer: Buffer, index: Any) -> list[tuple[Any, Any]]:
        if block.item_bytes is not None:
            rows = self._rows(block, buffer)
            return [(name, rows[:, position]) for position, name in enumerate(block.names)]
        values, step = json.loads(bytes(buffer)), len(block.names)
        return [(name, _objects(block.code, values[at::step], index)) for at, name in enumerate(block.names)]

    def _tensor(self, block: Block, buffer: Buffer) -> Any:
        shape = (self.rows, *block.shape)
        if block.item_bytes is not None:
            return _array(block.code, buffer).reshape(shape)
        spec = next(tensor for tensor in self._signature.tensors if tensor.name == block.names[0])
        values = json.loads(bytes(buffer))
        if spec.dtype == "bytes":
            values = [value.encode() for value in values]
        if spec.dtype != "object":
            return np.array(values, dtype=spec.dtype).reshape(shape)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array.reshape(shape)


def _array(code: str, buffer: Buffer) -> Any:
    return np.frombuffer(buffer, dtype=_DTYPES.get(code, "<" + code))


def _objects(code: str, values: list[Any], index: Any) -> Any:
    import pandas as pd

    if code in ("Int32", "Int64"):
        return pd.array(values, dtype=code)
    if code == "b64":
        values = [None if value is None else base64.b64decode(value) for value in values]
    array = np.empty(len(values), dtype=object)  # never np.array: it would look inside lists and dictionaries
    array[:] = values
    # pandas makes its own strings of texts, as MLflow's server has it; but a missing one it would make a float.
    return pd.Series(array, dtype=object, index=index) if None in values else array
