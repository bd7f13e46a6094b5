"""Requests that share a call: who may, how they are joined, and that each gets its own part back."""

from __future__ import annotations

import asyncio
import copy
import json
from array import array
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.mlflow import batch
from runtimes.mlflow.answers import Array, Result, encode_mlflow, split
from runtimes.mlflow.batch import Job
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.frames import Frame, Kind
from runtimes.mlflow.line import Line, LineFullError
from runtimes.mlflow.plan import Plan, Work
from runtimes.mlflow.signature import parse_signature
from runtimes.mlflow.values import unpack

PLAN = Plan(
    parse_signature(
        [{"type": "double", "name": "x"}, {"type": "string", "name": "s"}], [{"name": "k", "type": "long"}]
    ),
    loads=orjson.loads,
)
USUAL = PLAN.tables.layout if PLAN.tables else None


def work(*rows: tuple[float | None, str | None], **beside: Any) -> Work:
    document = {"dataframe_records": [{"x": x, "s": s} for x, s in rows], **beside}
    return PLAN.read(json.dumps(document).encode(), "json")


def job(*rows: tuple[float | None, str | None], alone: bool = False, as_text: bool = True, **beside: Any) -> Job:
    loop = asyncio.new_event_loop()
    try:
        return Job(work(*rows, **beside), f"r{rows[0][1]}", as_text, loop.create_future(), alone)
    finally:
        loop.close()


# Who may share.


@pytest.mark.case("runtimes-E1")
def test_equal_parameters_and_layouts_share_and_others_do_not() -> None:
    plain, same = job((1, "a")), job((2, "b"), (3, "c"))
    assert plain.like(same)
    assert job((1, "a"), params={"k": 1}).like(job((2, "b"), params={"k": 1}))
    for other in (
        job((2, "b"), params={"k": 2}),
        job((2, "b"), alone=True),
        job((2, "b"), as_text=False),
        job(*[(1.0, "x")] * (batch.LARGEST_SHARED_ROWS + 1)),
    ):
        assert not plain.like(other)


@pytest.mark.parametrize(("one", "other"), [(True, 1), (1, 1.0), (0.0, -0.0), ({"deep": [1]}, {"deep": [True]})])
def test_parameters_that_python_calls_equal_and_a_model_does_not_are_not_shared(one: Any, other: Any) -> None:
    """As those are that only MLflow itself checks: objects, and a zero's sign."""
    first, second = job((1, "a")), job((2, "b"))
    first.work.params, second.work.params = {"k": one}, {"k": other}
    assert not first.like(second)
    second.work.params = {"k": copy.deepcopy(one)}
    assert first.like(second)


def test_a_request_with_labels_of_its_rows_shares_with_nobody() -> None:
    split_body = {"dataframe_split": {"columns": ["x", "s"], "data": [[1, "a"]], "index": [3]}}
    assert PLAN.read(json.dumps(split_body).encode(), "json").alone


# Joining and splitting.

rows_of = st.lists(st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.text()), min_size=1, max_size=4)


@pytest.mark.case("runtimes-E3")
@given(st.lists(rows_of, min_size=1, max_size=5))
def test_joined_blocks_are_the_blocks_of_all_rows_together(requests: list[list[tuple[float, str]]]) -> None:
    jobs = [job(*rows) for rows in requests]
    head, buffers = batch.call(jobs, USUAL)
    together = work(*[row for rows in requests for row in rows])
    numbers, texts = together.buffers
    assert bytes(buffers[0]) == bytes(numbers)
    assert json.loads(bytes(buffers[1])) == json.loads(bytes(texts))
    assert head["rows"] == [len(rows) for rows in requests]
    assert head["sizes"] == [len(buffer) for buffer in buffers]
    assert "layout" not in head


@pytest.mark.case("runtimes-E3")
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 3))
def test_each_request_gets_its_own_rows_of_every_array(rows: list[int], width: int) -> None:
    total = sum(rows)
    labels, scores = array("q", range(total)), array("d", [float(n) for n in range(total * width)])
    described = [["label", "i8", [total]], ["score", "f8", [total, width]]]
    results = split({"arrays": described, "records": False}, labels.tobytes() + scores.tobytes(), rows)
    got = [[unpack(part.code, part.buffer) for part in result.arrays or []] for result in results]
    assert [value for part, _ in got for value in part] == labels.tolist()
    assert [value for _, part in got for value in part] == scores.tolist()
    assert [[part.shape for part in result.arrays or []] for result in results] == [[(n,), (n, width)] for n in rows]


def test_texts_are_cut_by_their_lengths() -> None:
    head = {"texts": [3, 5], "non_finite": [0, 2]}
    results = split(head, b'[1]["a"]', [1, 1])
    assert [(result.text, result.non_finite) for result in results] == [(b"[1]", 0), (b'["a"]', 2)]


def frame(kind: Kind, head: dict[str, Any], body: bytes = b"") -> Frame:
    return Frame(kind, 1, head, body)


@pytest.mark.case("runtimes-E7")
def test_a_shared_call_that_fails_is_run_again_one_by_one_without_those_who_left() -> None:
    jobs = [job((1, "a")), job((2, "b")), job((3, "c"))]
    jobs[1].future.cancel()
    again = batch.settle(jobs, frame(Kind.REFUSAL, {"status": 500, "message": "no"}))
    assert again == [jobs[0], jobs[2]]
    assert not jobs[0].future.done()


