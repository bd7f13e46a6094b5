"""Values against their column's type: accepted exactly, or refused with column, row and reason."""

from __future__ import annotations

import math
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.mlflow.columns import ABSENT, convert_column, convert_scalar
from runtimes.mlflow.params import check_params
from runtimes.mlflow.signature import Column, Param, Tensor, parse_signature


def convert(kind: str, values: list[object], *, required: bool = True, text: bool = False) -> list[object]:
    converted, problems = convert_column(Column("qty", kind, required), values, text=text)
    assert problems == []
    return converted


def reasons(kind: str, values: list[object], *, required: bool = True, text: bool = False) -> list[str]:
    _, problems = convert_column(Column("qty", kind, required), values, text=text)
    assert all(problem.field == "qty" for problem in problems)
    return [problem.message for problem in problems]


@pytest.mark.parametrize(
    ("kind", "given_value", "converted"),
    [
        ("long", 3.0, 3),
        ("long", "3", 3),
        ("long", " -3.0 ", -3),
        ("long", "3e2", 300),
        ("long", 2**63 - 1, 2**63 - 1),
        ("long", -(2**63), -(2**63)),
        ("long", "9223372036854775807", 2**63 - 1),
        ("integer", 2147483647, 2147483647),
        ("double", 3, 3.0),
        ("double", "9.5", 9.5),
        ("double", "-1e-3", -0.001),
        ("float", 3.4028234e38, 3.4028234e38),
        ("boolean", 1, True),
        ("boolean", 0.0, False),
        ("string", "", ""),
        ("string", "Zürich", "Zürich"),
        ("binary", "aGk=", b"hi"),
        ("binary", "aG\nk=", b"hi"),
        ("datetime", "2024-03-01", datetime(2024, 3, 1)),
        ("datetime", "2024-03-01T10:00:00", datetime(2024, 3, 1, 10)),
        ("datetime", "2024-03-01T10:00:00Z", datetime(2024, 3, 1, 10)),
        ("datetime", "2024-03-01T10:00:00+02:00", datetime(2024, 3, 1, 8)),
        ("datetime", "2024-03-01 10:00:00.25", datetime(2024, 3, 1, 10, 0, 0, 250000)),
    ],
)
def test_what_fits_is_converted_exactly(kind: str, given_value: object, converted: object) -> None:
    (got,) = convert(kind, [given_value])
    assert got == converted
    assert type(got) is type(converted)


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("long", 2.7, "not a whole number"),
        ("long", -0.5, "not a whole number"),
        ("long", "2.7", "not a whole number"),
        ("long", 9223372036854775808, "out of the range of a 64-bit integer"),
        ("long", 1e30, "out of the range of a 64-bit integer"),
        ("long", "1e9999", "out of the range of a 64-bit integer"),
        ("long", "many", "not a whole number"),
        ("long", True, "a boolean where a whole number is expected"),
        ("long", [3], "not a whole number"),
        ("integer", 2147483648, "out of the range of a 32-bit integer"),
        ("double", "1e400", "out of the range of its type"),
        ("double", 10**400, "out of the range of its type"),
        ("double", "1_000", "not a number"),
        ("double", "nan", "not a number"),
        ("double", "inf", "not a number"),
        ("double", False, "a boolean where a number is expected"),
        ("double", {}, "not a number"),
        ("float", 1e39, "out of the range of its type"),
        ("float", -3.4028236e38, "out of the range of its type"),
        ("boolean", "false", "not a boolean (true, false, 0 or 1)"),
        ("boolean", 2, "not a boolean (true, false, 0 or 1)"),
        ("boolean", None, "null where a value is required"),
        ("string", 7, "not a string"),
        ("string", None, "null where a value is required"),
        ("long", None, "null where a value is required"),
        ("long", ABSENT, "no value where one is required"),
        ("datetime", "yesterday", "not a date and time in ISO 8601"),
        ("datetime", 1709287200000, "not a date and time in ISO 8601"),
        ("datetime", "0001-01-01", "out of the range of a timestamp in nanoseconds (the years 1678 to 2261)"),
        ("binary", "not base64!", "not base64"),
    ],
)
def test_what_does_not_fit_is_refused_with_column_row_and_reason(kind: str, value: object, reason: str) -> None:
    assert reasons(kind, [value]) == [f"column `qty`, row 0: {reason}"]


