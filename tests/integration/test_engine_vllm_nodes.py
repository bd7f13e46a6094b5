"""The real vLLM (its CPU build, a tiny model) over two pods that share nothing but a network.

One group for its life, in the order of it; and a group for each way to lose a node of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import Runtime, until
from tests.integration.test_engine_vllm import CHAT, COMPLETIONS, HELLO, RUNNING, engine_pid
from tests.runtime_lab.pods import Pod
from tests.runtime_lab.processes import VLLM_START_S, Stream, post, vllm, vllm_group

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

FLAGS = ["--max-model-len", "256", "--max-num-seqs", "8", "--deadline-s", "30", "--linger-s", "3", "--stuck-s", "15"]
TEXT = {"max_tokens": 60, "temperature": 0, "ignore_eos": True}
LONG = TEXT | {"prompt": "Once", "max_tokens": 230, "n": 8, "temperature": 1}
PROMPTS = ["Hello", "a b c d e f", "the same beginning " * 5, "x"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What one node answers."""
    with vllm(tmp_path_factory.mktemp("alone"), *FLAGS) as runtime:
        _until_ready(runtime)
        return _answers(runtime)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, alone: list[Any]) -> Iterator[dict[int, Runtime]]:
    with vllm_group(tmp_path_factory.mktemp("nodes"), *FLAGS) as (made, _):
        assert [node.ask("GET", "/live").status for node in made.values()] == [200, 200]
        assert post(made[0], COMPLETIONS, TEXT | {"prompt": "a"}).status == 503
        _until_ready(made[0])
        yield made


Group = tuple[dict[int, Runtime], list[Pod]]


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with vllm_group(tmp_path, *FLAGS) as made:
        _until_ready(made[0][0])
        yield made


def _until_ready(runtime: Runtime) -> None:
    until(lambda: _status(runtime, "/health") == 200, "readiness", runtime.process, VLLM_START_S)


def _status(runtime: Runtime, path: str) -> int | None:
    """None where nobody listens."""
    try:
        return runtime.ask("GET", path).status
    except OSError:
        return None


def _answers(runtime: Runtime) -> list[Any]:
    asked = [TEXT | {"prompt": prompt, "logprobs": 1} for prompt in PROMPTS]
    texts = [post(runtime, COMPLETIONS, document).json["choices"] for document in asked]
    with ThreadPoolExecutor(8) as pool:
        together = pool.map(lambda document: post(runtime, COMPLETIONS, document).json["choices"], asked * 2)
        texts += [[choice["text"] for choice in choices] for choices in together]
    return [*texts, post(runtime, CHAT, HELLO).json["choices"]]


# One replica of two nodes.


def test_two_nodes_say_exactly_what_one_says(nodes: dict[int, Runtime], alone: list[Any]) -> None:
    assert _answers(nodes[0]) == alone


def test_each_node_holds_a_part_of_the_model(nodes: dict[int, Runtime]) -> None:
    logs = [(node.folder / "log").read_text() for node in (nodes[0], nodes[1])]
    assert ["PP0" in logs[0], "PP1" in logs[0], "PP0" in logs[1], "PP1" in logs[1]] == [True, False, False, True]


def test_a_stream_over_two_nodes_is_the_whole_answer_in_pieces(nodes: dict[int, Runtime]) -> None:
    asked = TEXT | {"prompt": PROMPTS[0]}
    with Stream(nodes[0], COMPLETIONS, asked) as stream:
        events = list(stream)
    assert events[-1] == b"[DONE]"
    assert len(events) > 20
    pieces = [json.loads(event)["choices"][0]["text"] for event in events[:-1]]
    assert "".join(pieces) == post(nodes[0], COMPLETIONS, asked).json["choices"][0]["text"]


@pytest.mark.case("runtimes-I2")
def test_a_client_that_leaves_frees_both_nodes(nodes: dict[int, Runtime]) -> None:
    leader, generated = nodes[0], "vllm:generation_tokens_total"
    before = leader.metric(generated)
    with Stream(leader, COMPLETIONS, LONG) as stream:
        next(iter(stream))
    until(lambda: leader.metric(RUNNING) == 0, "an idle engine", most_s=5)
    assert leader.metric(generated) - before < LONG["n"] * LONG["max_tokens"]


def test_a_worker_is_ready_and_answers_nothing_but_probes(nodes: dict[int, Runtime]) -> None:
    worker = nodes[1]
    paths = ("/live", "/ping", "/health", "/v2/health/ready", "/metrics", "/v1/models", "/v2")
    assert [worker.ask("GET", path).status for path in paths] == [200, 200, 200, 200, 200, 503, 503]
    assert worker.metric("process_resident_memory_bytes") > 0
    assert post(worker, COMPLETIONS, TEXT | {"prompt": "a"}).status == 503


