"""Embeddings and responses at the platform's base URL: OpenAI's own client, a real HAProxy, MLflow models behind it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI

from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving
from tests.gateway_lab.pods import Pod, takes
from tests.integration import test_runtime_flavors as flavors
from tests.integration.runtime_process import Runtime, model_python, process_of_ours
from tests.integration.test_runtime_agents import agents
from tests.runtime_lab import environments

pytestmark = pytest.mark.process


@contextlib.contextmanager
def ready(model: Path, python: Path, folder: Path) -> Iterator[Runtime]:
    flags = ["--predictors", "1", "--name", folder.name]
    with process_of_ours(
        folder, ["runtimes.mlflow", "--model", str(model), "--model-python", str(python), *flags]
    ) as runtime:
        yield runtime.wait_ready()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with ready(agents() / "responses", model_python(), tmp_path_factory.mktemp("agent", numbered=False)) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def embeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with ready(agents() / "embeds", model_python(), tmp_path_factory.mktemp("embeds", numbered=False)) as runtime:
        yield runtime


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder = tmp_path_factory.mktemp("sentences", numbered=False)
    with ready(flavors.models("text") / "embeds", environments.deep_flavors_python(), folder) as runtime:
        yield runtime


@contextlib.asynccontextmanager
async def behind_the_gateway(folder: Path, *runtimes: Runtime) -> AsyncIterator[tuple[Gateway, AsyncOpenAI]]:
    async with gateway(folder / "run") as running:
        for runtime in runtimes:
            name = runtime.folder.name
            await serving(running, [Pod(f"{name}-a", takes(0), port=runtime.port)], name, limit=4)
        url = f"http://127.0.0.1:{running.settings.https_port}/v1"
        async with AsyncOpenAI(base_url=url, api_key=KEY, max_retries=0) as client:
            yield running, client


async def test_embeddings_and_responses_are_answered_by_the_endpoint_that_model_names(
    tmp_path: Path, agent: Runtime, embeds: Runtime
) -> None:
    async with behind_the_gateway(tmp_path, agent, embeds) as (_, client):
        many = await client.embeddings.create(model="embeds", input=["a quiet harbour", "rain"])
        one = await client.embeddings.create(model="embeds", input="rain")
        answer = await client.responses.create(model="agent", input="hello you")
    assert [found.embedding for found in many.data] == [[15.0, 3.0], [4.0, 1.0]]
    assert [found.embedding for found in one.data] == [[4.0, 1.0]]
    assert (answer.id, answer.output_text) == ("response-1", "HELLO YOU")


async def test_a_response_comes_in_pieces(tmp_path: Path, agent: Runtime) -> None:
    async with behind_the_gateway(tmp_path, agent) as (_, client):
        events = [event async for event in await client.responses.create(model="agent", input="hello you", stream=True)]
    said = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert (said, events[-1].type) == (["hello", "you"], "response.output_item.done")


REFUSALS = [
    ("agent", "responses", {"input": "a", "previous_response_id": "r"}, 400, "bad_request", "previous_response_id"),
    ("agent", "responses", {"input": 4711}, 400, "bad_request", None),
    ("agent", "responses", {"input": []}, 500, "internal_error", None),
    ("agent", "embeddings", {"input": "a"}, 404, "not_found", None),
    ("embeds", "embeddings", {"input": 4711}, 500, "internal_error", None),
    ("embeds", "responses", {"input": "a"}, 404, "not_found", None),
    ("nobody", "embeddings", {"input": "a"}, 404, "not_found", None),
]


async def test_errors_have_openai_s_shape(tmp_path: Path, agent: Runtime, embeds: Runtime) -> None:
    async with behind_the_gateway(tmp_path, agent, embeds) as (_, client):
        for model, path, body, status, code, field in REFUSALS:
            with pytest.raises(openai.APIStatusError) as caught:
                await client.post(f"/{path}", cast_to=dict, body={**body, "model": model})  # type: ignore[dict-item]
            error = caught.value
            assert (error.status_code, error.code, error.param) == (status, code, field), (model, path, body)
            assert error.type is not None
            assert "4711" not in str(error)


@pytest.mark.flavors
@pytest.mark.timeout(600)
async def test_a_sentence_transformer_embeds_what_openai_s_client_sends(tmp_path: Path, sentences: Runtime) -> None:
    async with behind_the_gateway(tmp_path, sentences) as (_, client):
        texts = ["a quiet harbour", "rain"]
        both = await client.embeddings.create(model="sentences", input=texts)
        plain = await client.embeddings.create(model="sentences", input=texts, encoding_format="float")
    assert [len(found.embedding) for found in both.data] == [32, 32]
    assert both.data == plain.data