async def test_a_lone_call_that_fails_is_the_request_s_own_error() -> None:
    lone = Job(work((1, "a")), "r", True, asyncio.get_running_loop().create_future())
    assert batch.settle([lone], frame(Kind.REFUSAL, {"status": 500, "message": "no"})) == []
    with pytest.raises(RefusedError, match="no"):
        await lone.future


@pytest.mark.case("runtimes-E8")
async def test_who_left_takes_nothing_from_the_others() -> None:
    loop = asyncio.get_running_loop()
    jobs = [Job(work((n, "a")), "r", True, loop.create_future()) for n in range(3)]
    jobs[0].future.cancel()
    body = array("q", [7, 8, 9]).tobytes()
    batch.settle(jobs, frame(Kind.ANSWER, {"arrays": [[None, "i8", [3]]], "records": False}, body))
    assert [encode_mlflow(await one.future)[0] for one in jobs[1:]] == [b'{"predictions":[8]}', b'{"predictions":[9]}']


# The line.


class Person:
    """Somebody of a kind, who takes so many rows."""

    def __init__(self, kind: str, rows: int = 1) -> None:
        self.kind = kind
        self.rows = rows

    def like(self, other: Person, /) -> bool:
        return self.kind == other.kind


def test_the_first_goes_with_all_who_are_like_it_and_the_rest_keep_their_order() -> None:
    line: Line[Person] = Line(10)
    a1, b1, a2, b2, c1 = people = [Person(kind) for kind in "ababc"]
    for person in people:
        line.join(person)
    assert [line.take(9), line.take(9), line.take(9), line.take(9)] == [[a1, a2], [b1, b2], [c1], []]


def test_no_more_rows_go_together_than_a_call_takes() -> None:
    line: Line[Person] = Line(10)
    people = [Person("a", 3), Person("a", 3), Person("a", 1), Person("a", 9)]
    for person in people:
        line.join(person)
    assert [line.take(4), line.take(4), line.take(4)] == [[people[0], people[2]], [people[1]], [people[3]]]


def test_who_runs_again_stands_in_front_and_a_full_line_takes_nobody() -> None:
    line: Line[Person] = Line(2)
    waiting, again1, again2 = Person("w"), Person("x"), Person("y")
    line.join(waiting)
    line.rejoin([again1, again2])
    with pytest.raises(LineFullError):
        line.join(Person("z"))
    assert [line.take(9), line.take(9), line.take(9)] == [[again1], [again2], [waiting]]


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "take"]), st.integers(0, 5)), max_size=40))
def test_who_leaves_is_never_taken_and_nobody_is_taken_twice(steps: list[tuple[str, int]]) -> None:
    people = [Person(str(number)) for number in range(6)]
    line: Line[Person] = Line(100)
    expected: list[Person] = []
    for step, which in steps:
        person = people[which]
        if step == "join" and person not in expected:
            line.join(person)
            expected.append(person)
        elif step == "leave":
            assert line.leave(person) is (person in expected)
            expected = [other for other in expected if other is not person]
        elif step == "take":
            assert line.take(9) == ([expected.pop(0)] if expected else [])
        assert len(line) == len(expected)


# MLflow's answer.


def numbers(code: str, typecode: str, values: list[Any], *shape: int, name: str | None = None) -> Array:
    return Array(name, code, shape or (len(values),), array(typecode, values).tobytes())


@pytest.mark.parametrize(
    ("result", "predictions"),
    [
        (Result([numbers("i8", "q", [1, 2])]), [1, 2]),
        (Result([numbers("f4", "f", [0.1])]), [0.10000000149011612]),
        (Result([numbers("f8", "d", [1, 2, 3, 4], 2, 2)]), [[1.0, 2.0], [3.0, 4.0]]),
        (Result([numbers("f8", "d", [], 0, 3)]), []),
        (Result([numbers("f8", "d", [], 2, 0)]), [[], []]),
        (Result([numbers("f8", "d", [5.0], 1, 1, 1)]), [[[5.0]]]),
        (Result([Array(None, "b1", (2,), b"\0\1")]), [False, True]),
        (Result([Array(None, "f8", (), array("d", [2.5]).tobytes())]), 2.5),
        (
            Result([numbers("i8", "q", [1, 2], name="a"), numbers("f8", "d", [0.5, 1.5], name="b")], records=True),
            [{"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}],
        ),
        (Result([numbers("i8", "q", [1, 2], name="a")]), {"a": [1, 2]}),
        (Result(text=b'["x"]'), ["x"]),
    ],
)
def test_an_answer_has_the_shape_that_mlflow_s_server_gives(result: Result, predictions: Any) -> None:
    body, non_finite = encode_mlflow(result)
    assert (json.loads(body), non_finite) == ({"predictions": predictions}, 0)


@pytest.mark.case("runtimes-A21")
def test_what_is_not_finite_leaves_as_null_and_is_counted() -> None:
    result = Result([numbers("f8", "d", [float("nan"), float("inf"), -float("inf"), 1.0])])
    assert encode_mlflow(result) == (b'{"predictions":[null,null,null,1.0]}', 3)


def test_a_chat_answer_is_not_wrapped() -> None:
    assert encode_mlflow(Result(text=b'{"choices":[]}', bare=True)) == (b'{"choices":[]}', 0)
