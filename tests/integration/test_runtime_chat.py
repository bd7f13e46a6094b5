"""A chat model of MLflow's: OpenAI's shape, several calls at once, and streams that end in every way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.integration.runtime_process import JSON, Answer, Connection, Runtime, serve, until

pytestmark = pytest.mark.process

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    folder = tmp_path_factory.mktemp("chat")
    with serve("chat", folder, "--predictors", "1", "--deadline-s", "5", "--max-in-flight", "8") as runtime:
        yield runtime.wait_ready()


def says(content: str, **more: Any) -> bytes:
    return json.dumps({"messages": [{"role": "user", "content": content}], **more}).encode()


async def ask(chat: Runtime, body: bytes, path: str = CHAT) -> Answer:
    async with Connection.open(chat.port) as connection:
        return await connection.ask("POST", path, body, JSON)  # type: ignore[no-any-return]


async def events(connection: Connection) -> AsyncIterator[str]:
    """The data of each event of a stream, as they come."""
    await connection.reader.readuntil(b"\r\n\r\n")
    while (size := int(await connection.reader.readline(), 16)) > 0:
        chunk = await connection.reader.readexactly(size)
        await connection.reader.readline()
        for line in chunk.decode().splitlines():
            if line.startswith("data: "):
                yield line.removeprefix("data: ")


async def streamed(chat: Runtime, content: str) -> list[str]:
    async with Connection.open(chat.port) as connection:
        await connection.send("POST", CHAT, says(content, stream=True), JSON)
        return [data async for data in events(connection)]


def words(data: list[str]) -> list[str]:
    return [json.loads(one)["choices"][0]["delta"]["content"] for one in data]


@pytest.mark.case("runtimes-A29", "runtimes-I3")
async def test_a_chat_model_answers_in_openai_s_shape_on_both_paths(chat: Runtime) -> None:
    for path in (CHAT, "/invocations"):
        answer = await ask(chat, says("hello you"), path)
        assert answer.json["choices"][0]["message"] == {"role": "assistant", "content": "HELLO YOU"}
        assert "predictions" not in answer.json


@pytest.mark.case("runtimes-C6", "runtimes-F5")
async def test_a_call_beside_a_slow_one_takes_its_own_time(chat: Runtime) -> None:
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(ask(chat, says("sleep:3")))
        await asyncio.to_thread(until, lambda: chat.metric("knobless_runtime_requests_in_flight") == 1, "the slow one")
        answers = await asyncio.gather(*(ask(chat, says(f"word{number}")) for number in range(5)))
        assert not slow.done()
    assert [answer.json["choices"][0]["message"]["content"] for answer in answers] == [f"WORD{n}" for n in range(5)]


async def test_a_stream_comes_word_by_word_and_ends_with_done(chat: Runtime) -> None:
    text = " ".join(f"w{number}" for number in range(200))
    *data, last = await streamed(chat, text)
    assert (words(data), last) == (text.split(), "[DONE]")


@pytest.mark.case("runtimes-D13")
async def test_streams_beside_bodies_of_1_mb_come_whole_and_so_do_those(chat: Runtime) -> None:
    text, large = " ".join(f"w{number}" for number in range(200)), "x" * (1 << 20)
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(streamed(chat, text)) for _ in range(3)]
        bodies = [group.create_task(ask(chat, says(large))) for _ in range(4)]
    said = [body.result().json["choices"][0]["message"]["content"] for body in bodies]
    assert said == [large.upper()] * 4
    assert [words(stream.result()[:-1]) for stream in streams] == [text.split()] * 3


async def test_the_first_piece_is_there_before_the_model_has_the_second(chat: Runtime) -> None:
    async with Connection.open(chat.port) as connection:
        await connection.send("POST", CHAT, says("first sleep:1 last", stream=True), JSON)
        stream = events(connection)
        assert words([await anext(stream)]) == ["first"]
        assert chat.metric("knobless_runtime_requests_in_flight") == 1
        assert [data async for data in stream][-1] == "[DONE]"


@pytest.mark.case("runtimes-B3")
async def test_a_model_that_fails_is_a_500_before_its_first_piece_and_an_event_after_it(chat: Runtime) -> None:
    early = await ask(chat, says("raise", stream=True))
    assert (early.status, "4711" in early.body.decode()) == (500, False)
    first, last = await streamed(chat, "hello raise")
    assert words([first]) == ["hello"]
    assert json.loads(last)["error"]["code"] == "internal_error"
    assert "4711" not in last


@pytest.mark.case("runtimes-I2")
async def test_a_client_that_leaves_its_stream_ends_the_call(chat: Runtime) -> None:
    async with Connection.open(chat.port) as connection:
        await connection.send("POST", CHAT, says("word " * 10_000 + "sleep:600", stream=True), JSON)
        await connection.reader.readuntil(b"data: ")
    await asyncio.to_thread(until, lambda: chat.metric("knobless_runtime_requests_in_flight") == 0, "its end", None, 5)
    assert (await ask(chat, says("still here"))).status == 200


@pytest.mark.case("runtimes-D1")
async def test_a_call_beyond_the_deadline_is_504_and_holds_only_its_own_slot(chat: Runtime) -> None:
    pids = chat.predictors()
    async with asyncio.TaskGroup() as group:
        late = group.create_task(ask(chat, says("sleep:8")))
        await asyncio.to_thread(until, lambda: chat.metric("knobless_runtime_requests_in_flight") == 1, "the late one")
        beside = group.create_task(ask(chat, says("sleep:4")))
    assert (late.result().status, beside.result().status) == (504, 200)
    assert chat.predictors() == pids  # the other call was not harmed


@pytest.mark.parametrize("body", [b'{"messages": 5}', b'{"messages": [{"content": "card 4242"}]}', b"[1]", b"{"])
async def test_a_body_that_is_no_chat_is_400_and_not_repeated(chat: Runtime, body: bytes) -> None:
    answer = await ask(chat, body)
    assert (answer.status, b"4242" in answer.body) == (400, False)
