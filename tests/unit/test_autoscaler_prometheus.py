"""Asking Prometheus: late, dead or broken it makes signals unknown, and stops nothing."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from controllers.autoscaler import prometheus
from controllers.autoscaler.prometheus import AGE_MAX_S, SignalReader, read
from controllers.autoscaler.signals import QUERIES
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from controllers.metrics import Metrics

POD = ("team-alpha", "wine-x")
SERIES = [{"metric": {"namespace": POD[0], "pod": POD[1]}, "value": [1.0, "0.5"]}]
ALL_KNOWN = Signals(**dict.fromkeys(QUERIES, 0.5))


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Counterpart:
    """A Prometheus that answers what it is told to; `asked` counts."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Any = SERIES

    def __call__(self, query: str) -> Any:
        self.asked += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


@pytest.fixture
def said() -> Counterpart:
    return Counterpart()


def value_of(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"knobless_autoscaler_{name}", labels)


async def test_what_prometheus_says_of_a_pod_is_known() -> None:
    metrics = Metrics()
    reader = SignalReader(Counterpart(), metrics)
    await reader.read_once()
    assert reader.of(*POD) == ALL_KNOWN
    assert reader.of("team-alpha", "another") == UNKNOWN
    assert value_of(metrics, "prometheus_up") == 1
    assert value_of(metrics, "pods_with_signal", signal="cpu") == 1


async def test_a_cycle_asks_once_a_signal_for_all_pods(said: Counterpart) -> None:
    await SignalReader(said, Metrics()).read_once()
    assert said.asked == len(QUERIES)


async def test_without_a_prometheus_everything_is_unknown() -> None:
    reader = SignalReader(None, Metrics())
    await reader.read_once()
    assert reader.of(*POD) == UNKNOWN


@pytest.mark.case("autoscaler-A3")
@pytest.mark.parametrize("answer", [OSError("refused"), ValueError("no JSON"), KeyError("data"), "text", None, {}])
async def test_a_dead_or_broken_prometheus_is_unknown_and_says_so_once(
    said: Counterpart, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    said.answer, metrics = answer, Metrics()
    reader = SignalReader(said, metrics)
    with caplog.at_level(logging.INFO):
        await reader.read_once()
        await reader.read_once()
    assert reader.of(*POD) == UNKNOWN
    assert value_of(metrics, "prometheus_up") == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_what_was_known_outlives_a_failure_until_it_is_too_old(said: Counterpart) -> None:
    clock = Clock()
    reader = SignalReader(said, Metrics(), clock)
    await reader.read_once()
    said.answer = OSError("refused")
    clock.now_s += AGE_MAX_S
    await reader.read_once()
    assert reader.of(*POD) == ALL_KNOWN
    clock.now_s += 0.1
    assert reader.of(*POD) == UNKNOWN


async def test_a_prometheus_that_comes_back_is_known_again(said: Counterpart) -> None:
    reader = SignalReader(said, Metrics())
    said.answer = OSError("refused")
    await reader.read_once()
    said.answer = SERIES
    await reader.read_once()
    assert reader.of(*POD) == ALL_KNOWN


def test_no_question_is_begun_after_the_deadline(said: Counterpart) -> None:
    clock = Clock()

    def slow(query: str) -> Any:
        clock.now_s += 2.0
        return said(query)

    answers = read(slow, deadline_s=5.0, monotonic=clock)
    assert said.asked == 3
    assert [answer is not None for answer in answers.values()] == [True] * 3 + [False] * (len(QUERIES) - 3)


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


async def test_an_answer_that_never_comes_holds_nothing_up_and_no_second_thread_waits_for_it(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "DEADLINE_S", 0.02)
    monkeypatch.setattr(prometheus, "_QUERY_S", 0.02)
    asked: list[str] = []

    def hang(query: str) -> Any:
        asked.append(query)
        released.wait(10)
        return SERIES

    reader = SignalReader(hang, Metrics())
    began_s = time.monotonic()
    await reader.read_once()
    await reader.read_once()
    assert time.monotonic() - began_s < 1
    assert len(asked) == 1
    assert reader.of(*POD) == UNKNOWN


async def test_the_loop_runs_on_while_prometheus_is_asked() -> None:
    turns = 0
    done = threading.Event()

    def wait_for_the_loop(query: str) -> Any:
        done.wait(5)
        return SERIES

    reading = asyncio.create_task(SignalReader(wait_for_the_loop, Metrics()).read_once())
    while not reading.done():
        turns += 1
        if turns == 10:
            done.set()
        await asyncio.sleep(0)
    assert turns >= 10
