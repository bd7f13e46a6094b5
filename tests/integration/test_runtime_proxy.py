"""The interface in front of another server in the pod: the same guarantees, whatever that server does."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import JSON, Answer, Connection, Runtime, free_port, process_of_ours, until

pytestmark = pytest.mark.process

CHAT = "/v1/chat/completions"


class Proxied(Runtime):
    """A proxy and the server behind it."""

    server: subprocess.Popen[bytes]
    server_port: int

    def behind(self) -> list[str]:
        """The names of the requests that run in the server, asked past the proxy."""
        running: list[str] = Runtime(self.process, self.server_port, self.folder).ask("GET", "/running").json
        return running


@contextlib.contextmanager
def proxied(folder: Path, *flags: str) -> Iterator[Proxied]:
    server_port = free_port()
    server = subprocess.Popen([sys.executable, str(Path(__file__).with_name("stub_server.py")), str(server_port)])
    command = ["runtimes.proxy", "--upstream-port", str(server_port), "--protocol", "mlflow", "--protocol", "openai"]
    try:
        with process_of_ours(folder, [*command, *flags]) as runtime:
            proxy = Proxied(runtime.process, runtime.port, runtime.folder)
            proxy.server, proxy.server_port = server, server_port
            yield proxy
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    flags = ("--deadline-s", "20", "--max-in-flight", "16", "--idle-s", "1.5", "--path", "/own")
    with proxied(tmp_path_factory.mktemp("proxy"), *flags) as runtime:
        runtime.wait_ready()
        yield runtime


def order(**what: Any) -> bytes:
    return json.dumps(what).encode()


async def once(runtime: Runtime, path: str = "/invocations", **what: Any) -> Answer:
    async with Connection.open(runtime.port) as connection:
        return await connection.ask("POST", path, order(**what), JSON)  # type: ignore[no-any-return]


@pytest.mark.case("runtimes-C1", "runtimes-C3", "runtimes-C4")
def test_until_the_server_is_healthy_predictions_are_503(tmp_path: Path) -> None:
    with proxied(tmp_path) as runtime:
        assert [runtime.ask("GET", path).status for path in ("/health", "/live")] == [503, 200]
        assert (runtime.post({}).status, runtime.post({}).headers["retry-after"]) == (503, "1")
        runtime.wait_ready()
        assert runtime.post({}).status == 200


def test_a_server_that_never_is_healthy_is_the_reason_of_the_end(tmp_path: Path) -> None:
    with proxied(tmp_path, "--health-path", "/nothing", "--load-timeout-s", "1") as runtime:
        assert runtime.process.wait(20) == 3
        assert runtime.reason == "/nothing did not answer 200 within 1 s\n"


def test_a_request_passes_with_its_body_and_headers_and_the_id_of_the_interface(proxy: Proxied) -> None:
    answer = proxy.post({"a": 1}, x_request_id="mine", x_own="2", connection="x-drop")
    assert (answer.json["got"], answer.headers["x-own"], answer.headers["x-request-id"]) == ({"a": 1}, "1", "mine")
    seen = answer.json["headers"]
    assert (seen["x-request-id"], seen["x-own"], seen["content-type"]) == ("mine", "2", "application/json")
    assert "server" not in answer.headers


@pytest.mark.case("runtimes-I4")
def test_only_declared_paths_pass(proxy: Proxied) -> None:
    assert proxy.ask("POST", "/own", order(), JSON).status == 200
    assert [proxy.ask("GET", path).status for path in ("/admin", "/running", "/docs")] == [404, 404, 404]


@pytest.mark.case("runtimes-A23")
def test_a_packed_body_arrives_plain(proxy: Proxied) -> None:
    plain = proxy.post({"a": "b"})
    packed = proxy.ask("POST", "/invocations", gzip.compress(order(a="b")), JSON | {"content-encoding": "gzip"})
    assert packed.json["got"] == plain.json["got"] == {"a": "b"}
    assert "content-encoding" not in packed.json["headers"]


@pytest.mark.case("runtimes-A21")
def test_nan_leaves_as_null_and_is_counted(proxy: Proxied) -> None:
    before = proxy.metric("knobless_runtime_non_finite_values_total")
    assert proxy.post({"odd": True}).json == [None, None, 1.0]
    assert proxy.metric("knobless_runtime_non_finite_values_total") == before + 2


@pytest.mark.case("runtimes-B3", "runtimes-B4", "runtimes-B5")
def test_errors_have_our_shape_and_nothing_of_the_server_s_or_the_request_s(proxy: Proxied) -> None:
    failed = proxy.post({"fail": True})
    refused = proxy.post({"refuse": "canary-4711"})
    chat = proxy.ask("POST", CHAT, order(refuse="canary-4711"), JSON)
    assert (failed.status, failed.error["code"]) == (500, "INTERNAL_ERROR")
    assert (refused.status, refused.error["message"], refused.error["field"]) == (400, "`x` is ...", "x")
    assert chat.json["error"] == {
        "message": "`x` is ...", "type": "invalid_request_error", "param": "x", "code": "bad_request"
    }  # fmt: skip
    assert not any(b"4711" in answer.body for answer in (failed, refused, chat))


@pytest.mark.case("runtimes-C5")
async def test_probes_are_answered_while_all_of_the_server_waits(proxy: Proxied) -> None:
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(once(proxy, sleep=1.5))
        await asyncio.to_thread(until, lambda: proxy.metric("knobless_runtime_requests_in_flight") == 1, "a request")
        assert (await asyncio.to_thread(proxy.ask, "GET", "/health")).status == 200
        assert not slow.done()
    assert slow.result().status == 200


@pytest.mark.case("runtimes-D5", "runtimes-D6")
async def test_a_deadline_ends_the_request_in_the_server_too(proxy: Proxied) -> None:
    async with Connection.open(proxy.port) as connection:
        headers = JSON | {"x-knobless-deadline-ms": "300"}
        answer = await connection.ask("POST", "/invocations", order(name="late", sleep=30), headers)
    assert (answer.status, answer.error["code"]) == (504, "DEADLINE_EXCEEDED")
    await asyncio.to_thread(until, lambda: "late" not in proxy.behind(), "the end behind", most_s=5)


# Streams.


async def streamed(connection: Connection) -> tuple[dict[str, str], list[bytes]]:
    """Head and chunks of a chunked answer, to its end."""
    head = (await connection.reader.readuntil(b"\r\n\r\n")).decode()
    headers = dict(line.lower().split(": ", 1) for line in head.strip().split("\r\n")[1:])
    chunks = []
    while size := int(await connection.reader.readline(), 16):
        chunks.append((await connection.reader.readexactly(size + 2))[:-2])
    await connection.reader.readline()
    return headers, chunks


@pytest.mark.case("runtimes-C12", "runtimes-I6")
async def test_a_stream_passes_as_it_comes_and_whole(proxy: Proxied) -> None:
    async with Connection.open(proxy.port) as connection:
        await connection.send("POST", CHAT, order(events=250, pause=0.002), JSON)
        headers, chunks = await streamed(connection)
        assert (headers["content-type"], headers["x-request-id"] != "") == ("text/event-stream", True)
        events = b"".join(chunks).split(b"\n\n")
        assert events[:250] == [b'data: {"n": %d}' % number for number in range(250)]
        assert (events[250:], len(chunks) > 100) == ([b"data: [DONE]", b""], True)
        assert (await connection.ask("POST", "/invocations", order(), JSON)).status == 200


async def test_a_stream_passes_where_nobody_expects_one(proxy: Proxied) -> None:
    async with Connection.open(proxy.port) as connection:
        await connection.send("GET", "/v1/models")
        _, chunks = await streamed(connection)
        assert b"".join(chunks) == b'data: {"n": 0}\n\ndata: {"n": 1}\n\ndata: [DONE]\n\n'


@pytest.mark.case("runtimes-I2")
@pytest.mark.parametrize("what", [{"events": 1000, "pause": 0.05}, {"sleep": 30}])
async def test_a_client_that_leaves_ends_its_request_in_the_server_at_once(
    proxy: Proxied, what: dict[str, Any]
) -> None:
    async with Connection.open(proxy.port) as connection:
        await connection.send("POST", CHAT, order(name="gone", **what), JSON)
        await asyncio.to_thread(until, lambda: "gone" in proxy.behind(), "the request behind")
    await asyncio.to_thread(until, lambda: "gone" not in proxy.behind(), "the end behind", most_s=5)
    until(lambda: proxy.metric("knobless_runtime_requests_in_flight") == 0, "rest")


@pytest.mark.case("runtimes-I2")
async def test_a_client_that_leaves_ends_what_runs_of_all_that_it_sent_ahead(proxy: Proxied) -> None:
    async with Connection.open(proxy.port) as connection:
        for number in range(3):
            await connection.send("POST", CHAT, order(name=f"ahead {number}", sleep=30, pad="x" * 200_000), JSON)
            await asyncio.sleep(0.15)
        await asyncio.to_thread(until, lambda: "ahead 0" in proxy.behind(), "the request behind")
    await asyncio.to_thread(until, lambda: not proxy.behind(), "the end behind", most_s=5)
    until(lambda: proxy.metric("knobless_runtime_requests_in_flight") == 0, "rest")
    assert not proxy.behind()


async def test_a_stream_that_falls_silent_ends_with_an_error_event(proxy: Proxied) -> None:
    async with Connection.open(proxy.port) as connection:
        await connection.send("POST", CHAT, order(name="silent", events=2, pause=30), JSON)
        _, chunks = await streamed(connection)
    assert json.loads(chunks[-1].removeprefix(b"data: "))["error"]["code"] == "deadline_exceeded"
    await asyncio.to_thread(until, lambda: "silent" not in proxy.behind(), "the end behind", most_s=5)


# A server that dies or hangs.


@pytest.mark.case("runtimes-C15", "runtimes-G7")
async def test_a_server_that_dies_fails_its_requests_and_readiness_and_hangs_nobody(tmp_path: Path) -> None:
    with proxied(tmp_path) as runtime:
        runtime.wait_ready()
        answers = await asyncio.gather(
            once(runtime, sleep=20), once(runtime, sleep=20), once(runtime, sleep=0.2, die=1)
        )
        assert [answer.status for answer in answers] == [500, 500, 500]
        assert "4711" not in answers[0].error["message"]
        assert (await once(runtime)).status == 503
        until(lambda: runtime.ask("GET", "/health").status == 503, "the end of readiness", most_s=5)
        assert runtime.ask("GET", "/live").status == 200


@pytest.mark.case("runtimes-C15")
async def test_a_server_that_hangs_is_not_ready_and_ready_again_once_it_goes_on(tmp_path: Path) -> None:
    with proxied(tmp_path, "--deadline-s", "3") as runtime:
        runtime.wait_ready()
        assert (await once(runtime, stop=True)).status == 504
        until(lambda: runtime.ask("GET", "/health").status == 503, "the end of readiness", most_s=5)
        os.kill(runtime.server.pid, signal.SIGCONT)
        until(lambda: runtime.ask("GET", "/health").status == 200, "readiness", most_s=5)


# The end.


@pytest.mark.case("runtimes-C7", "runtimes-C10", "runtimes-C11", "runtimes-C12", "runtimes-C18", "runtimes-C19")
async def test_after_sigterm_streams_and_requests_are_finished_and_new_ones_served(tmp_path: Path) -> None:
    with proxied(tmp_path, "--linger-s", "30") as runtime:
        runtime.wait_ready()
        async with Connection.open(runtime.port) as streaming, Connection.open(runtime.port) as idle:
            await idle.ask("POST", "/invocations", order(), JSON)
            await streaming.send("POST", CHAT, order(events=100, pause=0.02), JSON)
            in_flight = asyncio.create_task(once(runtime, sleep=1.5))
            await asyncio.to_thread(until, lambda: runtime.metric("knobless_runtime_requests_in_flight") == 2, "load")
            runtime.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(until, lambda: runtime.ask("GET", "/health").status == 503, "unreadiness", most_s=1)
            assert runtime.ask("GET", "/live").status == 200
            late = await idle.ask("POST", "/invocations", order(), JSON)
            _, chunks = await streamed(streaming)
            answer = await in_flight
        assert (late.status, late.headers["connection"]) == (200, "close")
        assert (answer.status, len(b"".join(chunks).split(b"\n\n"))) == (200, 102)
        assert await asyncio.to_thread(runtime.process.wait, 20) == 0
