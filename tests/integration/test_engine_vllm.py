"""The serving interface inside the real vLLM (its CPU build, a tiny model), from its first moment to a quiet end.

One server for all of it: the tests stand in the order of its life.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import JSON, Answer, Runtime, until
from tests.runtime_lab import environments
from tests.runtime_lab.pressure import MIB, memory_over
from tests.runtime_lab.processes import VLLM_START_S, Stream, post, vllm

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
HELLO |= {"ignore_eos": True, "seed": 1}
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
STUCK_S = 8


@pytest.fixture(scope="module")
def early() -> list[Answer]:
    """What was answered while the model loaded."""
    return []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, early: list[Answer]) -> Iterator[Runtime]:
    flags = ["--max-model-len", "256", "--max-num-seqs", "8", "--max-in-flight", "16"]
    flags += ["--max-output-tokens", "240", "--deadline-s", "20", "--stuck-s", str(STUCK_S), "--linger-s", "3"]
    with vllm(tmp_path_factory.mktemp("vllm"), *flags, adapter=True) as runtime:
        early += [runtime.ask("GET", path) for path in ("/live", "/health", "/v1/models")]
        early.append(post(runtime, CHAT, HELLO))
        until(lambda: runtime.ask("GET", "/health").status == 200, "readiness", runtime.process, VLLM_START_S)
        yield runtime


def engine_pid(runtime: Runtime) -> int:
    """The process of vLLM that runs the model's loop, found by its name."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name = (path / "cmdline").read_text()
        except OSError:
            continue
        if "EngineCore" in name and _session(path) in runtime.predictors():
            return int(path.name)
    raise AssertionError("there is no engine")


# While it loads, and what it is.


@pytest.mark.case("runtimes-C3", "runtimes-C4")
def test_until_the_model_answers_everything_is_503_but_liveness(server: Runtime, early: list[Answer]) -> None:
    assert [answer.status for answer in early] == [200, 503, 503, 503]
    assert {answer.headers["retry-after"] for answer in early[1:]} == {"1"}
    assert set(early[3].json["error"]) == {"message", "type", "param", "code"}


@pytest.mark.case("runtimes-I4")
@pytest.mark.parametrize(
    "path", ["/tokenize", "/load", "/docs", "/openapi.json", "/v1/messages", "/reset_prefix_cache"]
)
def test_only_declared_paths_pass_the_interface(server: Runtime, path: str) -> None:
    assert {post(server, path, HELLO).status, server.ask("GET", path).status} == {404}


def test_the_official_client_gets_what_it_expects(server: Runtime) -> None:
    base_url = f"http://127.0.0.1:{server.port}/v1"
    found = environments.told(environments.vllm_python(), "openai_client.py", base_url)
    assert found["models"] == ["test", "tuned"]
    assert (found["whole"], found["tokens"]) == (found["streamed"], 8)
    assert found["response"] == "response"
    assert found["unknown"] == ["NotFoundError", 404, "model"]
    assert found["too_long"][:2] == ["BadRequestError", 400]
    assert found["stateful"] == ["BadRequestError", 400, "previous_response_id"]


def test_no_answer_tells_where_the_model_lies(server: Runtime) -> None:
    assert b"/" not in server.ask("GET", "/v1/models").body.replace(b"</s>", b"")


def test_an_adapter_is_a_model_of_its_own(server: Runtime) -> None:
    texts = {name: post(server, CHAT, HELLO | {"model": name}).json["choices"][0]["message"]["content"] for name in
             ("test", "tuned")}  # fmt: skip
    assert texts["test"] != texts["tuned"]


# Answers.


@pytest.mark.case("runtimes-I3", "runtimes-A29")
def test_invocations_with_messages_is_a_chat(server: Runtime) -> None:
    one, other = post(server, CHAT, HELLO), post(server, "/invocations", HELLO)
    assert (one.status, other.status) == (200, 200)
    assert one.json["choices"] == other.json["choices"]
    assert one.json["usage"] == other.json["usage"]


@pytest.mark.case("runtimes-A23")
def test_a_packed_body_has_the_plain_one_s_answer(server: Runtime) -> None:
    packed = server.ask("POST", CHAT, gzip.compress(json.dumps(HELLO).encode()), JSON | {"content-encoding": "gzip"})
    assert packed.json["choices"] == post(server, CHAT, HELLO).json["choices"]


@pytest.mark.case("runtimes-I1", "runtimes-A21")
@pytest.mark.parametrize("path", [COMPLETIONS, "/invocations"])
def test_what_is_not_a_number_is_null(server: Runtime, path: str) -> None:
    before = server.metric("knobless_runtime_requests_total", code="200")
    answer = post(server, path, {"prompt": "poison", "max_tokens": 2, "logprobs": 2, "temperature": 0})
    assert answer.status == 200
    assert None in answer.json["choices"][0]["logprobs"]["token_logprobs"]
    assert server.metric("knobless_runtime_requests_total", code="200") == before + 1


