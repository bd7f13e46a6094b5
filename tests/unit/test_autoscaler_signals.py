"""Prometheus' answers -> signals of pods: what is not known stays unknown, whatever is said."""

from __future__ import annotations

import re
from dataclasses import asdict, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.autoscaler.signals import QUERIES, WINDOW_S, signals_of
from controllers.autoscaler.vertical.signals import Signals

POD = ("team-alpha", "wine-1234abcd-x")


def series(value: Any, pod: tuple[str, str] = POD) -> dict[str, Any]:
    return {"metric": {"namespace": pod[0], "pod": pod[1]}, "value": [1700000000.123, value]}


def test_each_answer_becomes_its_signal_of_each_pod() -> None:
    other = ("team-beta", "iris-0")
    answers = {"cpu": [series("0.5"), series("1.2", other)], "p95_ms": [series("180")]}
    assert signals_of(answers) == {POD: Signals(cpu=0.5, p95_ms=180.0), other: Signals(cpu=1.2)}


def test_there_is_one_question_for_each_signal() -> None:
    assert set(QUERIES) == {field.name for field in fields(Signals)}


@pytest.mark.case("autoscaler-A8")
@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-0.1", "2.1", "1e999", "", "many", None, 10**400, [], {}])
def test_a_share_that_is_no_share_is_unknown(value: Any) -> None:
    assert signals_of({"cpu": [series(value)]}) == {}


def test_a_measured_zero_is_a_zero() -> None:
    assert signals_of({"cpu": [series("0")]})[POD] == Signals(cpu=0.0)


@pytest.mark.parametrize("signal", ["p50_ms", "p95_ms", "waiting", "self_test_ms"])
def test_times_and_counts_may_be_large(signal: str) -> None:
    assert asdict(signals_of({signal: [series("90000")]})[POD])[signal] == 90000


def test_one_unknown_signal_takes_no_other_with_it() -> None:
    answers = {"cpu": None, "memory": [series("NaN")], "io_wait": [], "waiting": [series("3")]}
    assert signals_of(answers) == {POD: Signals(waiting=3.0)}


@pytest.mark.parametrize(
    "broken",
    [None, 7, "series", [], {}, {"metric": {}}, {"metric": [], "value": [1, "1"]}, {"metric": None, "value": None}],
)
def test_a_series_that_can_not_be_read_is_passed_over(broken: Any) -> None:
    assert signals_of({"cpu": [broken, series("0.5")]}) == {POD: Signals(cpu=0.5)}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
metrics = st.fixed_dictionaries({"metric": json_values, "value": json_values})


@given(st.lists(json_values | metrics | json_values.map(series), max_size=4))
def test_whatever_is_answered_signals_are_finite_and_not_negative(answer: list[Any]) -> None:
    for signals in signals_of({"memory": answer}).values():
        assert signals.memory is None or 0 <= signals.memory <= 2


@pytest.mark.case("autoscaler-A6")
@pytest.mark.parametrize("signal", sorted(QUERIES))
def test_no_question_takes_a_sample_older_than_the_window(signal: str) -> None:
    """A metric without a range would be the last one that Prometheus has, up to five minutes old."""
    selectors = re.findall(r"\w[\w:]*\{[^}]*\}(\[\w+\])?", QUERIES[signal])
    assert selectors
    assert set(selectors) == {f"[{WINDOW_S}s]"}


@pytest.mark.parametrize("signal", sorted(QUERIES))
def test_every_question_is_about_all_pods_of_all_teams_at_once(signal: str) -> None:
    of_nodes = re.compile(r"node_\w+\{[^}]*\}")
    asked = re.findall(r"\{([^}]*)\}", of_nodes.sub("", QUERIES[signal]))
    assert asked
    assert all('namespace=~"team-.+"' in selector for selector in asked)
    assert "by (namespace, pod" in QUERIES[signal]
