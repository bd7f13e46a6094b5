"""OpenAI's own client at the platform's base URL: a real HAProxy, and behind it a chat model in the real runtime."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving, until
from tests.gateway_lab.pods import Pod, takes
from tests.integration.runtime_process import Runtime, serve

pytestmark = pytest.mark.process
IN_FLIGHT = "knobless_runtime_requests_in_flight"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    flags = ("--predictors", "1", "--deadline-s", "20", "--name", "chat")
    with serve("chat", tmp_path_factory.mktemp("chat"), *flags) as runtime:
        yield runtime.wait_ready()


@pytest.fixture
async def running(tmp_path: Path, chat: Runtime) -> AsyncIterator[Gateway]:
    """With the chat model as an endpoint, and one of another team."""
    await holding(chat, 0)
    async with gateway(tmp_path / "run", queue_ms=300, keys={KEY: "alpha", "key-of-beta": "beta"}) as found:
        await declare(found, chat)
        found.cluster.put(MODEL_ENDPOINTS, endpoint_object("secret", team="beta", traffic=""))
        await until(lambda: bool(found.cluster.condition("secret", "beta")))
        yield found


async def declare(
    running: Gateway, chat: Runtime, *, limit: int = 4, queue_max: int = 100, deadline_ms: int = 10_000
) -> None:
    """Until HAProxy has it so."""
    pod = Pod(f"{revision('chat')}-a", takes(0), port=chat.port)
    await serving(running, [pod], "chat", limit=limit, queue_max=queue_max, deadline_ms=deadline_ms)
    await running.servers_become({pod.name: limit})
    async with asyncio.timeout(10):
        while not (await running.live()).maps["routes"]["chat"].endswith(f"/{queue_max}/{deadline_ms}"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture
async def client(running: Gateway) -> AsyncIterator[AsyncOpenAI]:
    async with client_of(running) as found:
        yield found


def client_of(running: Gateway, key: str = KEY, base: str = "", retries: int = 0) -> AsyncOpenAI:
    url = f"http://127.0.0.1:{running.settings.https_port}{base}/v1"
    return AsyncOpenAI(base_url=url, api_key=key, max_retries=retries)


async def say(client: AsyncOpenAI, text: str, model: str = "chat") -> str | None:
    answer = await client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}])
    return answer.choices[0].message.content


def stream(client: AsyncOpenAI, text: str) -> Any:
    return client.chat.completions.create(model="chat", messages=[{"role": "user", "content": text}], stream=True)


async def holding(chat: Runtime, requests: int) -> None:
    """Until the model works on so many."""
    async with asyncio.timeout(10):
        while await asyncio.to_thread(chat.metric, IN_FLIGHT) != requests:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)


async def test_the_models_are_the_endpoints_that_the_key_may_use(client: AsyncOpenAI) -> None:
    assert [(model.id, model.owned_by) async for model in client.models.list()] == [("chat", "knobless")]
    assert (await client.models.retrieve("chat")).id == "chat"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nobody")
    with pytest.raises(openai.PermissionDeniedError):
        await client.models.retrieve("secret")


@pytest.mark.parametrize("base", ["", "/serving-endpoints/chat"])
async def test_a_chat_is_answered_whole_and_as_a_stream_at_both_base_urls(running: Gateway, base: str) -> None:
    async with client_of(running, base=base) as client:
        messages: list[Any] = [{"role": "user", "content": "hello you"}]
        whole = await client.chat.completions.create(
            model="chat", messages=messages, extra_headers={"x-request-id": "once"}
        )
        pieces = [piece async for piece in await stream(client, "hello you")]
    message = whole.choices[0].message
    assert (message.role, message.content, whole.object, whole._request_id) == (
        "assistant", "HELLO YOU", "chat.completion", "once"
    )  # fmt: skip
    assert [piece.choices[0].delta.content for piece in pieces] == ["hello", "you"]


async def test_a_message_of_megabytes_before_the_model_s_name_is_answered(client: AsyncOpenAI) -> None:
    text = "x" * 2_000_000
    assert await say(client, text) == text.upper()


async def test_a_piece_is_here_while_the_model_works_on_the_next(client: AsyncOpenAI, chat: Runtime) -> None:
    pieces = aiter(await stream(client, "first sleep:5"))
    assert (await anext(pieces)).choices[0].delta.content == "first"
    assert await asyncio.to_thread(chat.metric, IN_FLIGHT) == 1


async def test_a_client_that_closes_its_stream_frees_the_model(client: AsyncOpenAI, chat: Runtime) -> None:
    answer = await stream(client, "word " * 10_000 + "sleep:600")
    await anext(aiter(answer))
    await answer.close()
    await holding(chat, 0)
    assert await say(client, "on") == "ON"


REFUSALS = [
    ("unknown model", KEY, "nobody", "a", openai.NotFoundError, 404, "not_found", None),
    ("wrong key", "nonsense", "chat", "a", openai.AuthenticationError, 401, "unauthenticated", None),
    ("another team's", KEY, "secret", "a", openai.PermissionDeniedError, 403, "permission_denied", None),
    ("no model", KEY, "", "a", openai.BadRequestError, 400, "bad_request", "model"),
    ("too large", KEY, "chat", "x" * 17_000_000, openai.APIStatusError, 413, "payload_too_large", None),
    ("a model that fails", KEY, "chat", "raise", openai.InternalServerError, 500, "internal_error", None),
]


@pytest.mark.parametrize(
    ("key", "model", "text", "kind", "status", "code", "field"),
    [row[1:] for row in REFUSALS],
    ids=[r[0] for r in REFUSALS],
)
async def test_an_error_is_the_client_s_own_class_with_all_its_fields(
    running: Gateway,
    key: str,
    model: str,
    text: str,
    kind: type[openai.APIStatusError],
    status: int,
    code: str,
    field: str | None,
) -> None:
    async with client_of(running, key) as client:
        with pytest.raises(kind) as caught:
            await say(client, text, model)
    error = caught.value
    assert type(error) is kind
    assert (error.status_code, error.code, error.param) == (status, code, field)
    assert error.type is not None
    assert error.request_id == error.response.headers["x-request-id"] != ""
    assert isinstance(error.body, dict)
    assert error.body["message"] != ""
    assert "4711" not in str(error)


async def test_what_the_model_itself_refuses_names_the_field(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model="chat", messages=[{"content": "card 4242"}])  # type: ignore[list-item]
    assert (caught.value.code, "4242" in str(caught.value)) == ("bad_request", False)


@pytest.mark.parametrize("path", ["embeddings", "responses", "completions"])
async def test_what_a_chat_model_does_not_do_is_not_found(client: AsyncOpenAI, path: str) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.post(f"/{path}", cast_to=dict, body={"model": "chat", "input": "a", "prompt": "a"})
    assert caught.value.code == "not_found"


async def test_a_stream_that_fails_in_its_middle_raises_after_what_was_said(client: AsyncOpenAI) -> None:
    said = []
    with pytest.raises(openai.APIError) as caught:
        async for piece in await stream(client, "hello raise"):
            said.append(piece.choices[0].delta.content)
    assert (said, caught.value.code, "4711" in str(caught.value)) == (["hello"], "internal_error", False)


async def test_full_late_and_not_ready_are_classes_that_the_client_tries_again(
    running: Gateway, client: AsyncOpenAI, chat: Runtime
) -> None:
    await declare(running, chat, limit=1, queue_max=0, deadline_ms=1500)
    late = asyncio.create_task(say(client, "sleep:3"))
    await holding(chat, 1)
    with pytest.raises(openai.RateLimitError) as full:
        await say(client, "a")
    assert (full.value.status_code, full.value.code) == (429, "too_many_requests")
    assert int(full.value.response.headers["retry-after"]) >= 1
    with pytest.raises(openai.InternalServerError) as gone:
        await late
    assert (gone.value.status_code, gone.value.code) == (504, "deadline_exceeded")
    running.cluster.put_pods("chat", revision("chat"), [])
    await running.servers_become({})
    with pytest.raises(openai.InternalServerError) as none:
        await say(client, "a")
    assert (none.value.status_code, none.value.code) == (503, "unavailable")


async def test_a_client_that_may_try_again_is_answered_once_there_is_room(running: Gateway, chat: Runtime) -> None:
    await declare(running, chat, limit=1, queue_max=0)
    async with client_of(running, retries=5) as client:
        first = asyncio.create_task(say(client, "sleep:1"))
        await holding(chat, 1)
        assert await say(client, "second") == "SECOND"
        assert await first == "SLEEP:1"
