"""What a few bytes of columns may become: a bound on what is unpacked, before it is looked at."""

from __future__ import annotations

import io
import multiprocessing
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from runtimes.mlflow import arrow, unpacked
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


# What is unpacked, or written out, before there is anything to count.


def streamed(array: pa.Array, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    batch = pa.record_batch({"x": array})
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def filed(array: pa.Array, **options: Any) -> bytes:
    """One page, whatever is in it."""
    sink = io.BytesIO()
    whole = {
        "data_page_size": 1 << 30,
        "write_batch_size": 1 << 30,
        "max_rows_per_page": 1 << 30,
        "row_group_size": 1 << 30,
    }
    table = pa.table({"x": array})
    pq.write_table(
        table, sink, compression="zstd", dictionary_pagesize_limit=1 << 30, write_statistics=False, **whole, **options
    )
    return sink.getvalue()


ZEROS = np.zeros(1 << 26)  # 512 MB that take no memory
TEXT = "x" * (1 << 18)
FEW = np.zeros(4000, "i4")
PLACES = pa.py_buffer(struct.pack("<i4sii", len(TEXT), b"xxxx", 0, 0) * len(FEW))
PREFIXES = {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}
BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a packed buffer": ("arrow", lambda: streamed(pa.array(ZEROS), "zstd")),
    "a text by its number": ("arrow", lambda: streamed(pa.DictionaryArray.from_arrays(FEW, [TEXT]))),
    "a packed dictionary": (
        "arrow",
        lambda: streamed(pa.DictionaryArray.from_arrays(FEW, pa.array([TEXT] * 4000)), "zstd"),
    ),
    "a text by its place": (
        "arrow",
        lambda: streamed(
            pa.Array.from_buffers(pa.string_view(), len(FEW), [None, PLACES, pa.py_buffer(TEXT.encode())])
        ),
    ),
    "a page": ("parquet", lambda: filed(pa.array(ZEROS), use_dictionary=False)),
    "a text by its number in a file": ("parquet", lambda: filed(pa.array([TEXT]).take(FEW))),
    "a list of texts by number": ("parquet", lambda: filed(pa.array([[TEXT] * len(FEW)]))),
    "bytes of one length by number": (
        "parquet",
        lambda: filed(pa.array([TEXT.encode()] * 400, pa.binary(len(TEXT)))),
    ),
    "bytes of one length that are not there": ("parquet", lambda: filed(pa.nulls(4000, pa.binary(len(TEXT))))),
    "a text by its prefix": ("parquet", lambda: filed(pa.array([TEXT] * 4000), **PREFIXES)),
    "a list of texts by prefix": ("parquet", lambda: filed(pa.array([[TEXT] * 4000]), **PREFIXES)),
}


@pytest.fixture
def pool() -> Iterator[pa.MemoryPool]:
    counting = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    yield counting
    pa.set_memory_pool(before)


@pytest.mark.case("runtimes-D10")
@pytest.mark.parametrize("name", BOMBS)
def test_what_is_too_large_unpacked_is_never_unpacked_whole(name: str, pool: pa.MemoryPool) -> None:
    media, write = BOMBS[name]
    body = write()
    assert len(body) < 1 << 19
    pa.set_memory_pool(pool)
    with pytest.raises(RefusedError, match="once unpacked") as caught:
        arrow.read(body, media, PLAN)
    assert caught.value.status == 413
    assert pool.max_memory() < 4 * arrow.MOST_UNPACKED_BYTES


def test_a_name_that_many_columns_share_is_counted_for_each() -> None:
    schema = pa.schema([("x" * 100_000, pa.int32()), *((f"c{number}", pa.int32()) for number in range(1000))])
    message = bytearray(pa.ipc.read_message(schema.serialize()).serialize())
    flat = unpacked._Flat(bytes(message[8:]), 0).table().field(2)
    columns = 8 + flat.table().field(1).table()._at + 4  # type: ignore[union-attr]
    first = columns + struct.unpack_from("<I", message, columns)[0]
    for number in range(1001):
        struct.pack_into("<I", message, columns + 4 * number, first - columns - 4 * number)
    with pa.ipc.open_stream(bytes(message)) as reader:
        assert {len(name) for name in reader.schema.names} == {100_000}
    with pytest.raises(RefusedError, match="once unpacked"):
        arrow.read(bytes(message), "arrow", PLAN)


