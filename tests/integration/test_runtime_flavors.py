"""Deep, statistical and language flavors give what ``mlflow.pyfunc`` gives, on generated input.

Their environment has gigabytes, so they stand apart from `make test`: `make test-flavors`.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.runtime_process import Runtime
from tests.integration.runtime_reference import Reference, both, raw, same, way
from tests.runtime_lab import environments

pytestmark = [pytest.mark.process, pytest.mark.flavors, pytest.mark.timeout(600)]

Document = dict[str, Any]
generated = settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
singles = st.floats(-1000, 1000, width=32)
texts = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1, max_size=30)
UNCHECKED = "pyfunc without its own checks"


@functools.cache
def models(kind: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"knobless-{kind}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environments.run(environments.deep_flavors_python(), "deep_models.py", kind, folder)
    return folder


def compared(kind: str, name: str, folder: Path) -> AbstractContextManager[tuple[Runtime, Reference]]:
    return both(models(kind) / name, environments.deep_flavors_python(), folder)


def nested(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    strategy: st.SearchStrategy[Any] = singles
    for length in reversed(shape):
        strategy = st.lists(strategy, min_size=length, max_size=length)
    return strategy


def split(columns: list[str], row: st.SearchStrategy[Any], most: int = 8) -> st.SearchStrategy[Document]:
    rows = st.lists(row, min_size=1, max_size=most)
    return rows.map(lambda data: {"dataframe_split": {"columns": columns, "data": data}})


def answers_are_the_same(
    pair: tuple[Runtime, Reference], documents: st.SearchStrategy[Document], clean: Callable[[Any], Any] = lambda x: x
) -> None:
    """The bodies for each of the documents; what MLflow itself fails on (a text that is a JSON number) fails here."""
    runtime, reference = pair

    @generated
    @given(documents)
    def each(document: Document) -> None:
        expected = reference.ask(document)
        answer = runtime.post(document)
        assert (answer.status == 200) == ("body" in expected), (answer.body, expected)
        if answer.status == 200:
            assert same(clean(answer.json), clean(expected["body"]))

    each()


ROWS = (4,)
NETWORKS = {
    ("torch", "exported"): ROWS,
    ("torch", "images"): (1, 8, 8),
    ("keras", "tf-keras"): ROWS,
    ("keras", "keras"): ROWS,
    ("keras", "tf-module"): ROWS,
}


@pytest.mark.parametrize(("kind", "name"), list(NETWORKS))
def test_a_network_answers_as_pyfunc_to_the_last_bit(kind: str, name: str, tmp_path: Path) -> None:
    inner = NETWORKS[kind, name]
    with compared(kind, name, tmp_path) as (runtime, reference):
        assert way(runtime) == UNCHECKED

        @generated
        @given(st.lists(nested(inner), min_size=1, max_size=9))
        def each(rows: list[Any]) -> None:
            document = {"inputs": rows}
            expected = reference.ask(document)
            assert runtime.post(document).json == expected["body"]
            tensor = {"name": "input", "datatype": "FP32", "shape": [len(rows), *inner], "data": rows}
            assert raw(runtime, [tensor]) == expected["raw"]

        each()


def test_a_network_of_columns_answers_as_pyfunc(tmp_path: Path) -> None:
    row = st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4)
    with compared("torch", "table", tmp_path) as pair:
        assert way(pair[0]) == UNCHECKED
        answers_are_the_same(pair, split(["a", "b", "c", "d"], row))


# What each pipeline is asked, and which part of its answer no two runs share: ids and the time.
PIPELINES: dict[str, st.SearchStrategy[Document]] = {
    "generates": st.lists(texts, min_size=1, max_size=3).map(lambda said: {"inputs": said}),
    "classifies": st.lists(texts, min_size=1, max_size=4).map(lambda said: {"inputs": said}),
    "tags": st.lists(texts, min_size=1, max_size=4).map(lambda said: {"inputs": said}),
    "fills": st.lists(texts, min_size=1, max_size=4).map(lambda said: {"inputs": [f"{one} <mask>" for one in said]}),
    "features": texts.map(lambda said: {"inputs": [said]}),
    "sentences": st.lists(texts, min_size=1, max_size=6).map(lambda said: {"inputs": said}),
    "embeds": st.lists(texts, min_size=1, max_size=4).map(lambda said: {"input": said}),
    "chats": texts.map(lambda said: {"messages": [{"role": "user", "content": said}]}),
    "completes": texts.map(lambda said: {"prompt": said, "max_tokens": 3}),
}


@pytest.mark.parametrize("name", list(PIPELINES))
def test_a_pipeline_answers_a_text_as_pyfunc(name: str, tmp_path: Path) -> None:
    with compared("text", name, tmp_path) as pair:
        answers_are_the_same(pair, PIPELINES[name], unnamed)


def unnamed(answer: Any) -> Any:
    """An answer without its own id and time, which no two answers share."""
    if isinstance(answer, list):
        return [unnamed(one) for one in answer]
    return {key: value for key, value in answer.items() if key not in ("id", "created")}


RESULTS = {
    "ols": split(["x1", "x2", "x3"], st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3)),
    "poisson": split(["x1", "x2", "x3"], st.lists(st.floats(-9, 9), min_size=3, max_size=3)),
    "arima": split(["start", "end"], st.tuples(st.integers(0, 79), st.integers(80, 99)).map(list), most=1),
}


@pytest.mark.parametrize("name", list(RESULTS))
def test_a_result_of_statsmodels_answers_as_pyfunc(name: str, tmp_path: Path) -> None:
    with compared("forecasts", name, tmp_path) as pair:
        answers_are_the_same(pair, RESULTS[name])


days = st.dates(min_value=date(2023, 1, 1), max_value=date(2026, 1, 1)).map(lambda day: [day.isoformat()])


def test_a_forecast_answers_as_pyfunc(tmp_path: Path) -> None:
    with compared("forecasts", "prophet", tmp_path) as pair:
        answers_are_the_same(pair, split(["ds"], days))


def test_a_forecast_with_intervals_answers_as_pyfunc_but_for_what_it_draws(tmp_path: Path) -> None:
    """Prophet draws the bounds of trend and forecast from numpy's own chance, which no seed of a request reaches."""
    drawn = {f"{name}_{bound}" for name in ("yhat", "trend") for bound in ("lower", "upper")}

    def certain(answer: Any) -> Any:
        assert all(drawn <= set(row) for row in answer["predictions"])
        return [{name: value for name, value in row.items() if name not in drawn} for row in answer["predictions"]]

    with compared("forecasts", "prophet-intervals", tmp_path) as pair:
        answers_are_the_same(pair, split(["ds"], days), certain)


CHAINS: dict[str, st.SearchStrategy[Document]] = {
    "chain": texts.map(lambda said: {"inputs": {"topic": said}}) | split(["topic"], texts.map(lambda one: [one]), 3),
    "chain-texts": st.lists(texts, min_size=1, max_size=3).map(lambda said: {"inputs": said}),
    "chain-messages": st.lists(texts, min_size=1, max_size=3).map(
        lambda said: {"messages": [{"role": "user", "content": one} for one in said]}
    ),
}


@pytest.mark.parametrize("name", list(CHAINS))
def test_a_chain_answers_as_pyfunc(name: str, tmp_path: Path) -> None:
    with compared("chains", name, tmp_path) as pair:
        answers_are_the_same(pair, CHAINS[name], unnamed)
