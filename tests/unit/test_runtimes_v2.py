"""The Open Inference Protocol: requests, with binary tensors too, become the plan's blocks, results its response."""

from __future__ import annotations

import json
import struct
from array import array
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.interface.engine import Reply
from runtimes.mlflow.answers import Array, Result
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.layout import Form
from runtimes.mlflow.plan import Plan, Work
from runtimes.mlflow.signature import Signature, parse_signature
from runtimes.protocols import v2, v2_answer
from runtimes.protocols.v2_tensors import CODES, DTYPES

COLUMNS = Plan(
    parse_signature(
        [{"type": "long", "name": "qty"}, {"type": "double", "name": "price"}, {"type": "string", "name": "city"}],
        [{"name": "k", "type": "long"}],
    ),
    loads=orjson.loads,
)
NUMBERS = Plan(parse_signature([{"type": "double", "name": name} for name in "abc"], None), loads=orjson.loads)
TENSOR = Plan(
    parse_signature([{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, 2]}}], None),
    loads=orjson.loads,
)


def tensor(name: str, datatype: str, shape: list[int], data: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **({} if data is None else {"data": data}), **more}


def binary(name: str, datatype: str, shape: list[int], raw: bytes) -> tuple[dict[str, Any], bytes]:
    return tensor(name, datatype, shape, parameters={"binary_data_size": len(raw)}), raw


def ask(*inputs: dict[str, Any] | tuple[dict[str, Any], bytes], **beside: Any) -> v2.Asked:
    specs = [given if isinstance(given, dict) else given[0] for given in inputs]
    tail = b"".join(given[1] for given in inputs if isinstance(given, tuple))
    head = json.dumps({"inputs": specs, **beside}).encode()
    return v2.parse(head + tail, len(head) if tail else None, orjson.loads)


def texts(*values: str | bytes) -> bytes:
    encoded = [value.encode() if isinstance(value, str) else value for value in values]
    return b"".join(struct.pack("<I", len(value)) + value for value in encoded)


def blocks(work: Work) -> list[tuple[str, tuple[Any, ...], bytes]]:
    return [
        (block.code, block.names, bytes(buffer)) for block, buffer in zip(work.layout.blocks, work.buffers, strict=True)
    ]


# Requests.

GOOD = (tensor("qty", "INT64", [2], [3, 4]), tensor("price", "FP64", [2, 1], [[9.5], [1.0]]))
CITY = tensor("city", "BYTES", [2], ["Oslo", "Zürich"])


@pytest.mark.case("runtimes-A27")
def test_columns_in_json_and_in_bytes_are_the_blocks_of_the_same_table_in_json() -> None:
    plain = v2.work(ask(*GOOD, CITY), COLUMNS)
    packed = v2.work(
        ask(
            binary("qty", "INT64", [2], array("q", [3, 4]).tobytes()),
            CITY,
            binary("price", "FP64", [2], array("d", [9.5, 1]).tobytes()),
        ),
        COLUMNS,
    )
    text = v2.work(ask(*GOOD, binary("city", "BYTES", [2, 1], texts("Oslo", "Zürich"))), COLUMNS)
    records = [{"qty": 3, "price": 9.5, "city": "Oslo"}, {"qty": 4, "price": 1.0, "city": "Zürich"}]
    same = COLUMNS.read(json.dumps({"dataframe_records": records}).encode(), "json")
    assert blocks(plain) == blocks(packed) == blocks(text) == blocks(same)
    assert plain.rows == 2


def test_a_matrix_is_rows_of_the_columns_in_order() -> None:
    work = v2.work(ask(tensor("x", "FP32", [2, 3], [[1, 2, 3], [4, 5, 6]])), NUMBERS)
    assert blocks(work) == [("f8", ("a", "b", "c"), array("d", [1, 2, 3, 4, 5, 6]).tobytes())]


def test_the_value_decides_whether_another_datatype_fits() -> None:
    price, city = tensor("price", "INT32", [1], [2]), tensor("city", "BYTES", [1], ["a"])
    work = v2.work(ask(tensor("qty", "FP64", [1], [3.0]), price, city), COLUMNS)
    assert {code: raw for code, _, raw in blocks(work)}["i8"] == array("q", [3]).tobytes()
    with pytest.raises(RefusedError, match="column `qty`, row 0: not a whole number"):
        v2.work(ask(tensor("qty", "FP64", [1], [2.7]), price, city), COLUMNS)


def test_a_tensor_of_the_signature_s_own_type_is_passed_on_as_it_lies() -> None:
    raw = array("f", [1, 2, float("nan"), 4]).tobytes()
    work = v2.work(ask(binary("any", "FP32", [2, 2], raw)), TENSOR)
    assert (work.layout.form, blocks(work)) == (Form.TENSORS, [("f4", (None,), raw)])


