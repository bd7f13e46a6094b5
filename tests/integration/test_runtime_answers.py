"""What the runtime answers: real models, logged by the real MLflow, served by the real processes.

The cases are rows of the table of known serving bugs; their ids stand in the marks.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import Answer, Runtime, models, serve

pytestmark = pytest.mark.process

ROW: dict[str, Any] = {
    "qty": 3,
    "price": 9.5,
    "ratio": 0.25,
    "city": "Oslo",
    "member": False,
    "seen": "2024-03-01T10:00:00",
    "score": 0.5,
}


@pytest.fixture(scope="module")
def iris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("iris", tmp_path_factory.mktemp("iris"), "--predictors", "1") as runtime:
        yield runtime.wait_ready()


@pytest.fixture(scope="module")
def acts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("acts", tmp_path_factory.mktemp("acts"), "--predictors", "1", "--deadline-s", "30") as runtime:
        yield runtime.wait_ready()


def seen(acts: Runtime, row: dict[str, Any]) -> dict[str, list[str]]:
    """What the model saw of one row: type and text of each value."""
    answer = acts.post({"dataframe_records": [row]})
    assert answer.status == 200, answer.body
    return dict(answer.json["predictions"][0]["seen"])


def refused(answer: Answer, field: str) -> str:
    assert answer.status == 400, answer.body
    assert answer.error["field"] == field
    return answer.error["message"]


# One table in every form.


def in_every_form() -> list[tuple[str, bytes, dict[str, str]]]:
    rows = json.loads((models() / "iris.json").read_text())["rows"]
    records = [dict(zip(rows["columns"], row, strict=True)) for row in rows["data"]]
    backwards = [dict(reversed(record.items())) for record in records]
    columns = {name: [record[name] for record in records] for name in reversed(rows["columns"])}
    turned = {"columns": rows["columns"][::-1], "data": [row[::-1] for row in rows["data"]]}
    documents = {
        "dataframe_split": rows,
        "dataframe_split, columns reversed": turned,
        "dataframe_records": backwards,
        "instances": records,
        "inputs": columns,
        "inputs, records": records,
    }
    made = [
        (name, json.dumps({name.split(",")[0]: document}).encode(), {"content-type": "application/json"})
        for name, document in documents.items()
    ]
    csv, parquet = (models() / "iris.csv").read_bytes(), (models() / "iris.parquet").read_bytes()
    made.append(("csv", csv, {"content-type": "text/csv; charset=utf-8"}))
    made.append(("csv, gzip", gzip.compress(csv), {"content-type": "text/csv", "content-encoding": "gzip"}))
    made.append(("parquet", parquet, {"content-type": "application/x-parquet"}))
    return made


@pytest.mark.case("runtimes-A16", "runtimes-A19", "runtimes-A23")
def test_one_table_in_every_form_gives_what_pyfunc_gives(iris: Runtime) -> None:
    expected = {"predictions": json.loads((models() / "iris.json").read_text())["expected"]}
    got = {name: iris.ask("POST", "/invocations", body, headers).json for name, body, headers in in_every_form()}
    assert got == dict.fromkeys(got, expected)
    assert len(set(expected["predictions"])) == 3  # the rows tell the forms apart


@pytest.mark.parametrize("form", ["inputs", "instances"])
@pytest.mark.case("runtimes-A25")
def test_a_tensor_of_many_rows_gives_one_prediction_a_row(tmp_path: Path, form: str) -> None:
    with serve("tensor", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        for rows in (0, 1, 76, 10_000):
            answer = runtime.post({form: [[5, 3.5, 1.4, 0.2]] * rows})
            assert answer.json == {"predictions": [0] * rows}
        table = {"columns": ["a", "b", "c", "d"], "data": [[5, 3.5, 1.4, 0.2]]}
        assert runtime.post({"dataframe_split": table}).json == {"predictions": [0]}
        wrong = runtime.post({form: [[1, 2, 3]]})
        assert (wrong.status, "its shape is [1, 3], the model takes [-1, 4]" in wrong.error["message"]) == (400, True)


def test_named_tensors_arrive_in_their_types_and_are_never_truncated(tmp_path: Path) -> None:
    with serve("named", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        good = runtime.post({"inputs": {"ids": [[1, 2.0]], "w": [0.5]}})
        assert good.json["predictions"] == {"ids": ["int64", [[1, 2]]], "w": ["float32", [0.5]]}
        assert "tensor `w` is missing" in refused(runtime.post({"inputs": {"ids": [[1, 2]]}}), "w")
        cut = runtime.post({"inputs": {"ids": [[1, 2.5]], "w": [0.5]}})
        assert refused(cut, "ids") == "tensor `ids`, row 0: not a whole number"
        rows = [{"ids": [1, 2], "w": 0.5}, {"ids": [3, 4], "w": 1}]
        assert runtime.post({"instances": rows}).json["predictions"]["ids"] == ["int64", [[1, 2], [3, 4]]]


@pytest.mark.case("runtimes-A17")
def test_without_a_signature_the_model_gets_what_was_sent_and_the_log_says_so(tmp_path: Path) -> None:
    with serve("unsigned", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        split = runtime.post({"dataframe_split": {"columns": ["a"], "data": [[1], [2]]}}).json["predictions"]
        array = runtime.post({"inputs": [[1, 2]]}).json["predictions"]
        assert (split, array) == (
            {"type": "DataFrame", "value": [[1], [2]]},
            {"type": "ndarray", "value": [[1, 2]]},
        )
        assert any("no signature" in line["message"] for line in runtime.log)


@pytest.mark.case("runtimes-A30")
def test_a_type_hinted_model_takes_inputs_only_and_checks_them_itself(tmp_path: Path) -> None:
    with serve("hinted", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        assert runtime.post({"inputs": ["a", "b"]}).json == {"predictions": ["A", "B"]}
        assert "send it as `inputs`" in refused(runtime.post({"dataframe_records": [{"a": 1}]}), "dataframe_records")
        wrong = runtime.post({"inputs": [4242]})
        assert (wrong.status, b"4242" in wrong.body) == (400, False)
        assert runtime.post({"inputs": [{"canary-4711": 1}]}).status == 400
        assert [line["stack"][-15:] for line in runtime.log if "does not fit" in line["message"]] == [
            "MlflowException"
        ] * 2
        assert "canary" not in str(runtime.log)


# Values: one good row with one value changed.


def test_a_good_row_arrives_in_the_types_of_the_signature(acts: Runtime) -> None:
    assert seen(acts, ROW) == {
        "qty": ["int", "3"],
        "price": ["float", "9.5"],
        "ratio": ["float", "0.25"],
        "city": ["str", "Oslo"],
        "member": ["bool", "False"],
        "seen": ["Timestamp", "2024-03-01 10:00:00"],
        "score": ["float", "0.5"],
    }


@pytest.mark.parametrize(
    ("field", "value", "arrives"),
    [
        pytest.param("qty", 3.0, "3", marks=pytest.mark.case("runtimes-A1")),
        pytest.param("qty", "9223372036854775807", "9223372036854775807", marks=pytest.mark.case("runtimes-A2")),
        pytest.param("small", 2147483647, "2147483647", marks=pytest.mark.case("runtimes-A2")),
        pytest.param("price", "9.5", "9.5", marks=pytest.mark.case("runtimes-A31")),
        pytest.param("price", None, "nan", marks=pytest.mark.case("runtimes-A31")),
        pytest.param("member", 1, "True", marks=pytest.mark.case("runtimes-A6")),
        pytest.param("note", None, "None", marks=pytest.mark.case("runtimes-A9")),
        pytest.param("seen", "2024-03-01T10:00:00Z", "2024-03-01 10:00:00", marks=pytest.mark.case("runtimes-A11")),
        pytest.param(
            "seen", "2024-03-01T10:00:00+02:00", "2024-03-01 08:00:00", marks=pytest.mark.case("runtimes-A11")
        ),
        pytest.param("seen", "2024-03-01", "2024-03-01 00:00:00", marks=pytest.mark.case("runtimes-A12")),
        pytest.param("city", "2024-03-01", "2024-03-01", marks=pytest.mark.case("runtimes-A13")),
        pytest.param("city", "Zürich", "Zürich", marks=pytest.mark.case("runtimes-A27")),
        pytest.param("extra", 1, None, marks=pytest.mark.case("runtimes-A31")),
    ],
)
def test_a_value_that_fits_reaches_the_model(acts: Runtime, field: str, value: object, arrives: str | None) -> None:
    assert seen(acts, ROW | {field: value}).get(field, [None, None])[1] == arrives


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param("qty", 2.7, marks=pytest.mark.case("runtimes-A1")),
        pytest.param("qty", -0.5, marks=pytest.mark.case("runtimes-A1")),
        pytest.param("qty", 9223372036854775808, marks=pytest.mark.case("runtimes-A2")),
        pytest.param("qty", 1e30, marks=pytest.mark.case("runtimes-A2")),
        pytest.param("small", 2147483648, marks=pytest.mark.case("runtimes-A2")),
        pytest.param("ratio", 1e39, marks=pytest.mark.case("runtimes-A3")),
        pytest.param("qty", None, marks=pytest.mark.case("runtimes-A4")),
        pytest.param("member", "false", marks=pytest.mark.case("runtimes-A6")),
        pytest.param("member", 2, marks=pytest.mark.case("runtimes-A6")),
        pytest.param("member", None, marks=pytest.mark.case("runtimes-A7")),
        pytest.param("city", None, marks=pytest.mark.case("runtimes-A9")),
        pytest.param("city", 7, marks=pytest.mark.case("runtimes-A10")),
        pytest.param("seen", "soon", marks=pytest.mark.case("runtimes-A12")),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_named(acts: Runtime, field: str, value: object) -> None:
    assert f"column `{field}`, row 0: " in refused(acts.post({"dataframe_records": [ROW | {field: value}]}), field)


@pytest.mark.case("runtimes-A3")
def test_a_number_beyond_every_float_is_refused(acts: Runtime) -> None:
    body = json.dumps({"dataframe_records": [ROW]}).replace("9.5", "1e400").encode()
    assert "out of the range" in acts.post(body).error["message"]


@pytest.mark.case("runtimes-A8")
def test_what_a_record_leaves_out_is_listed_without_the_optional_columns(acts: Runtime) -> None:
    message = refused(acts.post({"dataframe_records": [ROW, {"qty": 2}]}), "city")
    assert all(f"`{name}`, row 1" in message for name in ("city", "member", "seen"))
    assert not any(f"`{name}`" in message for name in ("qty", "score", "note", "small"))


@pytest.mark.case("runtimes-A15")
def test_a_csv_row_is_the_json_row(acts: Runtime) -> None:
    csv = "qty,price,ratio,city,member,seen,score\n3,9.5,0.25,Oslo,False,2024-03-01T10:00:00,\n"
    answer = acts.ask("POST", "/invocations", csv.encode(), {"content-type": "text/csv"})
    assert answer.json["predictions"][0]["seen"] == seen(acts, ROW | {"score": None})


@pytest.mark.case("runtimes-A21")
def test_what_is_not_finite_leaves_as_null_and_is_counted(acts: Runtime) -> None:
    before = acts.metric("knobless_runtime_non_finite_values_total")
    assert acts.post({"dataframe_records": [ROW | {"city": "odd"}]}).json == {"predictions": [None, None, 1.0]}
    assert acts.metric("knobless_runtime_non_finite_values_total") == before + 2


@pytest.mark.case("runtimes-A31")
def test_no_rows_are_no_predictions(acts: Runtime) -> None:
    assert acts.post({"dataframe_split": {"columns": list(ROW), "data": []}}).json == {"predictions": []}
    assert acts.post({"dataframe_records": []}).json == {"predictions": []}
    assert acts.post({"inputs": []}).json == {"predictions": []}


@pytest.mark.case("runtimes-A28")
def test_parameters_reach_the_model_with_their_defaults_and_unknown_ones_are_refused(acts: Runtime) -> None:
    body = {"dataframe_records": [ROW], "params": {"k": 7.0}}
    assert acts.post(body).json["predictions"][0]["params"] == {"k": 7, "t": 0.5}
    unknown = acts.post(body | {"params": {"kk": 1}})
    assert "no parameter `kk`; it takes `k`, `t`" in refused(unknown, "params")
    assert refused(acts.post(body | {"params": {"t": "hot"}}), "t") == "parameter `t`: not a number"
