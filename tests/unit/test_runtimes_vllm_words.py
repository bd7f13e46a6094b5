"""What vLLM's runtime says: while the model loads, why it failed, and vLLM's errors in our words."""

from __future__ import annotations

import asyncio
import json
import socket

import orjson
import pytest

from runtimes.interface.errors import MODEL_FAILED
from runtimes.vllm.loading import answer, answer_meanwhile
from runtimes.vllm.reason import Reasons
from runtimes.vllm.refusals import reworded

CANARY = "card 4242"


def error(message: str, param: str | None = None) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": "BadRequestError", "param": param, "code": 400}})


# Errors.


@pytest.mark.case("runtimes-B1")
def test_a_validation_error_names_the_field_and_leaves_out_the_value() -> None:
    entry = {
        "type": "float_parsing",
        "loc": "body.temperature",
        "msg": "Input should be a valid number, unable to parse string as a number",
        "input": CANARY,
    }
    said = reworded(400, error(f"1 validation error:\n  {entry}", "body.temperature"), b'{"temperature": 1}', "talk")
    assert (said.status, said.field) == (400, "temperature")
    assert said.message == "`temperature`: Input should be a valid number, unable to parse string as a number"


@pytest.mark.case("runtimes-B1")
def test_all_problems_are_told_once_and_texts_of_the_request_never() -> None:
    entries = [
        {"type": "missing", "loc": "body.messages", "msg": "Field required", "input": "<dict of 2 items>"},
        {"type": "missing", "loc": "body.messages", "msg": "Field required", "input": "<dict of 2 items>"},
        {"type": "value_error", "loc": "body.stop", "msg": f"Value error, {CANARY} is no stop", "input": CANARY},
    ]
    body = "3 validation errors:\n" + "".join(f"  {entry}\n" for entry in entries)
    said = reworded(400, error(body), orjson.dumps({"stop": CANARY}), "talk")
    assert said.message == "`messages`: Field required; `stop`: Value error, ... is no stop"


@pytest.mark.case("runtimes-B1")
def test_a_value_in_any_other_message_is_cut_out() -> None:
    request = orjson.dumps({"messages": [{"role": "user", "content": CANARY}], "logit_bias": {"5": 1}})
    said = reworded(400, error(f"the template failed on {CANARY}", "messages"), request, "talk")
    assert (said.message, said.field) == ("the template failed on ...", "messages")


@pytest.mark.case("runtimes-B1")
def test_numbers_and_what_only_an_operator_can_change_are_cut_out_too() -> None:
    said = "n must be at most 8, got 4711. To increase this limit, set the VLLM_MAX_N_SEQUENCES environment variable."
    request = orjson.dumps({"n": 4711, "max_tokens": 8, "stream": True, "stop": None})
    assert reworded(400, error(said), request, "talk").message == "n must be at most 8, got ...."


@pytest.mark.case("runtimes-I5")
def test_another_model_is_404_and_the_answer_names_the_one_that_is_here() -> None:
    said = reworded(404, error(f"The model `{CANARY}` does not exist."), b"{}", "talk")
    assert (said.status, said.field) == (404, "model")
    assert "`talk`" in said.message
    assert CANARY not in said.message


@pytest.mark.case("runtimes-A29")
def test_a_body_of_no_known_kind_is_told_the_keys() -> None:
    said = reworded(400, error("Cannot find suitable handler for request. Expected one of: ['X']"), b"{}", "talk")
    assert all(f"`{key}`" in said.message for key in ("messages", "prompt", "input"))


@pytest.mark.case("runtimes-B2")
def test_a_body_that_is_no_json_is_not_repeated() -> None:
    said = reworded(400, error(f"JSON decode error near {CANARY}"), f'{{"messages": "{CANARY}'.encode(), "talk")
    assert said.message == "the body is not valid JSON"


@pytest.mark.case("runtimes-B4")
@pytest.mark.parametrize(("status", "told"), [(500, 500), (502, 500), (503, 503)])
def test_what_the_engine_says_of_its_own_failures_stays_inside(status: int, told: int) -> None:
    said = reworded(status, error("CUDA error at /usr/lib/x.py"), b"{}", "talk")
    assert (said.status, said.message) == (told, MODEL_FAILED)