def test_parameters_are_the_model_s_and_the_protocol_s_own_are_not() -> None:
    work = v2.work(ask(*GOOD, CITY, parameters={"k": 2, "binary_data_output": True}), COLUMNS)
    assert work.params == {"k": 2}
    with pytest.raises(RefusedError, match="no parameter `kk`; it takes `k`"):
        v2.work(ask(*GOOD, CITY, parameters={"kk": 2}), COLUMNS)


def test_a_model_without_a_signature_gets_the_values_as_inputs() -> None:
    work = v2.work(ask(tensor("x", "INT64", [2, 2], [1, 2, 3, 4])), Plan(Signature()))
    assert json.loads(bytes(work.buffers[0])) == {"inputs": [[1, 2], [3, 4]]}


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "not JSON"),
        (b"[]", "`inputs`, a list of tensors"),
        (b'{"inputs": []}', "`inputs`, a list of tensors"),
        (b'{"inputs": [1]}', "every input must be an object with a `name`"),
        (b'{"inputs": [{"name": "x", "datatype": "FP128", "shape": [1]}]}', "tensor `x`: `datatype` must be one of"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]}', "tensor `x`: `shape` must be"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [true]}]}', "tensor `x`: `shape` must be"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}', "tensor `x`: `data` must be a list"),
        (
            b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1]}]}',
            "it has 1 values, its shape is",
        ),
        (b'{"inputs": [{"name": "x", "datatype": "INT8", "shape": [1], "data": [128]}]}', "out of the range of int8"),
        (b'{"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": [1]}]}', "must be a string"),
        (b'{"id": 1, "inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}', "`id` must be"),
        (b'{"outputs": [1], "inputs": [{"name": "x", "datatype": "FP32", "shape": [0], "data": []}]}', "`outputs`"),
    ],
)
def test_a_request_that_is_none_is_refused_by_name(body: bytes, why: str) -> None:
    with pytest.raises(RefusedError, match=why.replace("[", r"\[")) as caught:
        v2.parse(body, None, orjson.loads)
    assert caught.value.status == 400


@pytest.mark.case("runtimes-A27")
def test_bytes_that_are_not_utf_8_are_refused_naming_the_tensor() -> None:
    with pytest.raises(RefusedError, match="tensor `city`: value 1 is not UTF-8") as caught:
        ask(binary("city", "BYTES", [2], texts("a", b"\xff")))
    assert caught.value.field == "city"


@pytest.mark.parametrize(
    ("given_tensor", "why"),
    [
        (binary("x", "FP32", [2], bytes(4)), "4 bytes do not hold the values of shape"),
        (binary("x", "BOOL", [2], b"\0\2"), "every value must be a boolean"),
        (binary("x", "BYTES", [1], b"\5\0\0\0a"), "its bytes end inside a value"),
        (binary("x", "BYTES", [1], b"\5"), "its bytes end inside a value"),
        (binary("x", "BYTES", [2], texts("a")), "it has 1 values, its shape is"),
    ],
)
def test_bytes_that_are_not_the_tensor_are_refused(given_tensor: tuple[dict[str, Any], bytes], why: str) -> None:
    with pytest.raises(RefusedError, match=f"tensor `x`: {why}"):
        ask(given_tensor)


def test_bytes_of_no_tensor_and_more_than_there_are_are_refused() -> None:
    head = json.dumps({"inputs": [tensor("x", "INT8", [1], [1])]}).encode()
    with pytest.raises(RefusedError, match="3 bytes of the body belong to no tensor"):
        v2.parse(head + b"abc", len(head), orjson.loads)
    head = json.dumps({"inputs": [tensor("x", "INT8", [1], parameters={"binary_data_size": 2})]}).encode()
    with pytest.raises(RefusedError, match="more than the body holds"):
        v2.parse(head + b"a", len(head), orjson.loads)


@pytest.mark.case("runtimes-B10")
def test_wrong_shapes_and_names_are_refused_with_what_is_right() -> None:
    with pytest.raises(RefusedError, match=r"its shape is \[1, 3\], the model takes \[-1, 2\]"):
        v2.work(ask(tensor("x", "FP32", [1, 3], [1, 2, 3])), TENSOR)
    with pytest.raises(RefusedError, match="column `city` is missing"):
        v2.work(ask(*GOOD), COLUMNS)
    with pytest.raises(RefusedError, match="tensor `qty`: it is there twice"):
        ask(GOOD[0], GOOD[0])
    with pytest.raises(RefusedError, match=r"different numbers of rows: \[1, 2\]"):
        v2.work(ask(*GOOD, tensor("city", "BYTES", [1], ["a"])), COLUMNS)


values_of = {
    "BOOL": st.booleans(), "INT8": st.integers(-128, 127), "UINT64": st.integers(0, 2**64 - 1),
    "INT64": st.integers(-(2**63), 2**63 - 1), "FP64": st.floats(),
    "FP32": st.floats(width=32), "FP16": st.floats(width=16),
}  # fmt: skip
FORMATS = {"BOOL": "?", "INT8": "b", "UINT64": "Q", "INT64": "q", "FP32": "f", "FP64": "d", "FP16": "e"}