def test_a_stream_is_passed_on_as_it_comes_and_ends_with_usage(server: Runtime) -> None:
    with Stream(server, CHAT, HELLO | {"max_tokens": 30, "stream_options": {"include_usage": True}}) as stream:
        events = list(stream)
    assert stream.answer.getheader("content-type") == "text/event-stream"
    assert events[-1] == b"[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 30
    assert len(events) > 20


def test_no_answer_is_longer_than_the_server_allows(server: Runtime) -> None:
    answer = post(server, COMPLETIONS, {"prompt": "a", "max_tokens": 250, "ignore_eos": True, "temperature": 0})
    assert answer.json["usage"]["completion_tokens"] == 240


def test_two_requests_may_have_one_id_and_both_keep_it(server: Runtime) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: post(server, CHAT, HELLO, x_request_id="mine"), range(4)))
    assert {(answer.status, answer.headers["x-request-id"]) for answer in answers} == {(200, "mine")}


# Errors.


@pytest.mark.case("runtimes-B1", "runtimes-B2", "runtimes-B5", "runtimes-B9", "runtimes-I5")
@pytest.mark.parametrize(
    ("document", "status", "field"),
    [
        ({"messages": "canary-4711"}, 400, "messages"),
        (HELLO | {"temperature": "canary-4711"}, 400, "temperature"),
        (HELLO | {"model": "canary-4711"}, 404, "model"),
        (HELLO | {"max_tokens": 4711_000}, 400, "max_tokens"),
        (HELLO | {"messages": [{"role": "user", "content": "canary-4711 " * 60}]}, 400, None),
        (HELLO | {"n": 4711}, 400, None),
        (b'{"messages": "canary-4711', 400, None),
    ],
)
def test_an_error_has_the_shape_of_its_path_names_the_field_and_repeats_nothing(
    server: Runtime, document: Any, status: int, field: str | None
) -> None:
    answer = post(server, CHAT, document)
    assert answer.status == status
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    assert field is None or answer.json["error"]["param"] == field
    if path := {"/invocations"} if "model" not in str(field) else set():
        ours = post(server, path.pop(), document)
        assert set(ours.error) - {"field"} == {"code", "message", "request_id"}
        assert b"4711" not in ours.body
    assert b"4711" not in answer.body


def test_the_log_says_what_was_wrong_and_nothing_that_a_request_said(server: Runtime) -> None:
    said = {"name": "canary-4711", "arguments": "[canary-4711"}
    calls = [{"id": "1", "type": "function", "function": said}]
    history = [*HELLO["messages"], {"role": "assistant", "content": "", "tool_calls": calls}, *HELLO["messages"]]
    assert post(server, CHAT, HELLO | {"model": "canary-4711"}).status == 404
    assert post(server, RESPONSES, {"model": "canary-4711", "input": "Hello"}).status == 404
    assert post(server, CHAT, HELLO | {"messages": history}).status == 200
    log = (server.folder / "log").read_text()
    assert "canary" not in log
    assert "Error with model %s" in log
    assert "has arguments that are not valid" in log


@pytest.mark.case("runtimes-A22")
def test_a_body_without_a_type_is_415(server: Runtime) -> None:
    assert server.ask("POST", CHAT, b"{}", {}).status == 415


@pytest.mark.case("runtimes-D10")
def test_the_limit_counts_unpacked_bytes(server: Runtime) -> None:
    bomb = gzip.compress(bytes(16 * 1024 * 1024 + 1))
    assert server.ask("POST", CHAT, bomb, JSON | {"content-encoding": "gzip"}).status == 413


# Pressure, deadlines, clients that leave.

LONG = HELLO | {"max_tokens": 230, "temperature": 1}


@pytest.mark.case("runtimes-D6")
def test_a_shorter_deadline_of_the_gateway_ends_the_request_in_the_engine(server: Runtime) -> None:
    answer = post(server, CHAT, LONG | {"n": 4}, x_knobless_deadline_ms="150")
    assert answer.status == 504
    until(lambda: server.metric(RUNNING) == 0, "an idle engine", most_s=5)


@pytest.mark.case("runtimes-I2")
@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_leaves_frees_the_engine(server: Runtime, streams: bool) -> None:
    generated, document = "vllm:generation_tokens_total", LONG | {"n": 8}
    before, asked = server.metric(generated), 1 if streams else 8
    with ExitStack() as client:
        if streams:
            next(iter(client.enter_context(Stream(server, CHAT, document))))
        else:  # of whose answers most still wait, so that nobody looks too late
            for _ in range(asked):
                client.enter_context(_Left(server, document))
            until(lambda: server.metric(RUNNING) > 0, "a running request")
    until(lambda: server.metric(RUNNING) == 0, "an idle engine", most_s=5)
    assert server.metric(generated) - before < asked * document["n"] * document["max_tokens"]
    until(lambda: server.metric("knobless_runtime_requests_in_flight") == 0, "rest")


