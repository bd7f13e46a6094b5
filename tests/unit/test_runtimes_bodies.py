"""Bodies: the four JSON forms and CSV become tables, everything else a 400 that does not repeat the body."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.mlflow.bodies import (
    Table,
    columns_table,
    csv_table,
    may_be_infinite,
    may_be_rounded,
    parse_json,
    records_table,
    rows_table,
    split_table,
)
from runtimes.mlflow.columns import ABSENT
from runtimes.mlflow.errors import RefusedError


def refusal(body: str | bytes) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        parse_json(body if isinstance(body, bytes) else body.encode())
    return caught.value


@pytest.mark.case("runtimes-A3", "runtimes-D13")
@given(st.text("0123456789eE+-. ,x", max_size=40).map(str.encode), st.integers(0, 400), st.integers(0, 40))
def test_a_number_too_large_for_a_parser_is_seen_wherever_it_stands(around: bytes, digits: int, at: int) -> None:
    body = around[:at] + b"7" * digits + around[at:]
    assert may_be_rounded(body) is bool(re.search(rb"\d{19}", body))
    assert may_be_infinite(body) is bool(re.search(rb"[eE]\+?\d{3}|\d{200}", body))


@pytest.mark.parametrize("form", ["dataframe_split", "dataframe_records", "instances", "inputs"])
def test_each_form_is_recognised_with_its_parameters(form: str) -> None:
    payload = parse_json(json.dumps({form: [1], "params": {"k": 2}}).encode())
    assert (payload.form, payload.data, payload.params) == (form, [1], {"k": 2})


def test_parameters_may_be_null_or_left_out() -> None:
    assert parse_json(b'{"inputs": [], "params": null}').params == {}
    assert parse_json(b'{"inputs": []}').params == {}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "not JSON (line 1, column 1)"),
        ('{"dataframe_split": "card 4242', "not JSON (line 1, column"),
        ('{"inputs": [1],}', "not JSON"),
        ("[1]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("{}", "has none of them"),
        ('{"messages": [{"role": "user", "content": "card 4242"}]}', "exactly one of the keys `dataframe_split`"),
        ('{"inputs": [1], "instances": [1]}', "this one has `instances`, `inputs`"),
        ('{"inputs": [1], "params": [1]}', "`params` must be an object"),
        ('{"inputs": [NaN]}', "`NaN` is not JSON; send null"),
        ('{"inputs": [-Infinity]}', "`-Infinity` is not JSON"),
        ('{"inputs": [1e400]}', "out of the range of a 64-bit float"),
        ('{"inputs": [-%sE+99]}' % ("9" * 210), "out of the range of a 64-bit float"),
        ('{"inputs": [' + "1" * 400 + ".5]}", "out of the range of a 64-bit float"),
        ('{"inputs": [' + "1" * 5000 + "]}", "too many digits"),
        ('{"inputs": ' + "[" * 100_000, "nested too deeply"),
        (b'{"inputs": ["\xff"]}', "not UTF-8 (byte 13)"),
        ('{"inputs": [1]}'.encode("utf-16"), "not UTF-8"),
    ],
)
def test_a_body_that_is_none_of_the_forms_is_400_and_is_not_repeated(body: str | bytes, why: str) -> None:
    said = refusal(body)
    assert said.status == 400
    assert why in said.message
    assert "4242" not in said.message


def test_large_exponents_that_fit_are_numbers() -> None:
    assert parse_json(b'{"inputs": [1e300, 5e-324, 1E+308]}').data == [1e300, 5e-324, 1e308]


def test_a_split_keeps_columns_rows_and_index() -> None:
    table = split_table({"columns": ["a", "b"], "data": [[1, "x"], [2, None]], "index": [7, 9]})
    assert table == Table(["a", "b"], [[1, 2], ["x", None]], 2, [7, 9])


def test_a_split_without_names_counts_its_columns() -> None:
    assert split_table({"data": [[1, 2]]}).names == [0, 1]


def test_a_split_without_rows_keeps_its_columns() -> None:
    assert split_table({"columns": ["a"], "data": []}) == Table(["a"], [[]], 0)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "must be an object with `data`"),
        ({"columns": ["a"]}, "must be an object with `data`"),
        ({"columns": ["a"], "data": [1]}, "a list of rows"),
        ({"columns": ["a"], "data": [[1], [1, 2]]}, "row 1 has 2 values for 1 columns"),
        ({"columns": ["a", "a"], "data": [[1, 2]]}, "column `a` is there twice"),
        ({"columns": "ab", "data": [[1, 2]]}, "a list of names"),
        ({"columns": [["a"]], "data": [[1]]}, "a list of names"),
        ({"data": [[1]], "index": [1, 2]}, "one label a row"),
        ({"data": [[1]], "index": [[1]]}, "one label a row"),
    ],
)
def test_a_split_that_is_no_table_is_refused(data: object, why: str) -> None:
    with pytest.raises(RefusedError, match=why.replace("(", r"\(")):
        split_table(data)


def test_records_mark_what_a_row_leaves_out_apart_from_what_it_sets_to_null() -> None:
    table = records_table([{"a": 1, "b": None}, {"a": 2}], ["b", "a", "c"], "dataframe_records")
    assert table == Table(["b", "a"], [[None, ABSENT], [1, 2]], 2)


def test_records_without_a_signature_have_every_key_they_name() -> None:
    assert records_table([{"a": 1}, {"b": 2}], None, "x").names == ["a", "b"]


def test_records_whose_keys_all_differ_cannot_fill_the_memory() -> None:
    many = [{f"k{i}": 1} for i in range(5000)]
    with pytest.raises(RefusedError, match="too many different keys"):
        records_table(many, None, "dataframe_records")
    assert records_table(many, ["k1"], "dataframe_records").rows == 5000


@pytest.mark.parametrize("records", [{}, [1], ["a"], [[1]], "x", None])
def test_records_that_are_no_objects_are_refused(records: object) -> None:
    with pytest.raises(RefusedError, match="list of objects"):
        records_table(records, None, "dataframe_records")


def test_columns_of_lists_and_one_row_of_values_are_tables() -> None:
    assert columns_table({"a": [1, 2], "b": [3, 4]}, "inputs") == Table(["a", "b"], [[1, 2], [3, 4]], 2)
    assert columns_table({"a": 1, "b": "x"}, "inputs") == Table(["a", "b"], [[1], ["x"]], 1)


def test_columns_of_different_lengths_are_refused_and_named() -> None:
    with pytest.raises(RefusedError) as caught:
        columns_table({"a": [1, 2], "b": [3]}, "inputs")
    assert caught.value.field == "b"


def test_csv_is_text_with_empty_cells_missing() -> None:
    table = csv_table('\ufeffa,"b,c"\n1,x\n\n,"two\nlines"\n'.encode())
    assert table == Table(["a", "b,c"], [["1", None], ["x", "two\nlines"]], 2, text=True)


def test_csv_of_a_header_alone_has_no_rows() -> None:
    assert csv_table(b"a,b\n") == Table(["a", "b"], [[], []], 0, text=True)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no header line"),
        (b"\n\n", "no header line"),
        (b"a,a\n1,2\n", "column `a` is there twice"),
        (b"a,b\n1\n", "row 0 has 1 values for 2 columns"),
        (b'a\n"open', "can't be read at line"),
        (b"a\n\xff\n", "not UTF-8"),
    ],
)
def test_csv_that_is_no_table_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        csv_table(body)


def test_a_csv_cell_may_be_longer_than_the_parser_s_own_bound() -> None:
    assert csv_table(b"a\n" + b"x" * 200_000 + b"\n").columns == [["x" * 200_000]]


def test_rows_that_are_no_lists_are_refused() -> None:
    with pytest.raises(RefusedError, match="a list of rows"):
        rows_table({"a": 1}, None, "inputs")


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_a_payload_or_a_400(body: bytes) -> None:
    for read in (parse_json, csv_table):
        try:
            read(body)
        except RefusedError as refused:
            assert refused.status == 400
