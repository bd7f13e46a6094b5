"""What Triton is asked, before it is ready and for clients, and what becomes of its answers."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial

import orjson
import pytest

from runtimes.interface.engine import Forwarded
from runtimes.mlflow.answers import Array
from runtimes.mlflow.plan import Plan
from runtimes.protocols.v2_answer import Output
from runtimes.triton import infer, questions
from runtimes.triton.running import Running
from runtimes.triton.tensors import Tensor, Tensors, UnservableError

X = Tensor("x", "FP32", (-1, 4))
SAID = Tensor("said", "BYTES", (-1,))
LABEL = Tensor("label", "INT64", (-1,))
HEARD = Tensor("heard", "BYTES", (-1, 1))
ROWS = Tensors((X,), (LABEL, HEARD))


def floats(name: str, *values: float) -> Output:
    packed = struct.pack(f"<{len(values)}f", *values)
    return Output(name, "FP32", [len(values)], Array(name, "f4", (len(values),), packed))


# Questions.


def test_a_model_s_own_example_is_what_it_is_asked() -> None:
    example = b'{"inputs": {"x": [[1, 2, 3, 4], [5, 6, 7, 8]]}}'
    rows = questions.rows(example, ROWS)
    assert orjson.loads(questions.question(rows)) == orjson.loads(example)
    assert orjson.loads(questions.question(rows, slice(1, 2))) == {"inputs": {"x": [[5, 6, 7, 8]]}}


def test_an_example_without_names_is_the_only_tensor_s() -> None:
    assert questions.rows(b'{"inputs": [[1, 2, 3, 4]]}', ROWS) == {"x": [[1, 2, 3, 4]]}


@pytest.mark.parametrize("text", [None, b"{", b'{"dataframe_split": {}}', b'{"inputs": {"y": [1]}}', b"[]"])
def test_without_an_example_that_fits_a_model_is_asked_zeros_and_ones(text: bytes | None) -> None:
    assert questions.rows(text, ROWS) == {"x": [[0, 0, 0, 0], [1, 1, 1, 1]]}


def test_what_is_made_up_fits_every_type_and_shape() -> None:
    inputs = (Tensor("t", "BYTES", (-1, -1)), Tensor("flag", "BOOL", (-1,)), Tensor("k", "INT32", (2,)))
    tensors = Tensors(inputs, (LABEL,))
    rows = questions.rows(None, tensors)
    assert rows == {"t": [["0"], ["1"]], "flag": [False, True], "k": [1, 1]}
    assert Plan(tensors.signature).read(questions.question(rows), "json").rows == 2


@pytest.mark.case("runtimes-E9")
@pytest.mark.parametrize(
    ("row", "other"),
    [([1, 2, 3], [3, 2, 1]), ([5, 5], [0, 0]), (7, 0), (["ab"], [""]), ([[1, 2], [3, 4]], [[4, 3], [2, 1]])],
)
def test_two_rows_always_differ(row: object, other: object) -> None:
    assert questions.two_rows({"x": [row, row]}) == {"x": [row, other]}


@pytest.mark.case("runtimes-E9")
def test_a_model_answers_row_by_row_where_two_rows_have_the_answers_of_each() -> None:
    nan = float("nan")
    apart = [[floats("y", 1.0, nan)], [floats("y", 2.0, 4.0)]]
    assert questions.row_by_row([floats("y", 1.0, nan, 2.0001, 4.0)], apart)
    assert not questions.row_by_row([floats("y", 1.0, nan, 2.5, 4.0)], apart)
    assert not questions.row_by_row([floats("y", 1.0, 0.0, 2.0, 4.0)], apart)
    assert not questions.row_by_row([floats("y", 1.0, nan)], apart)


# A request, and its answer.


def test_triton_gets_checked_values_as_bytes_and_when_nobody_wants_the_answer() -> None:
    work = Plan(ROWS.signature, loads=orjson.loads).read(b'{"inputs": [[1, 2, 3, 4], [5, 6, 7, 8]]}', "json")
    body, json_bytes = infer.request(work, ["label"], 1500, rows=True)
    assert orjson.loads(body[:json_bytes]) == {
        "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": 32}}],
        "outputs": [{"name": "label", "parameters": {"binary_data": True}}],
        "parameters": {"timeout": 1500},
    }
    assert struct.unpack("<8f", body[json_bytes:]) == (1, 2, 3, 4, 5, 6, 7, 8)


def test_texts_go_with_their_lengths_and_one_value_a_row_is_a_row_of_one() -> None:
    work = Plan(Tensors((SAID,), (LABEL,)).signature).read('{"inputs": ["Zürich", ""]}'.encode(), "json")
    body, json_bytes = infer.request(work, [], -5, rows=True)
    head = orjson.loads(body[:json_bytes])
    assert (head["inputs"][0]["shape"], head["inputs"][0]["datatype"]) == ([2, 1], "BYTES")
    assert head["parameters"]["timeout"] == 1  # not 0, which would be none
    assert body[json_bytes:] == b"\7\0\0\0Z\xc3\xbcrich\0\0\0\0"
    fixed, json_bytes = infer.request(work, [], 1, rows=False)
    assert orjson.loads(fixed[:json_bytes])["inputs"][0]["shape"] == [2]


def answered() -> list[Output]:
    described = [
        {"name": "heard", "datatype": "BYTES", "shape": [2, 1], "parameters": {"binary_data_size": 9}},
        {"name": "label", "datatype": "INT64", "shape": [2, 1], "parameters": {"binary_data_size": 16}},
    ]
    head = orjson.dumps({"model_name": "m", "outputs": described})
    body = head + b"\1\0\0\0a\0\0\0\0" + struct.pack("<2q", 3, -1)
    return infer.outputs(Forwarded(200, [(infer.LENGTH, b"%d" % len(head))], body), ROWS.outputs)


def test_outputs_come_in_the_model_s_order_and_shapes() -> None:
    label, heard = answered()
    assert (label.name, label.shape, list(label.values())) == ("label", [2], [3, -1])
    assert (heard.name, heard.shape, heard.texts) == ("heard", [2, 1], ["a", ""])


@pytest.mark.case("runtimes-H8")
@pytest.mark.parametrize(
    ("name", "datatype", "raw"),
    [
        ("label", "INT64", b""),
        ("label", "INT64", bytes(17)),
        ("heard", "BYTES", b"\1\0\0\0a"),
        ("heard", "BYTES", b"\1\0\0\0a\1\0\0\0\xff"),
        ("heard", "BYTES", b"\1\0\0\0a\1\0"),
    ],
)
def test_a_tensor_without_the_values_that_its_shape_promises_is_no_answer(name: str, datatype: str, raw: bytes) -> None:
    described = {"name": name, "datatype": datatype, "shape": [2, 1], "parameters": {"binary_data_size": len(raw)}}
    head = orjson.dumps({"outputs": [described]})
    with pytest.raises(infer.BrokenAnswerError, match=f"the answer's tensor `{name}`: "):
        infer.outputs(Forwarded(200, [(infer.LENGTH, b"%d" % len(head))], head + raw), ROWS.outputs)


@pytest.mark.case("runtimes-A21")
def test_predictions_are_mlflow_s_with_null_for_what_is_not_finite() -> None:
    body, count = infer.predictions(answered(), bare=False)
    assert (orjson.loads(body), count) == ({"predictions": {"label": [3, -1], "heard": [["a"], [""]]}}, 0)
    body, count = infer.predictions([floats("y", float("nan"), float("inf"), 1.0)], bare=True)
    assert (orjson.loads(body), count) == ({"predictions": [None, None, 1.0]}, 2)


@pytest.mark.parametrize("tensor", [Tensor("x", "BF16", (-1,)), Tensor("x", "FP32", ())])
def test_a_tensor_that_no_protocol_has_a_form_for_is_refused_at_load(tensor: Tensor) -> None:
    with pytest.raises(UnservableError, match="`x`"):
        Tensors((tensor,), (LABEL,)).check()


# Places.


@pytest.mark.case("runtimes-D1", "runtimes-D5")
async def test_a_request_given_up_while_it_waits_never_starts_and_a_running_one_keeps_its_place() -> None:
    running, started = Running(1, 1), []
    over: list[Callable[[], None]] = []

    async def ask(name: str, done: Callable[[], None]) -> None:
        started.append(name)
        over.append(done)
        await asyncio.Event().wait()

    first, waits = (asyncio.create_task(running.run(partial(ask, name))) for name in ("first", "waits"))
    for _ in range(5):
        await asyncio.sleep(0)
    waits.cancel()
    first.cancel()
    await asyncio.wait([first, waits])
    last = asyncio.create_task(running.run(partial(ask, "last")))
    for _ in range(5):
        await asyncio.sleep(0)
    assert started == ["first"]  # nobody waits for it, and Triton still works on it
    over.pop()()
    for _ in range(5):
        await asyncio.sleep(0)
    assert started == ["first", "last"]
    last.cancel()


@pytest.mark.case("runtimes-D1")
async def test_all_instances_are_stuck_once_each_runs_one_request_for_too_long() -> None:
    running = Running(4, 2)
    assert not running.stuck(0)
    tasks = [asyncio.create_task(running.run(lambda over: asyncio.Event().wait())) for _ in range(2)]
    await asyncio.sleep(0)
    assert [running.stuck(-1), running.stuck(60)] == [True, False]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert running.stuck(-1)


async def test_what_a_question_raises_its_caller_gets_and_the_place_is_free() -> None:
    running = Running(1, 1)

    async def fails(over: Callable[[], None]) -> None:
        over()
        raise LookupError("inside")

    for _ in range(2):
        with pytest.raises(LookupError, match="inside"):
            await running.run(fails)
