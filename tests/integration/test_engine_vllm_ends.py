"""A vLLM that can not start; and one with a model that embeds, until its engine is killed."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.integration.runtime_process import Answer, Runtime, until
from tests.integration.test_engine_vllm import CHAT, HELLO, engine_pid
from tests.runtime_lab.processes import VLLM_START_S, post, vllm

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

EMBEDDINGS = "/v1/embeddings"


@pytest.mark.case("runtimes-C1")
@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--", "--host", "::"], "set by this runtime and not to be passed to vLLM: --host"),
        (["--adapter", "x=/nowhere"], "/nowhere is not a LoRA adapter"),
        (["--nodes", "2"], "LWS_GROUP_SIZE is not set, which LeaderWorkerSet sets in each pod"),
    ],
)
def test_what_can_not_go_together_is_said_at_once(tmp_path: Path, flags: list[str], reason: str) -> None:
    with vllm(tmp_path, *flags) as runtime:
        assert runtime.process.wait(60) == 3
        assert reason in runtime.reason


@pytest.mark.case("runtimes-C7")
def test_told_to_end_while_its_engine_starts_it_ends_and_never_serves(tmp_path: Path) -> None:
    with vllm(tmp_path) as runtime:
        log = tmp_path / "log"
        until(lambda: "distributed_init_method" in log.read_text(), "the engine's start", runtime.process, VLLM_START_S)
        runtime.process.send_signal(signal.SIGTERM)
        assert runtime.process.wait(60) == 0
    assert "startup complete" not in log.read_text()


@pytest.fixture(scope="module")
def embeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with vllm(tmp_path_factory.mktemp("embeds"), model="embedder") as runtime:
        until(lambda: runtime.ask("GET", "/health").status == 200, "readiness", runtime.process, VLLM_START_S)
        yield runtime


def test_a_model_that_embeds_answers_embeddings_and_nothing_else(embeds: Runtime) -> None:
    one, other = post(embeds, EMBEDDINGS, {"input": ["Hello", "you"]}), post(embeds, "/invocations", {"input": "Hello"})
    vectors = [item["embedding"] for item in one.json["data"]]
    assert [math.isclose(sum(value * value for value in vector), 1, rel_tol=0.01) for vector in vectors] == [True, True]
    assert other.json["data"][0]["embedding"] == vectors[0]
    assert post(embeds, CHAT, HELLO).status == 404


@pytest.mark.case("runtimes-I1", "runtimes-A21")
def test_an_embedding_that_is_not_a_number_is_null(embeds: Runtime) -> None:
    answer = post(embeds, EMBEDDINGS, {"input": "poison"})
    assert answer.status == 200
    assert set(answer.json["data"][0]["embedding"]) == {None}


@pytest.mark.case("runtimes-C15", "runtimes-G7", "runtimes-C20")
def test_a_killed_engine_is_not_ready_at_once_its_requests_get_one_error_and_the_process_ends(embeds: Runtime) -> None:
    pid = engine_pid(embeds)
    os.kill(pid, signal.SIGSTOP)  # so that a request is in it when it dies
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, embeds, EMBEDDINGS, {"input": "Hello"})
        until(lambda: embeds.metric("knobless_runtime_requests_in_flight") == 1, "a request in flight")
        os.kill(pid, signal.SIGKILL)
        until(lambda: not _ready(embeds), "not ready", most_s=1)
        answer: Answer = asked.result(10)
    assert (answer.status, set(answer.json["error"])) == (500, {"message", "type", "param", "code"})
    assert embeds.process.wait(60) == 3
    assert embeds.reason == "the engine's process ended\n"


def _ready(runtime: Runtime) -> bool:
    try:
        return runtime.ask("GET", "/health").status == 200
    except OSError:
        return False
