"""A runtime's life: loading, readiness, deadlines, clients that leave, predictors that die, and a quiet end."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import (
    JSON,
    Answer,
    Connection,
    Runtime,
    comm,
    model_python,
    models,
    serve,
    until,
)

pytestmark = pytest.mark.process

ROW: dict[str, Any] = {
    "qty": 3, "price": 9.5, "ratio": 0.25, "city": "Oslo", "member": False, "seen": "2024-03-01", "score": 0.5
}  # fmt: skip
IN_FLIGHT = "knobless_runtime_requests_in_flight"
WAITING = "knobless_runtime_requests_waiting"
RESTARTS = "knobless_runtime_predictor_restarts_total"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("acts", tmp_path_factory.mktemp("acts"), "--predictors", "1", "--deadline-s", "40") as runtime:
        yield runtime.wait_ready()


@pytest.fixture
def acts(shared: Runtime) -> Runtime:
    """The server that tests share where they leave it as it was: ready, with nothing in flight."""
    shared.wait_ready()
    until(lambda: shared.metric(IN_FLIGHT) == 0, "rest")
    return shared


def order(what: str) -> bytes:
    return json.dumps({"dataframe_records": [ROW | {"city": what}]}).encode()


async def once(runtime: Runtime, what: str, **headers: str) -> Answer:
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    async with Connection.open(runtime.port) as connection:
        return await connection.ask("POST", "/invocations", order(what), JSON | own)  # type: ignore[no-any-return]


async def shows(runtime: Runtime, name: str, value: float) -> None:
    await asyncio.to_thread(until, lambda: runtime.metric(name) == value, f"{name} = {value}")


# Loading.


@pytest.mark.case("runtimes-C1", "runtimes-C3", "runtimes-C4", "runtimes-D4")
def test_until_the_model_answers_everything_is_503_but_liveness(tmp_path: Path) -> None:
    with serve("slow", tmp_path, "--predictors", "1", "--deadline-s", "1") as runtime:
        early = [runtime.ask("GET", path) for path in ("/health", "/ping", "/version", "/live", "/metrics")]
        predicted = runtime.post({"inputs": {"x": [1.0]}})
        assert [answer.status for answer in early] == [503, 503, 503, 200, 200]
        assert (predicted.status, predicted.headers["retry-after"]) == (503, "1")
        runtime.wait_ready()  # its load takes longer than the deadline of a prediction
        assert runtime.post({"inputs": {"x": [1.0]}}).json == {"predictions": [1.0]}


@pytest.mark.case("runtimes-C1", "runtimes-C22")
def test_a_model_that_can_not_be_loaded_ends_the_process_with_one_line(tmp_path: Path) -> None:
    with serve("broken", tmp_path, "--predictors", "2") as runtime:
        assert runtime.process.wait(60) == 3
        assert runtime.reason.count("\n") == 1
        assert "the weights are corrupt at byte 7" in runtime.reason


def test_a_model_that_fails_on_its_own_example_is_never_ready(tmp_path: Path) -> None:
    with serve("fails", tmp_path, "--predictors", "1") as runtime:
        assert runtime.process.wait(60) == 3
        assert runtime.reason == "the model failed on its own input example: LookupError: no such shard\n"


def test_a_load_that_takes_too_long_is_told_as_that(tmp_path: Path) -> None:
    with serve("slow", tmp_path, "--predictors", "1", "--load-timeout-s", "1") as runtime:
        assert runtime.process.wait(60) == 3
        assert runtime.reason == "the model did not load within 1 s\n"


def test_a_python_that_is_not_there_is_told_as_that(tmp_path: Path) -> None:
    with serve("iris", tmp_path, "--predictors", "1", "--model-python", "/nowhere/python") as runtime:
        assert runtime.process.wait(60) == 3
        assert "/nowhere/python can't be started: No such file or directory" in runtime.reason


def test_a_front_that_can_not_listen_takes_the_predictor_that_it_began_with_along(tmp_path: Path) -> None:
    begun, python = tmp_path / "begun", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho $$ > {begun}\nexec {model_python()} "$@"\n')
    python.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ("--predictors", "1", "--model-python", str(python), "--port", str(taken.getsockname()[1]))
        with serve("iris", tmp_path / "served", *flags) as runtime:
            assert runtime.process.wait(60) == 3
            assert "ddress already in use" in runtime.reason
    until(begun.exists, "a predictor that has begun")
    until(lambda: comm(int(begun.read_text())) == "", "its end")


def test_what_a_model_was_written_with_is_imported_before_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """skops looks for 800 names in every module that there is: after MLflow that takes a quarter of a second more."""
    assert "serialization_format: skops" in (models() / "iris" / "MLmodel").read_text()
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with serve("iris", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        imported = re.findall(r"^import time:.*\| +(\S+)$", (runtime.folder / "log").read_text(), re.MULTILINE)
        assert imported.index("skops.io._persist") < imported.index("mlflow.version")


@pytest.mark.case("runtimes-F1", "runtimes-F2")
def test_each_predictor_loads_the_model_and_has_its_share_of_the_threads(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "2") as runtime:
        runtime.wait_ready()
        assert len(runtime.predictors()) == 2
        assert runtime.metric("knobless_runtime_predictors_ready") == 2
        assert runtime.metric("knobless_runtime_self_test_seconds") > 0
        assert runtime.post(order("threads")).json == {"predictions": ["1"]}


# Deadlines and clients that leave.


@pytest.mark.case("runtimes-C5")
async def test_probes_are_answered_while_a_prediction_blocks(acts: Runtime) -> None:
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(once(acts, "sleep:2"))
        await shows(acts, IN_FLIGHT, 1)
        for path in ("/health", "/live", "/ping"):
            assert (await asyncio.to_thread(acts.ask, "GET", path)).status == 200
            assert not slow.done()
    assert slow.result().status == 200


@pytest.mark.case("runtimes-D1", "runtimes-D5")
async def test_a_stuck_prediction_is_504_and_its_predictor_is_replaced(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "2", "--deadline-s", "2") as runtime:
        before = set(runtime.wait_ready().predictors())
        async with asyncio.TaskGroup() as group:
            late = group.create_task(once(runtime, "sleep:3600"))
            await shows(runtime, IN_FLIGHT, 1)
            beside = group.create_task(once(runtime, "Oslo"))
        assert (late.result().status, late.result().error["code"]) == (504, "DEADLINE_EXCEEDED")
        assert beside.result().status == 200
        until(lambda: len(set(runtime.predictors()) & before) == 1, "the stuck predictor's end")
        await shows(runtime, "knobless_runtime_predictors_ready", 2)
        assert (await once(runtime, "Oslo")).status == 200
        assert runtime.metric(RESTARTS, cause="stuck") == 1


@pytest.mark.case("runtimes-D6")
async def test_a_shorter_deadline_of_the_gateway_counts_and_kills_no_predictor(acts: Runtime) -> None:
    pids, restarts = acts.predictors(), acts.metric(RESTARTS)
    early = await once(acts, "sleep:1", x_knobless_deadline_ms="200")
    after = await once(acts, "Oslo")  # the abandoned call still holds its predictor: this one waits for it
    assert (early.status, after.status) == (504, 200)
    assert acts.predictors() == pids
    assert acts.metric(RESTARTS) == restarts


@pytest.mark.case("runtimes-D5")
async def test_a_request_that_expires_while_it_waits_never_starts(acts: Runtime) -> None:
    pids = acts.predictors()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(once(acts, "sleep:1.5"))
        await shows(acts, IN_FLIGHT, 1)
        expired = group.create_task(once(acts, "die", x_knobless_deadline_ms="200"))
    assert (running.result().status, expired.result().status) == (200, 504)
    assert (await once(acts, "Oslo")).status == 200
    assert acts.predictors() == pids  # what would have ended the predictor was never run


async def test_a_client_that_leaves_while_it_waits_takes_its_work_along(acts: Runtime) -> None:
    pids = acts.predictors()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(once(acts, "sleep:2"))
        await shows(acts, IN_FLIGHT, 1)
        async with Connection.open(acts.port) as connection:
            await connection.send("POST", "/invocations", order("die"), JSON)
            await shows(acts, WAITING, 1)
        await shows(acts, WAITING, 0)
        assert not running.done()
    assert running.result().status == 200
    assert (await once(acts, "Oslo")).status == 200
    assert acts.metric("knobless_runtime_requests_total", code="499") >= 1
    assert acts.predictors() == pids


async def test_a_client_that_leaves_in_the_middle_of_its_body_costs_nothing(acts: Runtime) -> None:
    async with Connection.open(acts.port) as connection:
        connection.writer.write(
            b"POST /invocations HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{"
        )
        await shows(acts, IN_FLIGHT, 1)
    await shows(acts, IN_FLIGHT, 0)
    assert (await once(acts, "Oslo")).status == 200


# Predictors that die.


@pytest.mark.case("runtimes-C20", "runtimes-G7")
@pytest.mark.parametrize("what", ["die", "exit"])
async def test_a_predictor_that_ends_fails_its_own_request_and_no_other(acts: Runtime, what: str) -> None:
    async with asyncio.TaskGroup() as group:
        own = group.create_task(once(acts, what, x_request_id="own"))
        await asyncio.to_thread(until, lambda: own.done() or acts.metric(IN_FLIGHT) == 1, "the fatal request")
        others = [group.create_task(once(acts, "Oslo")) for _ in range(2)]
    assert (own.result().status, own.result().error["code"]) == (500, "INTERNAL_ERROR")
    assert [task.result().status for task in others] == [200, 200]  # they waited for the replacement


@pytest.mark.case("runtimes-C15", "runtimes-C20")
def test_without_a_predictor_it_is_not_ready_but_alive_and_then_ready_again(acts: Runtime) -> None:
    (pid,) = acts.predictors()
    died = acts.metric(RESTARTS, cause="died")
    os.kill(pid, signal.SIGKILL)
    until(lambda: acts.ask("GET", "/health").status == 503, "the end of readiness")
    assert acts.ask("GET", "/live").status == 200
    until(lambda: acts.ask("GET", "/health").status == 200, "a replacement")
    assert acts.post(order("Oslo")).status == 200
    assert acts.metric(RESTARTS, cause="died") == died + 1


def test_predictors_do_not_outlive_a_front_process_that_is_killed(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "1") as runtime:
        (pid,) = runtime.wait_ready().predictors()
        runtime.process.kill()
        runtime.process.wait()
        until(lambda: not Path(f"/proc/{pid}").exists(), "the predictor's end")


# The end.


@pytest.mark.case("runtimes-C10", "runtimes-C11", "runtimes-C19")
async def test_after_sigterm_it_is_not_ready_but_serves_what_still_comes(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "1", "--deadline-s", "20") as runtime:
        runtime.wait_ready()
        async with Connection.open(runtime.port) as idle:
            assert (await idle.ask("POST", "/invocations", order("Oslo"), JSON)).headers.get("connection") is None
            async with asyncio.TaskGroup() as group:
                running = group.create_task(once(runtime, "sleep:2"))
                await shows(runtime, IN_FLIGHT, 1)
                runtime.process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(until, lambda: runtime.ask("GET", "/health").status == 503, "unreadiness")
                assert runtime.ask("GET", "/live").status == 200
                new = group.create_task(once(runtime, "Oslo"))
                old = group.create_task(idle.ask("POST", "/invocations", order("Oslo"), JSON))
        answers = [running.result(), new.result(), old.result()]
        assert [(answer.status, answer.headers["connection"]) for answer in answers] == [(200, "close")] * 3
        assert await asyncio.to_thread(runtime.process.wait, 20) == 0


@pytest.mark.case("autoscaler-D7")
@pytest.mark.case("runtimes-C7", "runtimes-C9")
async def test_sigterm_under_load_loses_no_request(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "2", "--deadline-s", "10", "--linger-s", "30") as runtime:
        runtime.wait_ready()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(keep_asking(runtime, stop)) for _ in range(8)]
            await asyncio.to_thread(
                until, lambda: runtime.metric("knobless_runtime_requests_total", code="200") > 50, "load"
            )
            runtime.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(until, lambda: runtime.ask("GET", "/health").status == 503, "the end of readiness")
            await asyncio.sleep(1)  # the load balancer is still sending
            stop.set()
        statuses = [status for client in clients for status in client.result()]
        assert statuses == [200] * len(statuses)
        assert len(statuses) > 50
        assert await asyncio.to_thread(runtime.process.wait, 20) == 0


async def keep_asking(runtime: Runtime, stop: asyncio.Event) -> list[int]:
    """Ask over a connection kept alive; a new one only where the server announced the end of the old one."""
    statuses: list[int] = []
    while not stop.is_set():
        async with Connection.open(runtime.port) as connection:
            while not stop.is_set():
                answer = await connection.ask("POST", "/invocations", order("sleep:0.005"), JSON)
                statuses.append(answer.status)
                if answer.headers.get("connection") == "close":
                    break
    return statuses


@pytest.mark.case("runtimes-C13")
async def test_once_the_window_is_over_new_requests_are_told_to_go_elsewhere(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "1", "--deadline-s", "20", "--linger-s", "0.5") as runtime:
        runtime.wait_ready()
        async with Connection.open(runtime.port) as early, asyncio.TaskGroup() as group:
            await early.send("POST", "/invocations", order("sleep:3"), JSON)
            await shows(runtime, IN_FLIGHT, 1)
            runtime.process.send_signal(signal.SIGTERM)
            closed = group.create_task(asyncio.to_thread(until, lambda: not accepts(runtime), "a closed socket"))
            await closed
            answer = await early.receive()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await asyncio.to_thread(runtime.process.wait, 20) == 0


def accepts(runtime: Runtime) -> bool:
    try:
        runtime.ask("GET", "/live")
    except (OSError, http.client.HTTPException):
        return False
    return True


@pytest.mark.case("runtimes-C21")
async def test_a_prediction_that_never_returns_can_not_hold_the_end_up(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "1", "--deadline-s", "2") as runtime:
        runtime.wait_ready()
        async with asyncio.TaskGroup() as group:
            stuck = group.create_task(once(runtime, "sleep:3600"))
            await shows(runtime, IN_FLIGHT, 1)
            runtime.process.send_signal(signal.SIGTERM)
        assert stuck.result().status == 504
        assert await asyncio.to_thread(runtime.process.wait, 15) == 0


def test_sigterm_while_the_model_loads_ends_it_at_once(tmp_path: Path) -> None:
    with serve("slow", tmp_path, "--predictors", "1") as runtime:
        runtime.process.send_signal(signal.SIGTERM)
        assert runtime.process.wait(10) == 0


def test_logs_are_json_and_metrics_name_endpoint_and_version(acts: Runtime) -> None:
    lines = (acts.folder / "log").read_text().splitlines()
    assert all({"time", "level", "logger", "message"} <= set(json.loads(line)) for line in lines)
    assert acts.metric("knobless_runtime_info", endpoint="test", version="7") == 1
    assert acts.ask("GET", "/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