@pytest.mark.case("runtimes-C10", "runtimes-C11", "runtimes-C7")
def test_told_to_end_together_the_leader_finishes_what_it_has_while_the_worker_stays(
    nodes: dict[int, Runtime],
) -> None:
    leader, worker = nodes[0], nodes[1]
    statuses: list[int] = []

    def ask_on() -> None:
        with contextlib.suppress(OSError):
            while True:
                statuses.append(post(leader, COMPLETIONS, TEXT | {"prompt": "a"}).status)

    with ThreadPoolExecutor(1) as pool, Stream(leader, COMPLETIONS, LONG) as stream:
        events = iter(stream)
        next(events)
        asking = pool.submit(ask_on)
        for node in nodes.values():
            node.process.send_signal(signal.SIGTERM)
        until(lambda: [_status(node, "/health") for node in (nodes[0], nodes[1])] == [503, 503], "not ready", most_s=2)
        assert _status(worker, "/live") == 200
        rest = list(events)
        asking.result(60)
    assert rest[-1] == b"[DONE]"
    assert set(statuses) == {200}
    assert [node.process.wait(60) for node in (nodes[0], nodes[1])] == [0, 0]


# A node is lost. What is asked meanwhile gets an error, and both pods end, so that the group is made anew.


def _lose(group: Group, lose: Any) -> tuple[int, float]:
    """The status of a request that was in flight when a node was lost, and seconds until it came."""
    leader = group[0][0]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, leader, COMPLETIONS, LONG)
        until(lambda: leader.metric(RUNNING) > 0, "a running request")
        lose()
        began = time.monotonic()
        answer = asked.result(60)
        took_s = time.monotonic() - began
    assert set(answer.json["error"]) == {"message", "type", "param", "code"}
    return answer.status, took_s


def _workers_vllm(runtime: Runtime) -> int:
    """The process with the worker's part of the model."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text, stat = (path / "cmdline").read_text(), (path / "stat").read_text()
            if "Worker_PP1" in text and int(stat.rpartition(")")[2].split()[3]) in runtime.predictors():
                return int(path.name)
    raise AssertionError("there is no worker")


def test_a_killed_worker_fails_what_is_in_flight_at_once_and_ends_both_pods_with_the_reason(group: Group) -> None:
    leader, worker = group[0][0], group[0][1]
    status, took_s = _lose(group, lambda: os.kill(_workers_vllm(worker), signal.SIGKILL))
    assert status == 500
    assert [node.process.wait(60) for node in (leader, worker)] == [3, 3]
    assert leader.reason.startswith("node 1 of this replica failed: ")
    assert took_s < 20  # vLLM itself waits 300 s


@pytest.mark.engines
def test_a_worker_s_pod_that_is_killed_is_missed_at_once(group: Group) -> None:
    leader, pods = group[0][0], group[1]
    status, _ = _lose(group, pods[1].kill)
    assert (status, leader.process.wait(60)) == (500, 3)
    assert leader.reason == "node 1 of this replica is gone\n"


@pytest.mark.engines
def test_a_worker_that_is_lost_between_two_requests_is_missed_too(group: Group) -> None:
    leader, pods = group[0][0], group[1]
    pods[1].kill()
    until(lambda: _status(leader, "/health") != 200, "not ready", most_s=5)
    assert leader.process.wait(60) == 3


@pytest.mark.engines
def test_a_node_that_is_lost_without_a_word_is_missed_after_ten_seconds(group: Group) -> None:
    (leader, worker), pods = (group[0][0], group[0][1]), group[1]
    status, took_s = _lose(group, pods[1].lose)
    assert (status, leader.process.wait(60)) == (500, 3)
    assert leader.reason == "node 1 of this replica said nothing for 10 s\n"
    assert took_s < 30  # the deadline's
    assert worker.process.wait(60) == 3
    assert worker.reason == "the leader of this replica said nothing for 10 s\n"


@pytest.mark.engines
def test_a_worker_that_is_stuck_makes_its_leader_not_ready_then_not_live(group: Group) -> None:
    leader, worker = group[0][0], group[0][1]
    pid = _workers_vllm(worker)
    status, _ = _lose(group, lambda: os.kill(pid, signal.SIGSTOP))
    assert status == 504  # at the deadline
    until(lambda: _status(leader, "/health") == 503, "not ready")
    until(lambda: _status(leader, "/live") == 503, "not live")


@pytest.mark.engines
@pytest.mark.parametrize("what", ["pod", "engine"])
def test_a_killed_leader_ends_its_worker(group: Group, what: str) -> None:
    (leader, worker), pods = (group[0][0], group[0][1]), group[1]
    if what == "pod":
        pods[0].kill()
    else:
        os.kill(engine_pid(leader), signal.SIGKILL)
    assert worker.process.wait(60) == 3
    assert worker.reason == "the leader of this replica is gone\n"
    assert leader.process.wait(60) == (-signal.SIGKILL if what == "pod" else 3)


def test_a_worker_without_a_leader_waits_and_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with vllm_group(tmp_path, *FLAGS, started=(1,)) as (nodes, _):
        assert [_status(nodes[1], path) for path in ("/live", "/health")] == [200, 503]
        assert nodes[1].children() == []
        nodes[1].process.send_signal(signal.SIGTERM)
        assert nodes[1].process.wait(60) == 0