@pytest.mark.parametrize(
    "array",
    [
        pa.RunEndEncodedArray.from_arrays(pa.array([4000], pa.int32()), pa.array([TEXT])),
        pa.ListViewArray.from_arrays(pa.array(FEW), pa.array(FEW), pa.array([1.0])),
    ],
)
def test_types_that_share_values_are_refused_by_name(array: pa.Array) -> None:
    with pytest.raises(RefusedError, match="column `x`: values of this Arrow type"):
        arrow.read(streamed(array), "arrow", PLAN)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(b"\x15\x02\x05\x02\x04\x00", id="a field twice"),
        pytest.param(b"\x15\x02\x05\x82\x80\x08\x04\x00", id="a field twice, by a number of 17 bits"),
        pytest.param(b"\x05\x01\x04\x00", id="a field below the first"),
        pytest.param(b"\x15\x02", id="no end"),
        pytest.param(b"\x1a\x05\x02\x00", id="a set"),
        pytest.param(b"\x1c" * 20 + b"\x00" * 21, id="too deep"),
        pytest.param(b"\x19\xf5\xff\xff\xff\xff\x0f\x00", id="a list without an end"),
    ],
)
def test_headers_that_two_readers_may_take_for_different_things_are_refused(told: bytes) -> None:
    with pytest.raises((ValueError, LookupError)):
        unpacked._structure(told, 0, len(told), {}, 8)


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        number, found = number >> 7, found + bytes([number & 127 | 128])
    return found + bytes([number])


@pytest.mark.case("runtimes-D10")
def test_pages_that_many_columns_share_are_not_walked_once_more_for_each() -> None:
    """20 KB took seconds, and some MB days, in a thread that nobody can stop."""
    pages = b"\x15\x04\x15\x00\x15\x00\x00" * 4000  # dictionaries of nothing
    count = unpacked.MOST_HEADER_BYTES // len(pages) + 1
    column = b"\x3c\x56\x02\x26" + varint(2 * len(pages)) + b"\x26\x08\x00\x00"
    footer = b"\x49\x1c\x19\xfc" + varint(count) + column * count + b"\x00\x00"
    body = b"PAR1" + pages + footer + struct.pack("<I", len(footer)) + b"PAR1"
    with pytest.raises(ValueError, match="without an end"):
        list(unpacked.chunks(body))


@pytest.mark.case("runtimes-D10")
def test_buffers_that_are_packed_in_the_oldest_way_are_never_unpacked(pool: pa.MemoryPool) -> None:
    sink = io.BytesIO()
    batch = pa.record_batch({"x": pa.array(ZEROS)})
    options = pa.ipc.IpcWriteOptions(compression="zstd", metadata_version=pa.ipc.MetadataVersion.V4)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    body = bytearray(sink.getvalue())
    at = 8 + struct.unpack_from("<i", body, 4)[0] + 8  # behind the schema, which is a message too
    records = unpacked._Flat(bytes(body[at:]), 0).table().field(2).table()._at  # type: ignore[union-attr]
    fields = at + records - struct.unpack_from("<i", body, at + records)[0]
    struct.pack_into("<H", body, fields + 4 + 2 * 3, 0)  # without the field that tells it today
    pa.set_memory_pool(pool)
    with pytest.raises(RefusedError):
        arrow.read(bytes(body), "arrow", PLAN)
    assert pool.max_memory() < arrow.MOST_UNPACKED_BYTES


TEXTS = Plan(parse_signature([{"type": "string", "name": "x"}], None))


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
)
def test_texts_are_read_in_whatever_type_they_came(kind: pa.DataType) -> None:
    texts = pa.array(["a", "bc", "a"])
    wanted = arrow.read(streamed(texts), "arrow", TEXTS)
    assert arrow.read(streamed(texts.cast(kind)), "arrow", TEXTS) == wanted


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"compression": None}, PREFIXES])
def test_files_are_read_however_their_pages_are_written(options: dict[str, Any]) -> None:
    texts = pa.array([f"text {number % 900}" for number in range(30_000)])
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": texts}), sink, row_group_size=7000, data_page_size=4096, **options)
    assert arrow.read(sink.getvalue(), "parquet", TEXTS) == arrow.read(streamed(texts), "arrow", TEXTS)


def read_broken_bodies() -> None:
    table = pa.table({"x": ["abc", "de", "f"] * 20, "l": [[1, 2], [3], []] * 20, "d": pa.array(["u", "vv"] * 30)})
    table = table.set_column(2, "d", table.column("d").dictionary_encode())
    whole = {media: written(table, media) for media in ("arrow", "parquet")}
    whole["plain arrow"] = pa.BufferOutputStream()
    with pa.ipc.new_stream(whole["plain arrow"], table.schema) as writer:
        writer.write_table(table)
    whole["plain arrow"] = bytes(whole["plain arrow"].getvalue())
    chosen = random.Random(4711)
    for _ in range(3000):
        media, body = chosen.choice(list(whole.items()))
        broken = bytearray(body)
        for _ in range(chosen.randint(1, 4)):
            broken[chosen.randrange(len(broken))] = chosen.choice((0, 1, 127, 128, 255))
        try:
            arrow.read(bytes(broken), media.removeprefix("plain "), TEXTS)
            arrow.as_parquet(bytes(broken), media.removeprefix("plain "))
        except RefusedError as refusal:
            assert refusal.status in (400, 413), refusal


def test_a_broken_body_is_an_answer_and_never_the_end_of_the_process() -> None:
    """Places in memory that lie in a stream were believed: one of twenty such bodies ended the process."""
    reading = multiprocessing.get_context("spawn").Process(target=read_broken_bodies)
    reading.start()
    reading.join()
    assert reading.exitcode == 0
