"""Deep, statistical and language flavors give what ``mlflow.pyfunc`` gives, on generated input.

Their environment has gigabytes, so they stand apart from `make test`: `make test-flavors`.
"""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.quota import cpu, cpu_quota, own_affinity
from tests.integration.runtime_process import JSON, Runtime, process_of_ours
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


def openai(runtime: Runtime, path: str, document: Document) -> Any:
    answer = runtime.ask("POST", path, json.dumps(document).encode(), JSON)
    assert answer.status == 200, answer.body
    return answer.json


def chat(content: str) -> Document:
    return {"messages": [{"role": "user", "content": content}]}


@pytest.mark.case("runtimes-A29", "runtimes-I3")
@pytest.mark.parametrize(("kind", "name"), [("text", "chats"), ("chains", "chain-messages")])
def test_a_chat_is_openai_s_on_openai_s_path_and_many_at_once_are_each_their_own(
    kind: str, name: str, tmp_path: Path
) -> None:
    path, documents = "/v1/chat/completions", [chat(f"harbour {number}") for number in range(12)]
    with compared(kind, name, tmp_path) as (runtime, reference), ThreadPoolExecutor(6) as clients:
        answers = list(clients.map(functools.partial(openai, runtime, path), documents))
        assert {answer["object"] for answer in answers} == {"chat.completion"}
        expected = [reference.ask(document)["body"] for document in documents]
        assert [[unnamed(answer)] for answer in answers] == list(map(unnamed, expected))


def test_a_chain_streams_as_pyfunc_and_what_waits_holds_nobody_up(tmp_path: Path) -> None:
    path = "/v1/chat/completions"
    with compared("chains", "chain-messages", tmp_path) as (runtime, reference), ThreadPoolExecutor(2) as clients:
        both_met = list(clients.map(functools.partial(openai, runtime, path), [chat("meet"), chat("meet")]))
        assert [answer["choices"][0]["message"]["content"] for answer in both_met] == ["MEET", "MEET"]
        document = {**chat("hello quiet harbour"), "stream": True}
        streamed = runtime.ask("POST", path, json.dumps(document).encode(), JSON).body.decode()
        *pieces, last = [line.removeprefix("data: ") for line in streamed.splitlines() if line]
        assert (list(map(unnamed, map(json.loads, pieces))), last) == (
            list(map(unnamed, reference.ask(document)["pieces"])), "[DONE]",
        )  # fmt: skip


def test_texts_are_embedded_on_openai_s_path_as_on_mlflow_s(tmp_path: Path) -> None:
    with compared("text", "embeds", tmp_path) as (runtime, reference):
        for given_ in ("a quiet harbour", ["a quiet harbour", "rain"]):
            expected = reference.ask({"input": given_})["body"]
            assert openai(runtime, "/v1/embeddings", {"input": given_}) == expected
            assert openai(runtime, "/invocations", {"input": given_}) == expected


def threads(pid: int) -> list[str]:
    return [(task / "comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()]


@pytest.mark.parametrize(
    ("kind", "name"), [("torch", "wide"), ("torch", "within-sklearn"), ("keras", "keras"), ("text", "sentences")]
)
def test_a_library_with_threads_is_loaded_by_each_predictor_and_all_of_them_answer(
    kind: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a process has none of its threads, and a call that waits for them never ends."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(variable, "4")  # so that torch has some on any machine
    model = models(kind) / name
    python = str(environments.deep_flavors_python())
    command = ["runtimes.mlflow", "--model", str(model), "--model-python", python, "--predictors", "2"]
    with process_of_ours(tmp_path / "ours", command) as runtime, ThreadPoolExecutor(6) as clients:
        pids = runtime.wait_ready().predictors()
        assert len(runtime.children()) == len(pids) == 2
        assert all(len(threads(pid)) > 2 for pid in pids)
        document = json.loads((model / "serving_input_example.json").read_text())
        bodies = [answer.body for answer in clients.map(runtime.post, [document] * 24)]
        assert all(json.loads(body)["predictions"] for body in bodies)
        assert len(set(bodies)) == 1
        assert runtime.predictors() == pids


@pytest.mark.case("runtimes-F2")
def test_tensorflow_s_threads_are_those_of_the_quota(tmp_path: Path) -> None:
    python = str(environments.deep_flavors_python())
    model = models("keras") / "tf-module"
    command = ["runtimes.mlflow", "--model", str(model), "--model-python", python, "--predictors", "2"]
    with process_of_ours(tmp_path / "ours", command) as runtime:
        for pid in runtime.wait_ready().predictors():
            assert threads(pid).count("tf_Compute") == cpu(2, cpu_quota(), own_affinity()).threads