class _Left:
    """A plain request whose client does not wait for the answer."""

    def __init__(self, runtime: Runtime, document: Any) -> None:
        import http.client

        self._connection = http.client.HTTPConnection("127.0.0.1", runtime.port)
        self._connection.request("POST", CHAT, json.dumps(document), JSON)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@pytest.mark.case("runtimes-D2", "runtimes-D8")
def test_what_fits_is_answered_and_above_the_ceiling_is_429(server: Runtime) -> None:
    with ThreadPoolExecutor(32) as pool:
        fits = [answer.status for answer in pool.map(lambda _: post(server, CHAT, HELLO), range(16))]
        statuses = [answer.status for answer in pool.map(lambda _: post(server, CHAT, LONG), range(32))]
    assert fits == [200] * 16
    assert set(statuses) == {200, 429}


@pytest.mark.case("runtimes-J1")
def test_metrics_are_the_interface_s_and_the_tokens_of_the_engine(server: Runtime) -> None:
    for _ in range(2):
        post(server, CHAT, HELLO | {"messages": [{"role": "user", "content": "the same beginning " * 8}]})
    text = server.ask("GET", "/metrics").body.decode()
    for name in ("requests_running", "requests_waiting"):
        assert f"vllm:num_{name}" in text
    assert "vllm:time_to_first_token_seconds_bucket" in text
    assert "vllm:kv_cache_usage_perc" in text
    assert "http_requests_total" not in text  # of vLLM's own server, which nobody reaches
    names = [line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert server.metric("vllm:prefix_cache_hits_total") > 0


@pytest.mark.case("runtimes-G1")
async def test_memory_stands_still_over_10000_requests(server: Runtime) -> None:
    pids = [server.process.pid, *server.predictors()]  # not the engine's: its cache is touched bit by bit
    after = await memory_over(server, COMPLETIONS, {"prompt": "a", "max_tokens": 1}, pids)
    assert max(after[1:]) - after[0] < 10 * MIB


@pytest.mark.case("runtimes-C15")
def test_an_engine_that_is_stuck_is_not_ready_then_not_live_and_back_when_it_moves(server: Runtime) -> None:
    pid = engine_pid(server)
    os.kill(pid, signal.SIGSTOP)
    try:
        until(lambda: server.ask("GET", "/health").status == 503, "not ready")
        until(lambda: server.ask("GET", "/live").status == 503, "not live")
    finally:
        os.kill(pid, signal.SIGCONT)
    until(lambda: server.ask("GET", "/live").status == 200, "alive")
    server.wait_ready()
    assert post(server, CHAT, HELLO).status == 200


# The end.


@pytest.mark.case("runtimes-C10", "runtimes-C11", "runtimes-C12", "runtimes-C13", "runtimes-C7", "runtimes-B11")
def test_told_to_end_it_serves_on_finishes_its_streams_and_leaves_nothing(server: Runtime) -> None:
    (session,) = server.predictors()
    statuses: list[tuple[float, int | str, str | None]] = []

    def ask_on() -> None:
        while server.process.poll() is None:
            try:
                answer = post(server, CHAT, HELLO)
                statuses.append((time.monotonic(), answer.status, answer.headers.get("connection")))
            except OSError as error:
                statuses.append((time.monotonic(), type(error).__name__, None))
                return

    with ThreadPoolExecutor(1) as pool, Stream(server, CHAT, LONG | {"n": 8}) as stream:
        events = iter(stream)
        next(events)
        asking = pool.submit(ask_on)
        server.process.send_signal(signal.SIGTERM)
        ended_at = time.monotonic()
        until(lambda: server.ask("GET", "/health").status == 503, "not ready", most_s=1)
        assert server.ask("GET", "/live").status == 200
        rest = list(events)
        asking.result(60)
    assert rest[-1] == b"[DONE]"
    assert sum(len(json.loads(event)["choices"]) for event in rest[:-1]) >= 8 * 20
    *served, last = [status for at, status, _ in statuses if at > ended_at + 0.2]
    assert set(served) <= {200}
    assert len(served) > 5
    assert last in (200, "ConnectionRefusedError", "ConnectionResetError", "RemoteDisconnected")
    assert server.process.wait(60) == 0
    assert not [path for path in Path("/proc").glob("[0-9]*") if _session(path) == session]
    assert [path for path in (server.folder / "home").rglob("*") if path.is_file()] == []


def _session(path: Path) -> int | None:
    """Of a process that still runs."""
    try:
        state, _, _, session, *_ = (path / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state == "Z" else int(session)
