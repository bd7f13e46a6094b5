"""What stays and what is replaced: predictors that end, a model whose files change, and the end itself."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import JSON, Answer, Connection, Runtime, models, serve, until

pytestmark = pytest.mark.process

ROW: dict[str, Any] = {
    "qty": 3, "price": 9.5, "ratio": 0.25, "city": "Oslo", "member": False, "seen": "2024-03-01", "score": 0.5
}  # fmt: skip
IRIS = {"dataframe_split": {"columns": ["sl", "sw", "pl", "pw"], "data": [[5.1, 3.5, 1.4, 0.2]]}}
READY = "knobless_runtime_predictors_ready"
RESTARTS = "knobless_runtime_predictor_restarts_total"
FEW = 5


# Predictors that can not start.


@pytest.mark.case("runtimes-C2")
def test_predictors_that_end_before_they_have_loaded_are_the_reason_and_never_ready(tmp_path: Path) -> None:
    with serve("iris", tmp_path, "--predictors", "2", "--model-python", "/bin/false") as runtime:
        assert runtime.process.wait(60) == 3
        assert runtime.reason == "the predictor ended while loading the model (exit status 1)\n"
        assert not any(line["message"] == "ready" for line in runtime.log)


@pytest.mark.case("runtimes-C2")
def test_a_predictor_that_can_not_be_started_again_is_tried_a_few_times_and_is_the_reason(tmp_path: Path) -> None:
    model = shutil.copytree(models() / "acts", tmp_path / "model")
    with serve(model, tmp_path / "run", "--predictors", "1") as runtime:
        (pid,) = runtime.wait_ready().predictors()
        (model / "python_model.pkl").write_bytes(b"cut")
        os.kill(pid, signal.SIGKILL)
        until(lambda: runtime.ask("GET", "/health").status == 503, "not ready", runtime.process)
        assert runtime.post({"dataframe_records": [ROW]}).status in (500, 503, 504)
        assert runtime.process.wait(90) == 3
        assert runtime.reason.startswith("no predictor could be started after 3 attempts: UnpicklingError: ")


# Nothing is loaded or unloaded in place: a new version is a new replica, and its predecessor drains.


@pytest.mark.case("runtimes-C17")
def test_a_model_serves_as_it_was_loaded_and_nobody_can_load_or_unload_another(tmp_path: Path) -> None:
    model = shutil.copytree(models() / "iris", tmp_path / "model")
    with serve(model, tmp_path / "run", "--predictors", "1") as runtime:
        before = runtime.wait_ready().post(IRIS)
        shutil.rmtree(model)
        shutil.copytree(models() / "scores", model)
        for order in ("index", "models/test/load", "models/test/unload"):
            assert runtime.ask("POST", f"/v2/repository/{order}", b"{}", JSON).status == 404
        assert runtime.post(IRIS).json == before.json == {"predictions": [0]}


@pytest.mark.case("runtimes-C16")
async def test_until_the_last_request_is_over_every_predictor_stays_and_serves(tmp_path: Path) -> None:
    with serve("acts", tmp_path, "--predictors", "2", "--linger-s", "30", "--deadline-s", "30") as runtime:
        before = (await asyncio.to_thread(runtime.wait_ready)).predictors()
        async with Connection.open(runtime.port) as connection:
            await connection.send("POST", "/invocations", order("sleep:3"), JSON)
            await asyncio.to_thread(
                until, lambda: runtime.metric("knobless_runtime_requests_in_flight") == 1, "a request in flight"
            )
            runtime.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(until, lambda: runtime.ask("GET", "/health").status == 503, "unreadiness")
            beside = await asyncio.to_thread(runtime.ask, "POST", "/invocations", order("Oslo"), JSON)
            assert (beside.status, runtime.predictors()) == (200, before)
            late: Answer = await connection.receive()
            assert late.status == 200
        assert await asyncio.to_thread(runtime.process.wait, 20) == 0


def order(city: str) -> bytes:
    return json.dumps({"dataframe_records": [ROW | {"city": city}]}).encode()


# Many restarts.


@pytest.mark.case("runtimes-J2", "runtimes-C20")
@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])])
def test_restarts_leave_no_file_no_descriptor_and_no_series_and_no_counter_goes_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    with serve("iris", tmp_path / "run", "--predictors", "2") as runtime:
        seen = series(runtime.wait_ready())
        few: tuple[list[str], list[str], int] | None = None
        for number in range(count):
            killed(runtime, runtime.predictors()[0])
            assert runtime.post(IRIS).status == 200
            now = series(runtime)
            assert [name for name, value in seen.items() if counts(name) and now[name] < value] == []
            seen = now
            if number == FEW:
                few = sorted(seen), files(tmp_path), descriptors(runtime)
        assert few is not None
        assert (sorted(seen), files(tmp_path)) == few[:2]
        assert descriptors(runtime) <= few[2] + 2  # connections of ours that are just ending
        assert runtime.metric(RESTARTS, cause="died") == count
        assert len(runtime.children()) == 3  # two predictors and what they are copies of: no ended one waits to be seen
        took_ms = scrape_s(runtime) * 1e3
        print(f"\n{count} restarts: {len(seen)} series, {descriptors(runtime)} open files, a scrape {took_ms:.1f} ms")


def killed(runtime: Runtime, pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in runtime.children() and runtime.metric(READY) == 2, "two predictors without it")


def series(runtime: Runtime) -> dict[str, float]:
    """All that a scrape tells, by name and labels."""
    lines = runtime.ask("GET", "/metrics").body.decode().splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def counts(name: str) -> bool:
    return name.partition("{")[0].endswith(("_total", "_count", "_bucket", "_sum"))


def descriptors(runtime: Runtime) -> int:
    return len(list(Path(f"/proc/{runtime.process.pid}/fd").iterdir()))


def files(folder: Path) -> list[str]:
    return sorted(str(path) for path in [*folder.rglob("*"), *Path("/dev/shm").glob("*knobless*")] if path.is_file())


def scrape_s(runtime: Runtime) -> float:
    """The shortest of ten scrapes; told, never asserted."""
    took: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        runtime.ask("GET", "/metrics")
        took.append(time.perf_counter() - began)
    return min(took)
