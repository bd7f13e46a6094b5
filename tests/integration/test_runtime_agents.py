"""Agents give what ``mlflow.pyfunc`` gives, whole and in pieces, by MLflow's paths and by OpenAI's."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.runtime_process import JSON, Runtime, model_python
from tests.integration.runtime_reference import both
from tests.runtime_lab import environments

pytestmark = pytest.mark.process

generated = settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
values = st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-1e6, 1e6) | texts
beside = st.fixed_dictionaries({}, optional={"custom_inputs": st.dictionaries(texts, values, max_size=3)})
# Each agent's key, its path beside MLflow's own, and what may stand beside its messages.
AGENTS: dict[str, tuple[str, str, st.SearchStrategy[dict[str, Any]]]] = {
    "responses": ("input", "/v1/responses", beside),
    "chat-agent": ("messages", "/v1/chat/completions", beside),
    "chat-model": (
        "messages",
        "/v1/chat/completions",
        st.fixed_dictionaries({}, optional={"temperature": st.floats(0, 2), "max_tokens": st.integers(1, 99)}),
    ),
}
messages = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": texts}), min_size=1, max_size=4
)


@functools.cache
def agents() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="knobless-agents-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environments.run(model_python(), "agent_models.py", folder)
    return folder


def ask(runtime: Runtime, path: str, document: Any) -> Any:
    answer = runtime.ask("POST", path, json.dumps(document).encode(), JSON)
    assert answer.status == 200, answer.body
    return answer.json


def pieces(runtime: Runtime, path: str, document: Any) -> tuple[list[Any], list[str]]:
    """The events that are JSON, and what else was said."""
    answer = runtime.ask("POST", path, json.dumps(document).encode(), JSON)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream"), answer.body
    said = [line.removeprefix("data: ") for line in answer.body.decode().split("\n") if line.startswith("data: ")]
    return [json.loads(one) for one in said if one.startswith("{")], [one for one in said if not one.startswith("{")]


@pytest.mark.case("runtimes-A29", "runtimes-I3")
@pytest.mark.parametrize("name", list(AGENTS))
def test_an_agent_answers_as_pyfunc_whole_and_in_pieces(name: str, tmp_path: Path) -> None:
    key, openai, more = AGENTS[name]
    last = [] if name == "responses" else ["[DONE]"]
    with both(agents() / name, model_python(), tmp_path) as (runtime, reference):

        @generated
        @given(messages, more)
        def each(said: list[Any], extra: dict[str, Any]) -> None:
            document = {key: said, **extra}
            expected = reference.ask(document)["body"]
            assert ask(runtime, "/invocations", document) == ask(runtime, openai, document) == expected
            asked = {**document, "stream": True}
            expected = reference.ask(asked)["pieces"]
            assert pieces(runtime, openai, asked) == (expected, last)
            assert pieces(runtime, "/invocations", asked) == (expected, [])

        each()


@pytest.mark.parametrize("name", list(AGENTS))
def test_an_agent_takes_mlflow_s_forms_too_and_answers_in_them(name: str, tmp_path: Path) -> None:
    key, _, _ = AGENTS[name]
    with both(agents() / name, model_python(), tmp_path) as (runtime, reference):

        @generated
        @given(messages)
        def each(said: list[Any]) -> None:
            for document in (
                {"inputs": {key: said}},
                {"dataframe_records": [{key: said}]},
                {"dataframe_split": {"columns": [key], "data": [[said]]}},
            ):
                expected = reference.ask(document)["body"]
                assert list(expected) == ["predictions"]
                assert ask(runtime, "/invocations", document) == expected

        each()


def test_a_text_is_a_response_s_input_as_openai_has_it(tmp_path: Path) -> None:
    with both(agents() / "responses", model_python(), tmp_path) as (runtime, reference):
        expected = reference.ask({"input": [{"role": "user", "content": "hello"}]})["body"]
        assert ask(runtime, "/v1/responses", {"input": "hello"}) == expected
        assert (
            pieces(runtime, "/v1/responses", {"input": "hello", "stream": True})[0][-1]["item"] == expected["output"][0]
        )


@pytest.mark.case("runtimes-B11")
def test_traces_that_nobody_asked_for_are_not_written_beside_the_agent(tmp_path: Path) -> None:
    with both(agents() / "responses", model_python(), tmp_path) as (runtime, reference):
        document = {"input": [{"role": "user", "content": "hello"}]}
        assert ask(runtime, "/invocations", document) == reference.ask(document)["body"]
        assert sorted(path.name for path in runtime.folder.iterdir()) == ["log", "site"]
