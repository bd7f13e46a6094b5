"""Parquet files and Arrow streams, in and out, and what is missing: a value is the same whichever way it came."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.integration.runtime_process import JSON, Answer, Runtime, serve

pytestmark = pytest.mark.process

ARROW, PARQUET = "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"
NOON = datetime(2024, 3, 1, 10)
ROW: dict[str, Any] = {
    "qty": 3, "price": 9.5, "ratio": 0.25, "city": "Zürich", "member": False, "seen": "2024-03-01T10:00:00",
    "score": 0.5,
}  # fmt: skip


@pytest.fixture(scope="module")
def acts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("acts", tmp_path_factory.mktemp("acts"), "--predictors", "1") as runtime:
        yield runtime.wait_ready()


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("unsigned", tmp_path_factory.mktemp("unsigned"), "--predictors", "1") as runtime:
        yield runtime.wait_ready()


def table(**columns: Any) -> pa.Table:
    usual = {
        "qty": pa.array([3, 4]),
        "price": pa.array([9.5, 9.5]),
        "ratio": pa.array([0.25, 0.25], pa.float32()),
        "city": pa.array(["Zürich", "Zürich"]),
        "member": pa.array([False, False]),
        "seen": pa.array([NOON, NOON], pa.timestamp("ns")),
        "score": pa.array([0.5, 0.5]),
    }
    return pa.table(usual | columns)


def sent(acts: Runtime, rows: pa.Table, kind: str, accept: str = "*/*") -> Answer:
    sink = pa.BufferOutputStream()
    if kind == PARQUET:
        pq.write_table(rows, sink)
    else:
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
    return acts.ask("POST", "/invocations", bytes(sink.getvalue()), {"content-type": kind, "accept": accept})


def seen(answer: Answer) -> list[dict[str, list[str]]]:
    assert answer.status == 200, answer.body
    return [row["seen"] for row in answer.json["predictions"]]


def records(acts: Runtime, *changes: dict[str, Any]) -> list[dict[str, list[str]]]:
    return seen(acts.post({"dataframe_records": [ROW | change for change in changes]}))


@pytest.mark.case("runtimes-A14", "runtimes-A16", "runtimes-A27")
@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_typed_columns_are_the_row_that_json_spells(acts: Runtime, kind: str) -> None:
    expected = records(acts, {}, {"qty": 4})
    assert seen(sent(acts, table(), kind)) == expected
    other = table(
        qty=pa.array([3.0, 4.0]),
        ratio=pa.array([0.25, 0.25]),
        city=pa.array(["Zürich", "Zürich"]).dictionary_encode(),
        seen=pa.array([NOON.replace(tzinfo=UTC)] * 2, pa.timestamp("ms", "UTC")),
        extra=pa.array([1, 2]),
    )
    assert seen(sent(acts, other, kind)) == expected


@pytest.mark.case("runtimes-A18")
@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_the_value_decides_and_not_its_type(acts: Runtime, kind: str) -> None:
    refused = sent(acts, table(qty=pa.array([3.0, 2.7]), city=pa.array([1, 2])), kind)
    assert refused.status == 400
    assert refused.error["message"].startswith("column `qty`, row 1: not a whole number; column `city`, row 0: not a")


@pytest.mark.case("runtimes-A5")
@pytest.mark.parametrize("kind", [JSON["content-type"], "text/csv", ARROW, PARQUET])
def test_a_missing_integer_is_missing_and_its_neighbour_stays_one(acts: Runtime, kind: str) -> None:
    if kind == JSON["content-type"]:
        got = records(acts, {"small": None}, {"small": 6})
    elif kind == "text/csv":
        names = [*ROW, "small"]
        lines = [",".join(names), *(",".join([*map(str, ROW.values()), cell]) for cell in ("", "6"))]
        answer = acts.ask("POST", "/invocations", "\n".join(lines).encode(), {"content-type": kind})
        got = seen(answer)
    else:
        got = seen(sent(acts, table(small=pa.array([None, 6], pa.int32())), kind))
    assert [row["small"] for row in got] == [["NoneType", "None"], ["int", "6"]]


@pytest.mark.case("runtimes-A9")
@pytest.mark.parametrize("kind", [JSON["content-type"], ARROW, PARQUET])
def test_a_missing_text_is_none_and_never_a_float(acts: Runtime, kind: str) -> None:
    if kind == JSON["content-type"]:
        got = records(acts, {"note": None}, {"note": "x"})
    else:
        got = seen(sent(acts, table(note=pa.array([None, "x"])), kind))
    assert [row["note"] for row in got] == [["NoneType", "None"], ["str", "x"]]


def test_parameters_keep_their_defaults_where_an_integer_is_missing(acts: Runtime) -> None:
    answer = acts.post({"dataframe_records": [ROW | {"small": None}], "params": {"k": 7}})
    assert answer.json["predictions"][0]["params"] == {"k": 7, "t": 0.5}


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_what_is_neither_is_400(acts: Runtime, kind: str) -> None:
    for body in (b"", b"PAR1", b"\xff\xff\xff\xff\x10\0\0\0", json.dumps(ROW).encode()):
        answer = acts.ask("POST", "/invocations", body, {"content-type": kind})
        assert (answer.status, "is not a valid" in answer.error["message"]) == (400, True)


@pytest.mark.parametrize("kind", [ARROW, PARQUET])
def test_a_model_without_a_signature_reads_the_columns_itself(unsigned: Runtime, kind: str) -> None:
    answer = sent(unsigned, pa.table({"a": [1, 2]}), kind)
    if answer.status == 415:  # its environment has nothing that reads Parquet
        assert "can't read Parquet" in answer.error["message"]
        return
    assert answer.json["predictions"] == {"type": "DataFrame", "value": [[1], [2]]}


def test_an_answer_leaves_as_an_arrow_stream_where_that_is_asked_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serve("scores", tmp_path_factory.mktemp("scores"), "--predictors", "1") as runtime:
        runtime.wait_ready()
        rows = pa.table({name: pa.array([1.0, 5.0]) for name in ("sl", "sw", "pl", "pw")})
        plain = sent(runtime, rows, ARROW).json["predictions"]
        answer = sent(runtime, rows, ARROW, accept=ARROW)
        assert answer.headers["content-type"] == ARROW
        assert pa.ipc.open_stream(answer.body).read_all().to_pydict() == {"predictions": plain}
