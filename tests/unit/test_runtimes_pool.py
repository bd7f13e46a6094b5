"""Who runs with whom, and when: on an event loop that never turns, so that no timer can have had a part in it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.interface import metrics as interface
from runtimes.mlflow.answers import encode_mlflow
from runtimes.mlflow.batch import Job
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.fleet import Fleet
from runtimes.mlflow.frames import Frame, Kind
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.pieces import Done, Pieces
from runtimes.mlflow.plan import Plan
from runtimes.mlflow.pool import Pool
from runtimes.mlflow.signature import parse_signature

PLAN = Plan(parse_signature([{"type": "double", "name": "x"}], None), loads=orjson.loads)


class Answering:
    """A predictor that is told when to answer: each request with its own id."""

    stuck, slots = 0, 1

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.told: list[int | None] = []
        self._running: tuple[list[str], Done] | None = None

    @property
    def running(self) -> int:
        return int(self._running is not None)

    @property
    def free(self) -> int:
        return 1 - self.running

    def send(self, head: dict[str, Any], buffers: object, done: Done) -> None:
        assert self.free
        self.calls.append(head["ids"])
        self._running = head["ids"], done

    def stream(self, head: dict[str, Any], buffers: object, done: Done) -> Pieces:
        self.send(head, buffers, done)
        pieces = Pieces()
        pieces.told = self.told.append
        return pieces

    def answer(self) -> None:
        assert self._running is not None
        (ids, done), self._running = self._running, None
        texts = [f'["{each}"]'.encode() for each in ids]
        head = {"texts": list(map(len, texts)), "non_finite": [0] * len(ids)}
        done(Frame(Kind.ANSWER, 1, head, b"".join(texts)))


def pool_of(predictor: Answering) -> Pool:
    """A pool of a row-wise model with one predictor."""
    fleet = SimpleNamespace()
    pool = Pool(cast(Fleet, fleet), 60.0, 1000, Metrics(interface.Metrics("wine", "7")))
    pool.shares = True
    fleet.on_ready(predictor)
    return pool


def ask(pool: Pool, name: str) -> Job:
    return pool.submit(PLAN.read(b'{"dataframe_records": [{"x": 1}]}', "json"), name)


def answer(job: Job) -> bytes:
    return encode_mlflow(job.future.result())[0]


@pytest.mark.case("runtimes-E4")
async def test_a_lone_request_runs_at_once_and_all_that_wait_run_the_moment_the_call_before_is_over() -> None:
    predictor = Answering()
    pool = pool_of(predictor)
    first = ask(pool, "a")
    assert predictor.calls == [["a"]]
    others = [ask(pool, name) for name in "bcd"]
    assert predictor.calls == [["a"]]
    predictor.answer()
    assert predictor.calls == [["a"], ["b", "c", "d"]]
    predictor.answer()
    assert [answer(job) for job in (first, *others)] == [b'{"predictions":["%c"]}' % name for name in b"abcd"]


async def test_a_stream_that_begins_as_its_client_leaves_is_given_up_and_holds_no_predictor() -> None:
    """The future is done already, so a cancellation reaches only who waits for it."""
    predictor = Answering()
    pool = pool_of(predictor)
    ask(pool, "a")
    job = pool.submit(PLAN.read(b'{"dataframe_records": [{"x": 1}]}', "json"), "b", streamed=True)
    predictor.answer()
    assert (predictor.calls, predictor.told) == ([["a"], ["b"]], [])
    pool.abandon(job)
    assert predictor.told == [None]


@pytest.mark.parametrize("outcome", [None, RefusedError(500, "the model failed")])
async def test_who_leaves_as_the_answer_comes_leaves_nothing_behind(outcome: Exception | None) -> None:
    predictor = Answering()
    pool = pool_of(predictor)
    job = ask(pool, "a")
    if outcome is None:
        predictor.answer()
    else:
        job.future.set_exception(outcome)
    pool.abandon(job)
    assert job.future.done()


@pytest.mark.case("runtimes-E4")
@given(st.lists(st.booleans(), max_size=40))
def test_nobody_waits_for_a_predictor_that_is_free_and_each_gets_its_own_answer_once(arrives: list[bool]) -> None:
    async def scenario() -> None:
        predictor, jobs = Answering(), dict[str, Job]()
        pool = pool_of(predictor)
        for number, one_more in enumerate(arrives):
            if one_more:
                jobs[str(number)] = ask(pool, str(number))
            elif predictor.running:
                predictor.answer()
            waits = [job for job in jobs.values() if not job.future.done()]
            assert bool(waits) is bool(predictor.running)
        while predictor.running:
            predictor.answer()
        assert [name for call in predictor.calls for name in call] == list(jobs)
        assert [answer(job) for job in jobs.values()] == [f'{{"predictions":["{name}"]}}'.encode() for name in jobs]

    asyncio.run(scenario())