def test_an_error_in_no_known_shape_is_still_one() -> None:
    assert reworded(400, b"<html>", b"{}", "talk").message == "the engine refused this request"


# Why it failed.


def test_the_reason_is_the_first_error_of_an_engine_and_not_the_one_that_points_to_it() -> None:
    reasons = Reasons()
    for line in (
        "(EngineCore pid=7) ERROR 11-30 [core.py:1] EngineCore failed to start.",
        "(EngineCore pid=7) ERROR 11-30 [core.py:1] Traceback (most recent call last):",
        "(EngineCore pid=7) ERROR 11-30 [core.py:1] torch.OutOfMemoryError: CUDA out of memory. Tried 20 GiB",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ):
        reasons.read(line, 1.0)
    assert reasons.told(1, 2.0) == "OutOfMemoryError: CUDA out of memory. Tried 20 GiB"


def test_the_reason_is_found_in_a_log_of_json_records() -> None:
    reasons = Reasons()
    stack = "Traceback (most recent call last):\n  File x\nValueError: max_model_len 9 is too short"
    record = {"level": "ERROR", "message": "EngineCore failed to start.", "exc_info": stack}
    reasons.read(f"(EngineCore pid=7) {json.dumps(record)}", 1.0)
    assert reasons.told(1, 2.0) == "ValueError: max_model_len 9 is too short"


def test_a_warning_is_no_reason_and_our_own_word_is_one_where_there_is_no_other() -> None:
    reasons = Reasons()
    warning = "This can cause `OSError: [Errno 24] Too many open files`"
    reasons.read(json.dumps({"levelname": "WARNING", "message": warning}), 1.0)
    reasons.read("EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.", 1.0)
    reasons.read("ServingError: the engine's process ended", 1.0)
    assert reasons.told(3, 1.0) == "the engine's process ended"


def test_a_server_that_says_nothing_is_known_by_its_status() -> None:
    assert Reasons().told(-9, 0.0) == "vLLM ended with status -9 and said nothing"


def test_what_went_wrong_long_before_is_not_the_reason() -> None:
    reasons = Reasons()
    reasons.read("ValueError: one request was wrong", 1.0)
    reasons.read("RuntimeError: the device is gone", 1000.0)
    assert reasons.told(1, 1001.0) == "RuntimeError: the device is gone"


# While the model loads.


@pytest.mark.case("runtimes-C3")
@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/health", {"code", "message", "request_id"}),
        ("/v1/chat/completions", {"message", "type", "param", "code"}),
    ],
)
def test_until_it_serves_everything_is_503_with_the_shape_of_its_path(path: str, shape: set[str]) -> None:
    head, _, body = answer(f"GET {path} HTTP/1.1\r\nX-Request-Id: mine\r\n\r\n".encode()).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "HTTP/1.1 503 Service Unavailable"
    assert {"retry-after: 1", "x-request-id: mine", "connection: close", f"content-length: {len(body)}"} <= set(lines)
    assert set(json.loads(body)["error"]) == shape


@pytest.mark.parametrize("head", [b"GET /live?x=1 HTTP/1.1\r\n\r\n", b"GET /v2/health/live HTTP/1.1\r\n\r\n"])
def test_until_it_serves_it_is_alive(head: bytes) -> None:
    assert answer(head).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_the_socket_goes_from_one_to_the_other_without_a_refused_connection() -> None:
    async def ask(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /invocations HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc")
        head = await reader.readuntil(b"\r\n")
        writer.close()
        return head

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        writer.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        port = listening.getsockname()[1]
        meanwhile = await answer_meanwhile(listening)
        assert await ask(port) == b"HTTP/1.1 503 Service Unavailable\r\n"
        meanwhile.close()
        between = asyncio.create_task(ask(port))  # nobody accepts: it waits, and is not refused
        await asyncio.sleep(0)
        async with await asyncio.start_server(other, sock=listening.dup()):
            assert await between == b"HTTP/1.1 200 OK\r\n"