@given(st.data(), st.sampled_from(list(values_of)))
def test_values_survive_the_binary_extension(data: st.DataObject, datatype: str) -> None:
    values = data.draw(st.lists(values_of[datatype], max_size=5))
    raw = struct.pack(f"<{len(values)}{FORMATS[datatype]}", *values)
    head = json.dumps({"inputs": [tensor("x", datatype, [len(values)], parameters={"binary_data_size": len(raw)})]})
    (got,) = v2.parse(head.encode() + raw, len(head), orjson.loads).inputs
    assert struct.pack(f"<{len(values)}{FORMATS[datatype]}", *got.values()) == raw


@given(st.binary(max_size=120) | st.text(max_size=60).map(str.encode), st.integers(0, 120) | st.none())
def test_any_bytes_are_a_request_or_a_400(body: bytes, json_bytes: int | None) -> None:
    try:
        v2.parse(body, None if json_bytes is None else min(json_bytes, len(body)), orjson.loads)
    except RefusedError as refused:
        assert refused.status == 400


def test_every_datatype_of_the_protocol_has_a_type_here() -> None:
    assert set(DTYPES) == {*CODES, "BYTES"}


# Responses.

SCORES = Result([Array(None, "f8", (2, 2), array("d", [1, 2, float("nan"), 4]).tobytes())])


def answered(result: Result, **asked: Any) -> Reply:
    inputs = [tensor("x", "INT8", [1], [1])]
    request = v2.parse(json.dumps({"inputs": inputs, **asked}).encode(), None, orjson.loads)
    return v2_answer.reply(request, result, "iris", "7", [{"name": "scores", "type": "double"}])


@pytest.mark.case("runtimes-A21")
def test_a_result_is_one_named_tensor_with_null_for_what_is_not_finite() -> None:
    reply = answered(SCORES, id="mine")
    assert json.loads(reply.body) == {
        "model_name": "iris",
        "model_version": "7",
        "id": "mine",
        "outputs": [{"name": "scores", "datatype": "FP64", "shape": [2, 2], "data": [1.0, 2.0, None, 4.0]}],
    }
    assert reply.non_finite == 1


@pytest.mark.parametrize(
    "asked",
    [
        {"parameters": {"binary_data_output": True}},
        {"outputs": [{"name": "scores", "parameters": {"binary_data": True}}]},
    ],
)
def test_a_binary_output_stands_behind_the_json_with_its_length(asked: dict[str, Any]) -> None:
    reply = answered(SCORES, **asked)
    ((name, length),) = reply.headers
    head, tail = reply.body[: int(length)], reply.body[int(length) :]
    assert (name, reply.content_type) == (b"inference-header-content-length", b"application/octet-stream")
    assert json.loads(head)["outputs"][0]["parameters"] == {"binary_data_size": 32}
    assert struct.unpack("<4d", tail)[3] == 4.0


def test_only_the_requested_outputs_are_sent_and_unknown_ones_refused() -> None:
    label, score = array("q", [1]).tobytes(), array("d", [1]).tobytes()
    both = Result([Array("label", "i8", (1,), label), Array("p", "f8", (1,), score)])
    names = [output["name"] for output in json.loads(answered(both, outputs=[{"name": "p"}]).body)["outputs"]]
    assert names == ["p"]
    with pytest.raises(RefusedError, match="no output `q`; it has `label`, `p`"):
        answered(both, outputs=[{"name": "q"}])


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        (b'["a","b"]', [("scores", "BYTES", [2], ["a", "b"])]),
        (b"[1,2]", [("scores", "INT64", [2], [1, 2])]),
        (b"[1,2.5,null]", [("scores", "FP64", [3], [1.0, 2.5, None])]),
        (b"[true]", [("scores", "BOOL", [1], [True])]),
        (b'[{"a":1,"b":"x"},{"a":2,"b":"y"}]', [("a", "INT64", [2], [1, 2]), ("b", "BYTES", [2], ["x", "y"])]),
        (b'[[1,"a"]]', [("scores", "BYTES", [1], ['[1,"a"]'])]),
        (b"[18446744073709551616.0]", [("scores", "FP64", [1], [1.8446744073709552e19])]),
    ],
)
def test_what_has_no_array_form_becomes_tensors_as_far_as_it_can(text: bytes, outputs: list[Any]) -> None:
    got = json.loads(answered(Result(text=text)).body)["outputs"]
    assert [(one["name"], one["datatype"], one["shape"], one["data"]) for one in got] == outputs


@pytest.mark.case("runtimes-A27")
def test_text_round_trips_through_the_binary_extension() -> None:
    reply = answered(Result(text='["Zürich",""]'.encode()), parameters={"binary_data_output": True})
    assert reply.body.endswith(texts("Zürich", ""))
