"""What a few bytes of columns may become: a bound on what is unpacked, before it is looked at."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtimes.mlflow import arrow
from runtimes.mlflow.bodies import MOST_CELLS
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.plan import Plan
from runtimes.mlflow.signature import parse_signature

PLAN = Plan(parse_signature([{"type": "double", "name": "x"}], None))


def written(table: pa.Table, media: str) -> bytes:
    sink = pa.BufferOutputStream()
    if media == "parquet":
        pq.write_table(table, sink, compression="zstd")
    else:
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
            writer.write_table(table)
    return bytes(sink.getvalue())


MANY = MOST_CELLS + 1
NULLS = pa.nulls(MANY)
LARGE = {
    "nulls": NULLS,
    "a list of nulls": pa.ListArray.from_arrays(pa.array([0, MANY]), NULLS),
    "objects of nulls": pa.StructArray.from_arrays([NULLS], ["deep"]),
    "zeros": pa.array(np.zeros(arrow.MOST_UNPACKED_BYTES // 8 + 1)),
    "one text": pa.array(["x" * 4096] * (arrow.MOST_UNPACKED_BYTES // 4096 + 1)),
}


@pytest.mark.case("runtimes-D10")
@pytest.mark.parametrize("name", LARGE)
def test_a_small_stream_that_is_large_once_it_is_unpacked_is_413(name: str) -> None:
    body = written(pa.table({"x": LARGE[name]}), "arrow")
    assert len(body) < 1 << 20
    with pytest.raises(RefusedError, match="once unpacked") as caught:
        arrow.read(body, "arrow", PLAN)
    assert caught.value.status == 413


@pytest.mark.case("runtimes-D10")
@pytest.mark.parametrize("name", ["zeros", "one text"])
def test_a_small_file_that_is_large_once_it_is_unpacked_is_413(name: str) -> None:
    body = written(pa.table({"x": LARGE[name]}), "parquet")
    assert len(body) < 1 << 20
    with pytest.raises(RefusedError, match="once unpacked"):
        arrow.read(body, "parquet", PLAN)
    with pytest.raises(RefusedError, match="once unpacked"):
        arrow.as_parquet(body, "parquet")  # for a model that reads it itself


@pytest.mark.parametrize("media", ["arrow", "parquet"])
@pytest.mark.parametrize("rows", [0, 1, 200_000])
def test_what_fits_is_read_whole_in_however_many_parts_it_came(media: str, rows: int) -> None:
    values = np.arange(rows, dtype="f8")
    blocks = arrow.read(written(pa.table({"x": values}), media), media, PLAN)
    assert (blocks.rows, [bytes(buffer) for buffer in blocks.buffers]) == (rows, [values.tobytes()])


@pytest.mark.parametrize("media", ["arrow", "parquet"])
def test_categories_of_several_parts_are_read(media: str) -> None:
    plan = Plan(parse_signature([{"type": "string", "name": "x"}], None))
    texts = [str(number // 7) for number in range(150_000)]
    blocks = arrow.read(written(pa.table({"x": pa.array(texts).dictionary_encode()}), media), media, plan)
    assert blocks == arrow.read(written(pa.table({"x": texts}), media), media, plan)