def test_every_bad_row_is_named_and_good_ones_are_not() -> None:
    said = reasons("long", [1, 2.5, 3, None])
    assert [message.split(":")[0] for message in said] == ["column `qty`, row 1", "column `qty`, row 3"]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_a_missing_number_of_a_floating_column_is_nan_even_where_required(kind: str) -> None:
    assert all(isinstance(value, float) and math.isnan(value) for value in convert(kind, [None, ABSENT]))


@pytest.mark.parametrize("kind", ["string", "boolean", "datetime", "binary"])
def test_a_missing_value_of_an_optional_column_is_none_and_never_a_float(kind: str) -> None:
    assert convert(kind, [None, ABSENT], required=False) == [None, None]


@pytest.mark.parametrize(
    ("word", "value"), [("true", True), ("False", False), ("TRUE", True), ("0", False), ("1", True)]
)
def test_csv_spells_booleans(word: str, value: bool) -> None:
    assert convert("boolean", [word], text=True) == [value]


def test_a_type_that_is_no_scalar_is_left_to_mlflow() -> None:
    values: list[object] = [[1, 2], {"a": None}]
    assert convert("array", values) == values


@given(st.lists(st.integers()))
def test_integers_arrive_whole_or_not_at_all(values: list[int]) -> None:
    converted, problems = convert_column(Column("n", "long"), values)
    outside = [value for value in values if not -(2**63) <= value < 2**63]
    assert len(problems) == len(outside)
    if not problems:
        assert converted == values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70) | st.booleans()))
def test_a_mixed_column_never_changes_a_value(values: list[float]) -> None:
    converted, problems = convert_column(Column("n", "long"), values)
    bad_rows = {int(problem.message.split("row ")[1].split(":")[0]) for problem in problems}
    assert all(row in bad_rows or converted[row] == value for row, value in enumerate(values))
    assert all(row in bad_rows for row, value in enumerate(values) if isinstance(value, bool) or value != int(value))


@given(st.sampled_from(["long", "double", "boolean", "string", "datetime", "binary"]), st.text(min_size=3))
def test_no_reason_repeats_the_value(kind: str, secret: str) -> None:
    canary = f"canary-{secret}"
    _, problems = convert_column(Column("qty", kind), [canary, {canary: canary}, [canary]])
    assert problems
    assert not any("canary" in problem.message for problem in problems)


# Parameters.

DECLARED = (Param("temperature", "double"), Param("top", "long"), Param("stops", "string", is_list=True))


def test_parameters_arrive_in_their_types() -> None:
    checked, problems = check_params({"temperature": 1, "top": 3.0, "stops": ["a"]}, DECLARED)
    assert (checked, problems) == ({"temperature": 1.0, "top": 3, "stops": ["a"]}, [])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"temprature": 1}, "no parameter `temprature`; it takes `temperature`, `top`, `stops`"),
        ({"temperature": "hot"}, "parameter `temperature`: not a number"),
        ({"top": 1.5}, "parameter `top`: not a whole number"),
        ({"stops": "a"}, "parameter `stops`: not a list"),
        ({"stops": ["a", 1]}, "parameter `stops`: not a string"),
    ],
)
def test_a_wrong_parameter_is_named(params: dict[str, object], message: str) -> None:
    _, problems = check_params(params, DECLARED)
    assert message in problems[0].message


def test_a_model_without_parameters_says_so() -> None:
    _, problems = check_params({"a": 1}, ())
    assert problems[0].message.endswith("it takes none")


def test_a_scalar_converts_like_a_column() -> None:
    assert convert_scalar("long", "7") == (7, None)
    assert convert_scalar("long", "x") == (None, "not a whole number")


# Signatures.


def test_a_column_signature_is_parsed_from_mlflow_s_dictionaries() -> None:
    signature = parse_signature(
        [{"type": "double", "name": "a", "required": True}, {"type": "array", "name": "b", "optional": True}],
        [{"name": "k", "type": "long", "default": 1, "shape": [-1]}],
    )
    assert signature.columns == (Column("a", "double"), Column("b", "array", required=False))
    assert (signature.params, signature.named, signature.tensors) == ((Param("k", "long", is_list=True),), True, ())


def test_columns_without_names_are_called_by_their_position() -> None:
    signature = parse_signature([{"type": "double"}, {"type": "long"}], None)
    assert [column.name for column in signature.columns] == [0, 1]
    assert not signature.named


def test_a_tensor_signature_keeps_type_and_shape() -> None:
    spec = {"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 4]}}
    assert parse_signature([spec], None).tensors == (Tensor(None, "float32", (-1, 4)),)


def test_no_signature_enforces_nothing() -> None:
    signature = parse_signature(None, None)
    assert (signature.columns, signature.tensors, signature.params) == ((), (), ())
