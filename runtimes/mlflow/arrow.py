"""Parquet files and Arrow streams: columns that arrive typed, and results that leave so.

Owns pyarrow, which is imported when the first such request comes; runs in a thread. Leaves the rules of the values to
the plan and the headers of pages and buffers to unpacked. One idea: a column of the signature's own type without a
missing value is taken as it lies in memory, any other goes through the same rules as JSON's values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runtimes.mlflow import unpacked
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
_OLD_WRITER = re.compile(r"\s*parquet-mr(?! version 1\.(?:2\.9|2\.\d\d|[3-9]|\d\d)| version [2-9])", re.IGNORECASE)
_INDEX = "__index_level_"  # how pandas writes the labels of its rows


def read(body: bytes, media: str, plan: Plan) -> Blocks:
    """The request's columns as the plan's blocks, or a refusal."""
    table = _written_out(_parsed(body, media))
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
    most = max(MOST_UNPACKED_BYTES, len(body))
    try:
        return _file(body, most) if media == "parquet" else _stream(body, most)
    except RefusedError:
        raise
    except Exception:
        what = "Parquet file" if media == "parquet" else "Arrow stream"
        raise RefusedError(400, f"the body is not a valid {what}") from None


def _stream(body: bytes, most: int) -> Any:
    packed = 0
    for message in pa.ipc.MessageReader.open_stream(body):
        packed += unpacked.message(message.metadata.to_pybytes(), memoryview(message.body or b""), most)
        _bound(packed, 0, most)
    with pa.ipc.open_stream(body) as reader:
        return _bounded(reader, reader.schema, most)


def _file(body: bytes, most: int) -> Any:
    chunks = list(unpacked.chunks(body))
    file = pq.ParquetFile(pa.BufferReader(body))
    if _OLD_WRITER.match(file.metadata.created_by or ""):
        raise RefusedError(400, "the Parquet file was written by parquet-mr before 1.2.9, which told no exact lengths")
    rows, texts = _BATCH_ROWS, set[str]()
    pages, values = 0, 0
    for found in chunks:
        column = file.schema.column(found.column)
        values += found.values
        fixed = column.length if column.physical_type == "FIXED_LEN_BYTE_ARRAY" else 0  # takes that even where null
        pages += max(found.unpacked_bytes, fixed * found.values)
        if found.longest_prefixed and column.max_repetition_level:
            pages += found.longest_prefixed * found.values
        elif found.longest_prefixed:
            rows = min(rows, max(most // found.longest_prefixed, 1))
        if found.dictionary and column.physical_type == "BYTE_ARRAY":
            texts.add(column.path)  # stays one: a page may be one long text, and a million times its number
        _bound(pages, values, most)
    schema, footer = file.schema_arrow, file.metadata
    file = pq.ParquetFile(pa.BufferReader(body), metadata=footer, read_dictionary=sorted(texts))
    return _bounded(file.iter_batches(rows), schema, most)


def _bounded(batches: Iterable[Any], schema: Any, most: int) -> Any:
    """Read batch after batch: 224 bytes may stand for a thousand million rows, and 90 KB for 160 MB."""
    for field in schema:
        _check(field.type, field.name)
    found: list[Any] = []
    taken, values = 0, 0
    for batch in batches:
        batch.validate(full=True)  # what lies in an Arrow stream is used as it is, places in memory too
        taken += batch.nbytes + sum(map(_referred, batch.columns))
        values += sum(map(_values, batch.columns))
        _bound(taken, values, most)
        found.append(batch)
    return pa.Table.from_batches(found, found[0].schema if found else schema)


def _bound(size: int, values: int, most: int) -> None:
    if size > most or values > MOST_CELLS:
        raise RefusedError(413, f"the columns have more than {most} bytes or {MOST_CELLS} values once unpacked")


def _check(kind: Any, name: str) -> None:
    """Refuse types in which a few bytes may be any number of values; in a dictionary are texts and numbers."""
    if isinstance(kind, pa.BaseExtensionType):
        _check(kind.storage_type, name)
        return
    types = pa.types
    many = (types.is_list_view, types.is_large_list_view, types.is_run_end_encoded, types.is_union)
    if any(is_of(kind) for is_of in many) or (types.is_dictionary(kind) and not _is_plain(kind.value_type)):
        raise RefusedError(400, f"column `{name}`: values of this Arrow type are not read here", name)
    for number in range(kind.num_fields):
        _check(kind.field(number).type, name)


def _is_plain(kind: Any) -> bool:
    return _is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind)


def _is_text(kind: Any) -> bool:
    types = pa.types
    kinds = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(is_of(kind) for is_of in kinds)


def _inner(array: Any) -> Sequence[Any]:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return [array.storage]
    if pa.types.is_struct(kind):
        return [array.field(position) for position in range(kind.num_fields)]
    return [array.values] if pa.types.is_nested(kind) and hasattr(array, "values") else []


def _referred(array: Any) -> int:
    """Bytes of the values that are not there but referred to, as often as they are."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        if not _is_text(kind.value_type):
            return len(array) * 32  # the widest, a decimal
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return pc.sum(lengths).as_py() or 0
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        views = np.frombuffer(array.buffers()[1], dtype="<i4")[4 * array.offset :: 4]
        return int(views[: len(array)].sum(dtype="i8"))
    return sum(map(_referred, _inner(array)))


def _values(array: Any) -> int:
    """How many values there are in a column, and in its lists and objects; those that are null take no memory."""
    return len(array) + sum(map(_values, _inner(array)))


def _written_out(table: Any) -> Any:
    """The table without dictionaries, whose values were counted as often as they are referred to."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table.column(number).cast(field.type.value_type))
    return table


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
