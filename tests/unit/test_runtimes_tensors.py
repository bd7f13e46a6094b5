"""Nested lists against a tensor's type and shape: packed exactly, or refused by name."""

from __future__ import annotations

import json
import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.plan import Plan
from runtimes.mlflow.signature import Tensor, parse_signature
from runtimes.mlflow.tensors import Packed, pack_tensor
from runtimes.mlflow.values import unpack


def tensor(dtype: str, *shape: int) -> Tensor:
    return Tensor("x", dtype, shape or (-1,))


def plain(packed: Packed) -> list[Any]:
    if packed.code == "js":
        return list(json.loads(bytes(packed.buffer)))
    if packed.code == "f2":
        return list(struct.unpack(f"<{len(packed.buffer) // 2}e", packed.buffer))
    return unpack(packed.code.replace("M8", "i8"), packed.buffer)


@pytest.mark.parametrize(
    ("dtype", "value", "leaves"),
    [
        ("float64", [1, 2.5], [1.0, 2.5]),
        ("float32", [0.5, 1], [0.5, 1.0]),
        ("float16", [0.5, 65504], [0.5, 65504.0]),
        ("int64", [1, 2.0], [1, 2]),
        ("int64", [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        ("uint64", [2**64 - 1], [2**64 - 1]),
        ("int8", [-128, 127], [-128, 127]),
        ("uint8", [0, 255.0], [0, 255]),
        ("bool", [True, 0, 1.0], [True, False, True]),
        ("str", ["a", ""], ["a", ""]),
        ("object", ["a", 1, None], ["a", 1, None]),
        ("datetime64[ns]", ["1970-01-01T00:00:01Z"], [10**9]),
    ],
)
def test_what_fits_is_packed_exactly(dtype: str, value: Any, leaves: list[Any]) -> None:
    packed = pack_tensor(tensor(dtype), value)
    assert (plain(packed), packed.shape) == (leaves, (len(leaves),))


@pytest.mark.parametrize(
    ("dtype", "value", "why"),
    [
        ("int64", [1, 2.5], "row 1: not a whole number"),
        ("int64", [2**63], "row 0: out of the range of int64"),
        ("int64", [True], "row 0: not a whole number|a boolean where a whole number is expected"),
        ("uint8", [256], "row 0: out of the range of uint8"),
        ("uint8", [-1], "row 0: out of the range of uint8"),
        ("float32", [1e39], "row 0: out of the range"),
        ("float16", [65520], "row 0: out of the range"),
        ("float64", ["9.5"], "row 0: not a number"),
        ("float64", [None], "row 0: null where a value is required"),
        ("float64", [1.0, True], "row 1: a boolean where a number is expected"),
        ("bool", [2], "row 0: not a boolean"),
        ("bool", ["true"], "row 0: not a boolean"),
        ("str", ["a", 1], "row 1: not a string"),
        ("complex64", [1], "have no form in a request"),
    ],
)
def test_what_does_not_fit_is_refused_by_name_and_row(dtype: str, value: Any, why: str) -> None:
    with pytest.raises(RefusedError, match=why) as caught:
        pack_tensor(tensor(dtype), value)
    assert (caught.value.status, caught.value.field) == (400, "x")


@pytest.mark.case("runtimes-B10")
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([[1, 2, 3]], r"its shape is \[1, 3\], the model takes \[-1, 2\]"),
        ([1, 2], r"its shape is \[2\], the model takes"),
        ([[[1, 2]]], r"its shape is \[1, 1, 2\], the model takes"),
        ([[1, 2], [3]], "its rows have different lengths"),
        ([[1, 2], 3], "its rows have different lengths"),
        ([[1, [2]]], "its rows have different lengths"),
    ],
)
def test_another_shape_is_refused_with_both(value: Any, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        pack_tensor(tensor("float64", -1, 2), value)


def test_no_rows_have_the_shape_of_the_signature() -> None:
    assert pack_tensor(tensor("float32", -1, 3, -1), []).shape == (0, 3, 0)


@given(st.lists(st.lists(st.integers() | st.floats(allow_nan=False) | st.booleans(), min_size=2, max_size=2)))
def test_an_integer_tensor_never_changes_a_value(rows: list[list[Any]]) -> None:
    leaves = [value for row in rows for value in row]
    fits = all(type(v) is not bool and v == v and abs(v) < 2**64 and v == int(v) for v in leaves if abs(v) < 2**70)
    fits = fits and all(type(v) is not bool and -(2**63) <= v < 2**63 for v in leaves)
    try:
        packed = pack_tensor(tensor("int64", -1, 2), rows)
    except RefusedError:
        assert not fits
        return
    assert plain(packed) == leaves


# Through the plan.

NAMED = [
    {"type": "tensor", "name": "ids", "tensor-spec": {"dtype": "int64", "shape": [-1, 2]}},
    {"type": "tensor", "name": "w", "tensor-spec": {"dtype": "float32", "shape": [-1]}},
]


def named(document: Any) -> dict[str, list[Any]]:
    plan = Plan(parse_signature(NAMED, None), loads=orjson.loads)
    work = plan.read(json.dumps(document).encode(), "json")
    return {
        str(block.names[0]): unpack(block.code, buffer)
        for block, buffer in zip(work.layout.blocks, work.buffers, strict=True)
    }


def test_named_tensors_are_the_same_in_each_form() -> None:
    expected = {"ids": [1, 2, 3, 4], "w": [0.5, 1.0]}
    assert named({"inputs": {"ids": [[1, 2], [3, 4.0]], "w": [0.5, 1]}}) == expected
    assert named({"instances": [{"ids": [1, 2], "w": 0.5}, {"ids": [3, 4], "w": 1}]}) == expected
    assert named({"dataframe_split": {"columns": ["w", "ids"], "data": [[0.5, [1, 2]], [1, [3, 4]]]}}) == expected


def test_tensors_with_different_numbers_of_rows_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"different numbers of rows: \[1, 2\]"):
        named({"inputs": {"ids": [[1, 2]], "w": [1, 2]}})


def test_all_missing_tensors_are_named_at_once() -> None:
    with pytest.raises(RefusedError, match="tensor `ids` is missing; tensor `w` is missing"):
        named({"inputs": {}})


def test_a_tensor_of_any_inner_length_has_a_layout_of_its_own_length() -> None:
    spec = {"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, -1]}}
    plan = Plan(parse_signature([spec], None), loads=orjson.loads)
    short, long = (plan.read(json.dumps({"inputs": [[1] * n]}).encode(), "json") for n in (2, 3))
    assert [work.layout.blocks[0].shape for work in (short, long)] == [(2,), (3,)]


@pytest.mark.case("runtimes-A2")
def test_an_integer_that_a_fast_parser_rounds_is_refused_in_a_tensor_too() -> None:
    spec = {"type": "tensor", "tensor-spec": {"dtype": "int64", "shape": [-1]}}
    plan = Plan(parse_signature([spec], None), loads=orjson.loads)
    with pytest.raises(RefusedError, match="out of the range of int64"):
        plan.read(b'{"inputs": [-9223372036854775809]}', "json")
