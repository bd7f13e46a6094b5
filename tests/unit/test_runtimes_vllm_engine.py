"""vLLM as an engine: its self-test decides what it answers, its client says how it is, its words are made ours."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import orjson
import pytest

from runtimes.interface.engine import Api, Call, Receive, Scope, Send
from runtimes.interface.errors import RefusedError
from runtimes.vllm import engine as module
from runtimes.vllm.engine import VllmEngine
from runtimes.vllm.settings import VllmSettings

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"


class Client:
    """vLLM's client to its engine."""

    def __init__(self, *tasks: str) -> None:
        self.tasks = tasks
        self.errored = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return self.tasks

    async def is_sleeping(self) -> bool:
        await self.answers.wait()
        return False


class Server:
    """vLLM's application: a status and a document for each path; what it was asked."""

    def __init__(self, **answers: tuple[int, Any]) -> None:
        self.answers = {name.replace("__", "/"): answer for name, answer in answers.items()}
        self.asked: list[tuple[str, Any]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        self.asked.append((scope["path"], orjson.loads(body) if body else None))
        status, document = self.answers.get(scope["path"].removeprefix("/v1/"), (200, {}))
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": orjson.dumps(document)})


def engine(server: Server, client: Client) -> VllmEngine:
    settings = VllmSettings(model=Path("/m"), name="talk", version="3", stuck_s=60)
    return VllmEngine(server, "vllm's own application", client, settings, "0.32")


def call(path: str, body: bytes = b"{}", method: str = "POST") -> Call:
    return Call("an-id", Api.OPENAI, "json", body, time.perf_counter() + 5, path, method=method)


@pytest.mark.case("runtimes-C1", "runtimes-C4")
async def test_a_model_that_generates_is_asked_on_both_its_paths_before_it_is_ready() -> None:
    server = Server()
    served = engine(server, Client("generate"))
    assert not served.ready
    await served.start()
    assert served.ready
    assert served.about is not None
    assert served.about.paths == {"/invocations", COMPLETIONS, CHAT, "/v1/responses"}
    assert [path for path, _ in server.asked] == [COMPLETIONS, CHAT]
    assert {body["model"] for _, body in server.asked} == {"talk"}
    assert server.asked[0][1]["logprobs"]  # compiled on its first use: never a client's wait
    await served.stop()


async def test_a_model_without_a_chat_template_has_no_chat_paths() -> None:
    served = engine(Server(chat__completions=(400, {"error": {"message": "no template"}})), Client("generate"))
    await served.start()
    assert served.about is not None
    assert served.about.paths == {"/invocations", COMPLETIONS}
    await served.stop()


async def test_a_model_that_embeds_has_that_path_alone() -> None:
    server = Server()
    served = engine(server, Client("embed", "classify"))
    await served.start()
    assert served.about is not None
    assert served.about.paths == {"/invocations", EMBEDDINGS}
    assert [path for path, _ in server.asked] == [EMBEDDINGS]
    await served.stop()


@pytest.mark.case("runtimes-C1")
async def test_a_model_that_fails_its_self_test_is_never_ready_and_says_why() -> None:
    served = engine(Server(completions=(500, {"error": {"message": "no kernel"}})), Client("generate"))
    await served.start()
    assert (served.about, served.ready) == (None, False)
    assert "no kernel" in served.failed.result()
    await served.stop()


@pytest.mark.case("runtimes-C15")
async def test_an_engine_that_is_dead_is_neither_ready_nor_live() -> None:
    client = Client("generate")
    served = engine(Server(), client)
    await served.start()
    client.errored = True
    assert (served.ready, served.live) == (False, False)
    await served.stop()


@pytest.mark.case("runtimes-C15")
async def test_an_engine_that_says_nothing_is_not_ready_and_later_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [time.perf_counter()]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])
    client = Client("generate")
    served = engine(Server(), client)
    await served.start()
    client.answers.clear()
    seen = []
    for passed_s in (0.0, module.STALLED_S - 1, 2.0, 60.0):
        now[0] += passed_s
        seen.append((served.ready, served.live))
    assert seen == [(True, True), (True, True), (False, True), (False, False)]
    await served.stop()


async def test_an_error_is_raised_in_our_words_and_an_answer_passed_on_as_it_is() -> None:
    error = {"error": {"message": "The model `x` does not exist.", "type": "NotFoundError", "param": "model"}}
    served = engine(Server(completions=(404, error), embeddings=(200, {"data": [1]})), Client("generate"))
    with pytest.raises(RefusedError, match="this endpoint serves `talk`") as raised:
        await served.forward(call(COMPLETIONS))
    assert (raised.value.status, raised.value.field) == (404, "model")
    assert (await served.forward(call(EMBEDDINGS))).body == b'{"data":[1]}'


async def test_the_list_of_models_names_no_folder() -> None:
    card = {"id": "talk", "root": "/model/model", "permission": [{"id": "modelperm-1"}], "max_model_len": 256}
    served = engine(Server(models=(200, {"object": "list", "data": [card]})), Client("generate"))
    told = orjson.loads((await served.forward(call("/v1/models", b"", "GET"))).body)
    assert told["data"] == [{"id": "talk", "root": "talk", "max_model_len": 256}]
