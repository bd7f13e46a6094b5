"""Predictors that are copies of one process: one load, shared memory, and nobody's end is another's."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtime_process import Runtime, comm, serve, until

pytestmark = pytest.mark.process

BODY = {"dataframe_split": {"columns": ["sl", "sw", "pl", "pw"], "data": [[5.1, 3.5, 1.4, 0.2]]}}
READY = "knobless_runtime_predictors_ready"


@pytest.fixture
def iris(tmp_path: Path) -> Iterator[Runtime]:
    with serve("iris", tmp_path, "--predictors", "2") as runtime:
        yield runtime.wait_ready()


def template(runtime: Runtime) -> int:
    (pid,) = [pid for pid in runtime.children() if comm(pid) == "template"]
    return pid


def loads(runtime: Runtime) -> int:
    return sum("the model is called by" in line["message"] for line in runtime.log)


def kib(pid: int, what: str) -> int:
    found = re.search(rf"^{what}:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    assert found is not None
    return int(found.group(1))


def test_four_predictors_take_less_memory_than_two_that_share_nothing_would(tmp_path: Path) -> None:
    with serve("iris", tmp_path / "one", "--predictors", "1") as one:
        alone = sum(kib(pid, "Pss") for pid in one.wait_ready().children())
    with serve("iris", tmp_path / "four", "--predictors", "4") as four:
        four.wait_ready()
        until(lambda: four.metric(READY) == 4, "four predictors")
        assert sum(kib(pid, "Pss") for pid in four.children()) < 2 * alone


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def killed(runtime: Runtime, pid: int) -> None:
    """Kill a process and wait until there are two predictors without it."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in runtime.children(), "its end")
    until(lambda: runtime.metric(READY) == 2, "two predictors")


@pytest.mark.case("runtimes-C22", "runtimes-G5")
def test_the_model_is_loaded_once_and_a_predictor_more_costs_little_memory(iris: Runtime) -> None:
    predictors = iris.predictors()
    assert (len(predictors), loads(iris)) == (2, 1)
    assert iris.post(BODY).json == {"predictions": [0]}
    own = [kib(pid, "Private_Dirty") for pid in predictors]
    assert max(own) < kib(template(iris), "Rss") / 3


@pytest.mark.case("runtimes-C20")
def test_a_predictor_that_is_gone_is_replaced_by_a_copy_and_the_others_stay(iris: Runtime) -> None:
    first, second = iris.predictors()
    killed(iris, first)
    assert second in iris.predictors()
    assert loads(iris) == 1
    assert iris.post(BODY).json == {"predictions": [0]}


def test_without_the_process_that_they_are_copies_of_predictors_serve_on_and_are_loaded_anew(iris: Runtime) -> None:
    before = iris.predictors()
    killed(iris, template(iris))
    assert iris.predictors() == before
    assert iris.post(BODY).json == {"predictions": [0]}
    killed(iris, before[0])
    assert loads(iris) == 2
    assert iris.post(BODY).json == {"predictions": [0]}


def test_no_copy_outlives_the_front(iris: Runtime) -> None:
    everybody = iris.children()
    assert len(everybody) == 3
    iris.process.kill()
    iris.process.wait()
    until(lambda: gone(everybody), "the end of all of them")


def test_all_copies_end_with_the_front_when_it_is_told_to_end(iris: Runtime) -> None:
    everybody = iris.children()
    assert iris.stop() == 0
    assert gone(everybody)


def test_a_process_in_which_threads_were_started_is_not_copied(tmp_path: Path) -> None:
    """They show only once the whole example was asked, and a copy would wait for threads that it does not have."""
    with serve("wakes", tmp_path, "--predictors", "2") as runtime:
        runtime.wait_ready()
        assert len(runtime.children()) == len(runtime.predictors()) == 2
        assert loads(runtime) == 2
        killed(runtime, runtime.predictors()[0])
        assert runtime.post(BODY).json == {"predictions": [0]}


def test_a_model_of_the_customer_s_own_code_is_loaded_in_each_predictor(tmp_path: Path) -> None:
    with serve("table", tmp_path, "--predictors", "2") as runtime:
        runtime.wait_ready()
        assert len(runtime.children()) == len(runtime.predictors()) == 2
        assert loads(runtime) == 2
