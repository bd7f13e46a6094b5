"""What the runtime refuses, and how: one shape, the right status, nothing of the request or of our code in it."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.runtime_process import JSON, Connection, Runtime, serve, until

pytestmark = pytest.mark.process

ROW: dict[str, Any] = {
    "qty": 3, "price": 9.5, "ratio": 0.25, "city": "Oslo", "member": False, "seen": "2024-03-01", "score": 0.5
}  # fmt: skip
CANARY = "canary-4711"
LIMIT = 16 * 1024 * 1024


@pytest.fixture(scope="module")
def acts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    flags = ("--predictors", "1", "--deadline-s", "20", "--max-in-flight", "3")
    with serve("acts", tmp_path_factory.mktemp("acts"), *flags) as runtime:
        yield runtime.wait_ready()


def order(what: str) -> bytes:
    return json.dumps({"dataframe_records": [ROW | {"city": what}]}).encode()


@pytest.mark.case("runtimes-B5", "runtimes-B9")
@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status", "code"),
    [
        ("GET", "/", {}, b"", 404, "NOT_FOUND"),
        ("POST", "/invocations/", JSON, b"{}", 404, "NOT_FOUND"),
        ("GET", "/docs", {}, b"", 404, "NOT_FOUND"),
        ("GET", "/invocations", {}, b"", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/health", {}, b"", 405, "METHOD_NOT_ALLOWED"),
        ("POST", "/invocations", {}, b"{}", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "/invocations", {"content-type": "text/plain"}, b"{}", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "/invocations", JSON | {"content-encoding": "br"}, b"{}", 415, "UNSUPPORTED_MEDIA_TYPE"),
        ("POST", "/invocations", JSON | {"content-encoding": "gzip"}, b"{}", 400, "BAD_REQUEST"),
        ("POST", "/invocations", JSON, b"", 400, "BAD_REQUEST"),
        ("POST", "/invocations", JSON | {"x-knobless-deadline-ms": "soon"}, b"{}", 400, "BAD_REQUEST"),
        ("POST", "/invocations", JSON | {"x-knobless-deadline-ms": "0"}, b"{}", 504, "DEADLINE_EXCEEDED"),
        ("POST", "/invocations", JSON, order("raise"), 500, "INTERNAL_ERROR"),
        ("POST", "/invocations", JSON, order("unspeakable"), 500, "INTERNAL_ERROR"),
    ],
)
def test_every_error_has_the_one_shape(
    acts: Runtime, method: str, path: str, headers: dict[str, str], body: bytes, status: int, code: str
) -> None:
    answer = acts.ask(method, path, body, {**headers, "x-request-id": "mine-1"})
    assert (answer.status, answer.error["code"], answer.error["request_id"]) == (status, code, "mine-1")


def test_405_says_what_is_allowed(acts: Runtime) -> None:
    assert acts.ask("GET", "/invocations").headers["allow"] == "POST"


@pytest.mark.case("runtimes-B1", "runtimes-B2", "runtimes-B4")
@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"dataframe_records": [dict.fromkeys(ROW, CANARY) | {"city": 7}]}),
        json.dumps({"dataframe_records": [{"price": CANARY}]}),
        json.dumps({"dataframe_split": {"columns": ["price"], "data": [[CANARY, CANARY]]}}),
        json.dumps({"dataframe_split": CANARY}),
        json.dumps({"instances": [CANARY]}),
        json.dumps({"inputs": {"price": [CANARY], "qty": [[CANARY]]}}),
        json.dumps({"dataframe_records": [ROW], "params": {"k": CANARY}}),
        json.dumps({"messages": [{"content": CANARY}]}),
        '{"dataframe_split": "' + CANARY,
        order(f"raise {CANARY}").decode().replace("raise ", "raise:"),
    ],
)
def test_no_error_repeats_what_was_sent_nor_shows_our_code(acts: Runtime, body: str) -> None:
    answer = acts.post(body.encode())
    assert answer.status in (400, 500)
    said = answer.body.decode()
    assert not any(leak in said for leak in (CANARY, "4711", "Traceback", "/runtimes/", "Error", ".py"))


@pytest.mark.case("runtimes-B3")
def test_the_stack_of_a_failing_model_is_in_the_log_under_the_request_id(acts: Runtime) -> None:
    answer = acts.post(order("raise"), x_request_id="trace-me")
    assert "the endpoint's log" in answer.error["message"]
    lines = [line for line in acts.log if line.get("request_id") == "trace-me"]
    assert any("ValueError: token 4711" in line.get("stack", "") for line in lines)


@pytest.mark.case("runtimes-J7")
def test_what_a_model_logs_carries_the_request_id(acts: Runtime) -> None:
    assert acts.post(order("log"), x_request_id="log-me").status == 200
    (line,) = [line for line in acts.log if line["message"] == "a word from the model"]
    assert (line["request_id"], line["level"]) == ("log-me", "WARNING")


@pytest.mark.case("runtimes-A29")
def test_a_chat_body_is_told_the_keys_of_this_model(acts: Runtime) -> None:
    message = acts.post({"messages": [{"role": "user", "content": "hi"}]}).error["message"]
    assert all(f"`{key}`" in message for key in ("dataframe_split", "dataframe_records", "instances", "inputs"))


@pytest.mark.parametrize("given_id", ["abc-1", "x" * 128])
def test_a_request_id_is_kept_on_answers_and_errors(acts: Runtime, given_id: str) -> None:
    assert acts.post(order("Oslo"), x_request_id=given_id).headers["x-request-id"] == given_id
    assert acts.post(b"{", x_request_id=given_id).headers["x-request-id"] == given_id


def test_version_is_mlflow_s_and_every_answer_names_the_model_s(acts: Runtime) -> None:
    answer = acts.ask("GET", "/version")
    assert answer.body.decode() == acts.ask("GET", "/version").body.decode()
    assert answer.body.decode().split(".")[0] == "3"
    assert answer.headers["x-knobless-model-version"] == "7"
    assert acts.post(order("Oslo")).headers["x-knobless-model-version"] == "7"


# Sizes.


@pytest.mark.case("runtimes-D9")
async def test_a_body_that_says_it_is_too_long_is_413_before_it_is_read(acts: Runtime) -> None:
    async with Connection.open(acts.port) as connection:
        connection.writer.write(
            f"POST /invocations HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\n"
            f"content-length: {LIMIT + 1}\r\n\r\n".encode()
        )
        answer = await connection.receive()
    assert (answer.status, answer.error["code"]) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.case("runtimes-D9")
async def test_a_client_that_sends_a_long_body_whole_still_gets_its_413(acts: Runtime) -> None:
    async with Connection.open(acts.port) as connection:
        answer = await connection.ask("POST", "/invocations", b" " * (LIMIT + 1), JSON)
        assert (answer.status, answer.headers["connection"]) == (413, "close")


@pytest.mark.case("runtimes-D9")
async def test_a_chunked_body_is_413_once_it_is_too_long(acts: Runtime) -> None:
    async with Connection.open(acts.port) as connection:
        connection.writer.write(
            b"POST /invocations HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(17):
            connection.writer.write(chunk)
            await connection.writer.drain()
        answer = await connection.receive()
    assert answer.status == 413


async def test_a_chunked_body_within_the_limit_is_answered(acts: Runtime) -> None:
    body = order("Oslo")
    async with Connection.open(acts.port) as connection:
        connection.writer.write(
            b"POST /invocations HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for part in (body[:20], body[20:]):
            connection.writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await connection.writer.drain()
        connection.writer.write(b"0\r\n\r\n")
        assert (await connection.receive()).status == 200


async def test_one_who_waits_for_100_continue_gets_413_without_sending(acts: Runtime) -> None:
    async with Connection.open(acts.port) as connection:
        connection.writer.write(
            f"POST /invocations HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\n"
            f"expect: 100-continue\r\ncontent-length: {LIMIT + 1}\r\n\r\n".encode()
        )
        assert (await connection.receive()).status == 413
        assert await connection.reader.read() == b""  # closed, and no `100 Continue` came after the answer


@pytest.mark.case("runtimes-D10")
def test_the_limit_counts_unpacked_bytes(acts: Runtime) -> None:
    bomb = gzip.compress(bytes(LIMIT + 1))
    assert acts.ask("POST", "/invocations", bomb, JSON | {"content-encoding": "gzip"}).status == 413


def test_a_body_at_the_limit_is_read(acts: Runtime) -> None:
    body = order("Oslo")
    assert acts.post(body + b" " * (LIMIT - len(body))).status == 200


# Pressure.


@pytest.mark.case("runtimes-D2")
async def test_above_the_ceiling_the_next_request_is_429_at_once(acts: Runtime) -> None:
    async with asyncio.TaskGroup() as group:
        busy = [group.create_task(once(acts, order("sleep:1"))) for _ in range(3)]
        await asyncio.to_thread(until, lambda: acts.metric("knobless_runtime_requests_in_flight") == 3, "a full server")
        refused = await once(acts, order("Oslo"))
        assert not any(task.done() for task in busy)
    assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (429, "TOO_MANY_REQUESTS", "1")
    assert [task.result().status for task in busy] == [200, 200, 200]
    assert (await once(acts, order("Oslo"))).status == 200


async def once(runtime: Runtime, body: bytes, headers: dict[str, str] | None = None) -> Any:
    async with Connection.open(runtime.port) as connection:
        return await connection.ask("POST", "/invocations", body, {**JSON, **(headers or {})})


def test_what_is_not_http_gets_the_same_shape_and_the_end(acts: Runtime) -> None:
    async def talk() -> tuple[Any, bytes]:
        async with Connection.open(acts.port) as connection:
            connection.writer.write(b"HELO mail.example\r\n\r\n")
            return await connection.receive(), await connection.reader.read()

    answer, rest = asyncio.run(talk())
    assert (answer.status, answer.json["error"]["code"], rest) == (400, "BAD_REQUEST", b"")


# Anything at all.

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*ROW, "x"]), inner, max_size=4),
    max_leaves=12,
)
forms = st.sampled_from(["dataframe_split", "dataframe_records", "instances", "inputs", "params", "messages", "x"])
bodies = (
    st.dictionaries(forms, values, max_size=3).map(lambda document: json.dumps(document).encode())
    | st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | st.builds(lambda cut: order("Oslo")[:cut], st.integers(0, 80))
    | st.builds(
        lambda name, value: json.dumps({"dataframe_records": [ROW | {name: value}, {name: value}]}).encode(),
        st.sampled_from(list(ROW)),
        values,
    )
)
kinds = st.sampled_from(["application/json", "text/csv", "application/x-parquet", "application/xml", ""])


@pytest.mark.case("runtimes-B7")
def test_500_bodies_of_any_kind_are_4xx_or_no_rows_and_the_server_lives(acts: Runtime) -> None:
    with asyncio.Runner() as runner:
        stack = Connection.open(acts.port)
        connection = runner.run(stack.__aenter__())
        pid = acts.predictors()

        @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(bodies, kinds)
        def each(body: bytes, kind: str) -> None:
            answer = runner.run(connection.ask("POST", "/invocations", body, {"content-type": kind}))
            empty = answer.status == 200 and answer.json == {"predictions": []}
            assert empty or 400 <= answer.status < 500, (answer.status, answer.body)
            assert empty or answer.error["code"]

        each()
        runner.run(stack.__aexit__(None, None, None))
    assert acts.predictors() == pid
    assert acts.post(order("Oslo")).status == 200
