"""What Triton is asked before it is ready, and its errors in our words."""

from __future__ import annotations

import orjson
import pytest

from runtimes.interface.errors import MODEL_FAILED
from runtimes.triton import questions
from runtimes.triton.refusals import reworded
from runtimes.triton.tensors import Tensor, Tensors

X = Tensor("x", "FP32", (-1, 4))
ROWS = Tensors((X,), (Tensor("label", "INT64", (-1,)),))
CANARY = "card 4242"


def answer(**outputs: list[object]) -> bytes:
    return orjson.dumps({"outputs": [{"name": name, "data": data} for name, data in outputs.items()]})


# Questions.


def test_a_model_s_own_example_is_what_it_is_asked() -> None:
    rows = questions.from_example(b'{"inputs": {"x": [[1, 2, 3, 4], [5, 6, 7, 8]]}}', ROWS)
    assert rows is not None
    asked = orjson.loads(questions.question(ROWS, rows))
    assert asked == {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4], "data": [1, 2, 3, 4, 5, 6, 7, 8]}]}


def test_an_example_without_names_is_the_only_tensor_s() -> None:
    assert questions.from_example(b'{"inputs": [[1, 2, 3, 4]]}', ROWS) == {"x": [[1, 2, 3, 4]]}


@pytest.mark.parametrize("text", [b"{", b'{"dataframe_split": {}}', b'{"inputs": {"y": [1]}}', b"[]"])
def test_an_example_that_does_not_fit_is_none(text: bytes) -> None:
    assert questions.from_example(text, ROWS) is None


def test_without_an_example_a_model_is_asked_zeros_and_ones() -> None:
    tensors = Tensors(
        (X, Tensor("said", "BYTES", (-1, -1)), Tensor("flag", "BOOL", (-1,)), Tensor("k", "INT32", (2,))), ()
    )
    asked = {
        one["name"]: one for one in orjson.loads(questions.question(tensors, questions.made_up(tensors)))["inputs"]
    }
    assert (asked["x"]["shape"], asked["x"]["data"]) == ([2, 4], [0, 0, 0, 0, 1, 1, 1, 1])
    assert (asked["said"]["shape"], asked["said"]["data"]) == ([2, 1], ["0", "1"])
    assert (asked["flag"]["shape"], asked["flag"]["data"]) == ([2, 1], [False, True])
    assert (asked["k"]["shape"], asked["k"]["data"]) == ([2], [1, 1])


@pytest.mark.case("runtimes-E9")
@pytest.mark.parametrize(
    ("row", "other"),
    [([1, 2, 3], [3, 2, 1]), ([5, 5], [0, 0]), (7, 0), (["ab"], [""]), ([[1, 2], [3, 4]], [[4, 3], [2, 1]])],
)
def test_two_rows_always_differ(row: object, other: object) -> None:
    assert questions.two_rows({"x": [row, row]}) == {"x": [row, other]}


@pytest.mark.case("runtimes-E9")
def test_a_model_answers_row_by_row_where_two_rows_have_the_answers_of_each() -> None:
    apart = [answer(y=[1.0, None], label=[3]), answer(y=[2.0, 4.0], label=[5])]
    assert questions.row_by_row(answer(y=[1.0, None, 2.0001, 4.0], label=[3, 5]), apart)
    assert not questions.row_by_row(answer(y=[1.0, None, 2.5, 4.0], label=[3, 5]), apart)
    assert not questions.row_by_row(answer(y=[1.0, None], label=[3, 5]), apart)
    assert not questions.row_by_row(answer(y=[1.0, None, 2.0, 4.0], label=[3, 6]), apart)


# Errors.


@pytest.mark.case("runtimes-B10")
def test_a_wrong_shape_is_told_with_both_shapes_and_the_tensor_s_name() -> None:
    said = "[request id: a] unexpected shape for input 'x' for model 'line'. Expected [-1,4], got [1,3]"
    request = orjson.dumps({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}]})
    error = reworded(400, orjson.dumps({"error": said}), request, "line")
    assert (error.status, error.message) == (400, said.removeprefix("[request id: a] "))


@pytest.mark.case("runtimes-B1")
def test_what_is_in_a_tensor_is_never_told() -> None:
    request = orjson.dumps({"inputs": [{"name": "said", "data": [["ok", CANARY]]}]})
    error = reworded(400, orjson.dumps({"error": f"can't parse {CANARY} of 'said'"}), request, "text")
    assert error.message == "can't parse ... of 'said'"


@pytest.mark.case("runtimes-B10")
@pytest.mark.parametrize(
    "said", ["Request for unknown model: 'x' is not found", "Request for unknown model: 'x' version 9 is not found"]
)
def test_an_unknown_model_or_version_is_404(said: str) -> None:
    error = reworded(400, orjson.dumps({"error": said}), b"{}", "line")
    assert (error.status, error.field) == (404, "model")


@pytest.mark.case("runtimes-B4")
@pytest.mark.parametrize(("status", "said"), [(500, "CUDA at /opt/x.py"), (400, "the model failed on this request")])
def test_what_a_failing_model_says_stays_inside(status: int, said: str) -> None:
    error = reworded(status, orjson.dumps({"error": said}), b"{}", "line")
    assert (error.status, error.message) == (500, MODEL_FAILED)
