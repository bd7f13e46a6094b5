"""Parquet files and Arrow streams: columns that arrive typed, and results that leave so.

Owns pyarrow, which is imported when the first such request comes; runs in a thread. Leaves the rules of the values to
the plan. One idea: a column of the signature's own type without a missing value is taken as it lies in memory, any
other goes through the same rules as JSON's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from runtimes.mlflow.answers import Array, Result
from runtimes.mlflow.bodies import MOST_CELLS, Table
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.layout import Block, Buffer
from runtimes.mlflow.plan import Plan
from runtimes.mlflow.plan_table import Blocks, TablePlan
from runtimes.mlflow.values import pack_json

STREAM = b"application/vnd.apache.arrow.stream"
_TYPES = {
    "f8": pa.float64(), "f4": pa.float32(), "i8": pa.int64(), "i4": pa.int32(), "b1": pa.bool_(),
    "M8": pa.timestamp("ns"),
}  # fmt: skip
MOST_UNPACKED_BYTES = 1 << 26
_BATCH_ROWS = 1 << 16
_INDEX = "__index_level_"  # how pandas writes the labels of its rows


def read(body: bytes, media: str, plan: Plan) -> Blocks:
    """The request's columns as the plan's blocks, or a refusal."""
    table = _parsed(body, media)
    names = [name for name in table.column_names if not name.startswith(_INDEX)]
    if len(set(names)) != len(names):
        raise RefusedError(400, "two columns have the same name")
    if plan.tables and table.num_rows and (blocks := _as_they_lie(table, plan.tables)) is not None:
        return blocks
    return plan.of_table(Table(list(names), [_plain(table.column(name)) for name in names], table.num_rows))


def as_parquet(body: bytes, media: str) -> bytes:
    """The columns as the Parquet file that a model without a signature can read itself, once they are known to fit."""
    table = _parsed(body, media)
    if media == "parquet":
        return body
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue())


def write(result: Result) -> bytes:
    """A result as an Arrow stream of one batch: its columns, or one called ``predictions``."""
    if result.arrays is None:
        values = orjson.loads(result.text)
        table = pa.table({"predictions": values if isinstance(values, list) else [values]})
    else:
        table = pa.table({array.name or "predictions": _column(array) for array in result.arrays})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _parsed(body: bytes, media: str) -> Any:
    try:
        if media == "parquet":
            file = pq.ParquetFile(pa.BufferReader(body))
            return _bounded(file.iter_batches(_BATCH_ROWS), file.schema_arrow, len(body))
        with pa.ipc.open_stream(body) as reader:
            return _bounded(reader, reader.schema, len(body))
    except RefusedError:
        raise
    except Exception:
        what = "Parquet file" if media == "parquet" else "Arrow stream"
        raise RefusedError(400, f"the body is not a valid {what}") from None


def _bounded(batches: Iterable[Any], schema: Any, sent: int) -> Any:
    """Read batch after batch: 224 bytes may stand for a thousand million rows, and 90 KB for 160 MB."""
    found: list[Any] = []
    unpacked, values, most = 0, 0, max(MOST_UNPACKED_BYTES, sent)
    for batch in batches:
        unpacked, values = unpacked + batch.nbytes, values + sum(map(_values, batch.columns))
        if unpacked > most or values > MOST_CELLS:
            raise RefusedError(413, f"the columns have more than {most} bytes or {MOST_CELLS} values once unpacked")
        found.append(batch)
    return pa.Table.from_batches(found, found[0].schema if found else schema)


def _values(array: Any) -> int:
    """How many values there are in a column, and in its lists and objects; those that are null take no memory."""
    inner: Sequence[Any] = ()
    if pa.types.is_struct(array.type):
        inner = [array.field(position) for position in range(array.type.num_fields)]
    elif pa.types.is_nested(array.type) and hasattr(array, "values"):
        inner = [array.values]
    return len(array) + sum(map(_values, inner))


def _as_they_lie(table: Any, plan: TablePlan) -> Blocks | None:
    buffers: list[Buffer] = []
    for block in plan.layout.blocks:
        if not all(name in table.column_names for name in block.names):
            return None
        columns = [table.column(name) for name in block.names]
        if any(column.null_count for column in columns):
            return None
        buffer = _texts(columns) if block.code == "js" else _numbers(block, columns)
        if buffer is None:
            return None
        buffers.append(buffer)
    return Blocks(plan.layout, buffers, table.num_rows)


def _numbers(block: Block, columns: Sequence[Any]) -> Buffer | None:
    wanted = _TYPES.get(block.code)
    if wanted is None or any(column.type != wanted for column in columns):
        return None
    rows = np.stack([column.to_numpy() for column in columns], axis=1)
    if block.code[0] == "f" and np.isinf(rows).any():
        return None
    return np.ascontiguousarray(rows).tobytes()


def _texts(columns: Sequence[Any]) -> Buffer | None:
    if any(column.type not in (pa.string(), pa.large_string()) for column in columns):
        return None
    lists = [column.to_pylist() for column in columns]
    return pack_json([value for row in zip(*lists, strict=True) for value in row])


def _plain(column: Any) -> list[Any]:
    """A column as plain values, None where one is missing."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"), safe=False)
    values = column.to_pylist()
    if pa.types.is_floating(kind):
        return [None if value is None or value != value else value for value in values]
    return [str(value) if isinstance(value, Decimal) else value for value in values]


def _column(array: Array) -> Any:
    flat = np.frombuffer(array.buffer, dtype="bool" if array.code == "b1" else "<" + array.code)
    values = pa.array(flat)
    for length in reversed(array.shape[1:]):
        values = pa.FixedSizeListArray.from_arrays(values, length)
    return values
