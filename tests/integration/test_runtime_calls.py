"""Requests that share calls of a real model: each gets its own answer, and a model that looks at rows together none."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import JSON, Answer, Connection, Runtime, models, serve, until

pytestmark = pytest.mark.process

NAMES = ["sl", "sw", "pl", "pw"]
ROW: dict[str, Any] = {
    "qty": 3, "price": 9.5, "ratio": 0.25, "city": "Oslo", "member": False, "seen": "2024-03-01", "score": 0.5
}  # fmt: skip
CALLS, REQUESTS = "knobless_runtime_call_requests_count", "knobless_runtime_call_requests_sum"


@pytest.fixture(scope="module")
def acts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("acts", tmp_path_factory.mktemp("acts"), "--predictors", "1", "--deadline-s", "30") as runtime:
        yield runtime.wait_ready()


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("scores", tmp_path_factory.mktemp("scores"), "--predictors", "2") as runtime:
        yield runtime.wait_ready()


def split(rows: list[list[float]]) -> bytes:
    return json.dumps({"dataframe_split": {"columns": NAMES, "data": rows}}).encode()


async def ask(runtime: Runtime, body: bytes) -> Answer:
    async with Connection.open(runtime.port) as connection:
        return await connection.ask("POST", "/invocations", body, JSON)  # type: ignore[no-any-return]


async def together(runtime: Runtime, bodies: list[bytes]) -> list[Answer]:
    """The answers to requests that are all on their way before the first is sent off."""
    return await asyncio.gather(*(ask(runtime, body) for body in bodies))


async def while_busy(acts: Runtime, bodies: list[bytes]) -> list[Answer]:
    """The answers to requests that wait together until a slow one is over."""
    slow = asyncio.create_task(ask(acts, record(city="sleep:0.5")))
    await asyncio.to_thread(until, lambda: acts.metric("knobless_runtime_requests_in_flight") == 1, "the slow one")
    tasks = [asyncio.create_task(ask(acts, body)) for body in bodies]
    answers = await asyncio.gather(*tasks)
    assert (await slow).status == 200
    return answers


def record(params: Any = None, **changes: Any) -> bytes:
    return json.dumps({"dataframe_records": [ROW | changes], **({"params": params} if params else {})}).encode()


def iris() -> list[list[float]]:
    rows = json.loads((models() / "iris.json").read_text())["rows"]["data"]
    return [[value + step / 8 for value in row] for row in rows for step in range(10)]


def label(row: list[float]) -> int:
    return row.index(max(row))


@pytest.mark.case("runtimes-E3")
async def test_each_of_many_requests_at_once_gets_its_own_rows(scores: Runtime) -> None:
    rows = iris()
    alone = [scores.ask("POST", "/invocations", split([row]), JSON).json["predictions"][0] for row in rows]
    sizes = [1, 2, 3, 1]
    requests = [list(range(at, min(at + sizes[at % 4], len(rows)))) for at in range(len(rows))]
    before = scores.metric(CALLS), scores.metric(REQUESTS)
    answers = await together(scores, [split([rows[at] for at in own]) for own in requests])
    for own, answer in zip(requests, answers, strict=True):
        assert answer.status == 200, answer.body
        expected = [pytest.approx(alone[at], rel=1e-9, abs=1e-15) for at in own]
        assert answer.json["predictions"] == expected
    calls, asked = scores.metric(CALLS) - before[0], scores.metric(REQUESTS) - before[1]
    assert asked == len(requests)
    assert calls < asked  # some of them did share a call


@pytest.mark.case("runtimes-E1")
async def test_requests_with_other_parameters_share_no_call(acts: Runtime) -> None:
    before = acts.metric(CALLS)
    answers = await while_busy(acts, [record({"k": number % 2}, city=f"c{number}") for number in range(8)])
    got = [
        (answer.json["predictions"][0]["params"]["k"], answer.json["predictions"][0]["seen"]["city"][1])
        for answer in answers
    ]
    assert got == [(number % 2, f"c{number}") for number in range(8)]
    assert acts.metric(CALLS) - before == 3  # the slow one, and one for each value of `k`


@pytest.mark.case("runtimes-E7")
async def test_of_a_call_that_fails_only_the_bad_request_is_a_500(acts: Runtime) -> None:
    cities = ["Oslo", "raise", "Rome", "Bern"]
    answers = await while_busy(acts, [record(city=city) for city in cities])
    assert [answer.status for answer in answers] == [200, 500, 200, 200]
    assert answers[2].json["predictions"][0]["seen"]["city"] == ["str", "Rome"]


@pytest.mark.case("runtimes-C20", "runtimes-E7")
async def test_of_a_call_that_ends_its_process_only_the_guilty_request_is_lost(acts: Runtime) -> None:
    answers = await while_busy(acts, [record(city=city) for city in ["Oslo", "die", "Rome"]])
    assert [answer.status for answer in answers] == [200, 500, 200]
    acts.wait_ready()


@pytest.mark.case("runtimes-E8")
async def test_a_client_that_leaves_takes_nothing_from_those_it_shared_a_call_with(acts: Runtime) -> None:
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(ask(acts, record(city="sleep:0.5")))
        await asyncio.to_thread(until, lambda: acts.metric("knobless_runtime_requests_in_flight") == 1, "the slow one")
        async with Connection.open(acts.port) as leaving:
            await leaving.send("POST", "/invocations", record(city="left"), JSON)
            stays = group.create_task(ask(acts, record(city="stays")))
            await asyncio.to_thread(until, lambda: acts.metric("knobless_runtime_requests_in_flight") == 3, "all three")
    assert slow.result().status == 200
    assert stays.result().json["predictions"][0]["seen"]["city"] == ["str", "stays"]


@pytest.mark.case("runtimes-E9")
async def test_a_model_that_looks_at_its_rows_together_never_gets_two_requests_at_once(tmp_path: Path) -> None:
    with serve("ranks", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        answers = await together(runtime, [split([[number, 1, 1, 1]]) for number in range(30)])
        assert [answer.json["predictions"] for answer in answers] == [[1.0]] * 30
        assert runtime.metric(CALLS) == runtime.metric(REQUESTS) == 30


@pytest.mark.case("runtimes-E2")
def test_a_lone_request_is_what_pyfunc_answers(scores: Runtime) -> None:
    before = scores.metric(CALLS), scores.metric(REQUESTS)
    answer = scores.ask("POST", "/invocations", split(iris()[:1]), JSON).json["predictions"]
    assert (scores.metric(CALLS) - before[0], scores.metric(REQUESTS) - before[1]) == (1, 1)
    assert len(answer) == 1
    assert sum(answer[0]) == pytest.approx(1)


@pytest.mark.case("runtimes-E5", "runtimes-E6")
def test_one_client_has_a_call_a_request_and_the_same_bytes_whether_requests_are_shared_or_not(
    scores: Runtime, tmp_path: Path
) -> None:
    model = shutil.copytree(models() / "scores", tmp_path / "model")
    for example in model.glob("*input_example.json"):
        example.unlink()  # on which it was shown that requests may share a call
    hundred = (iris() * 2)[:100]
    requests = [split(hundred), *(split([row]) for row in hundred[:20])]
    before = scores.metric(CALLS), scores.metric(REQUESTS)
    shared = [scores.ask("POST", "/invocations", body, JSON).body for body in requests]
    assert (scores.metric(CALLS) - before[0], scores.metric(REQUESTS) - before[1]) == (len(requests), len(requests))
    with serve(model, tmp_path / "run", "--predictors", "1") as alone:
        alone.wait_ready()
        assert "one request at a time" in " ".join(line["message"] for line in alone.log)
        assert [alone.ask("POST", "/invocations", body, JSON).body for body in requests] == shared
        assert alone.metric(CALLS) == len(requests)


async def test_a_table_of_mixed_columns_is_cut_by_rows_too(tmp_path: Path) -> None:
    with serve("table", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        answers = await together(runtime, [split([[number, number / 2, 0, 0]]) for number in range(20)])
        expected = [[{"twice": 2.0 * number, "text": str(number / 2)}] for number in range(20)]
        assert [answer.json["predictions"] for answer in answers] == expected


@pytest.mark.case("runtimes-F4")
def test_a_stored_number_of_jobs_is_overridden_inside_pipelines_and_searches(tmp_path: Path) -> None:
    with serve("forest", tmp_path, "--predictors", "2") as runtime:
        runtime.wait_ready()
        assert runtime.ask("POST", "/invocations", split(iris()[:2]), JSON).status == 200
        told = [line["message"] for line in runtime.log if "n_jobs is 1 in" in line["message"]]
        assert len(told) == 1  # the predictors are copies of one process


# What is large.


@pytest.mark.case("runtimes-A25")
def test_a_body_too_long_for_the_front_is_read_by_the_predictor_and_answered_alike(scores: Runtime) -> None:
    rows = iris()
    many = rows * (1_200_000 // len(split(rows)) + 1)
    assert len(split(many)) > 1_000_000
    once = scores.ask("POST", "/invocations", split(rows), JSON).json["predictions"]
    answer = scores.ask("POST", "/invocations", split(many), JSON).json["predictions"]
    assert len(answer) == len(many)
    assert [label(row) for row in answer[: len(rows)]] == [label(row) for row in once]
    refused = scores.ask("POST", "/invocations", split([*many, [1, 2, 3, "x"]]), JSON)  # type: ignore[list-item]
    assert refused.error["message"] == f"column `pw`, row {len(many)}: not a number"
