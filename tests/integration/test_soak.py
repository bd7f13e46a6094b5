"""What grows only over a hundred thousand requests, and what takes longer than a minute. `make test-soak` alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import JSON, Connection, Runtime, serve, until
from tests.integration.test_runtime_proxy import proxied
from tests.runtime_lab.pressure import MIB, memory_after_fifths, memory_over, tree
from tests.runtime_lab.processes import VLLM_START_S, networks, triton, vllm

pytestmark = [pytest.mark.soak, pytest.mark.process, pytest.mark.timeout(3600)]

REQUESTS, PROBES = 100_000, 36_000
GROWTH_BYTES = 10 * MIB  # over the last four fifths
IRIS = {"dataframe_split": {"columns": ["sl", "sw", "pl", "pw"], "data": [[5.1, 3.5, 1.4, 0.2]]}}
TENSOR = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
WORD = {"prompt": "a", "max_tokens": 1}
ASKED: dict[str, tuple[str, Any]] = {
    "mlflow": ("/invocations", IRIS),
    "triton": ("/v2/models/test/infer", TENSOR),
    "vllm": ("/v1/completions", WORD),
    "proxy": ("/invocations", {}),
}


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runtime]:
    """One of the four engines on a small model, ready."""
    with ExitStack() as stack:
        runtime: Runtime
        if request.param == "mlflow":
            runtime = stack.enter_context(serve("iris", tmp_path, "--predictors", "2"))
        elif request.param == "triton":
            runtime = stack.enter_context(triton(networks() / "line", tmp_path))
        elif request.param == "vllm":
            runtime = stack.enter_context(vllm(tmp_path))
        else:
            runtime = stack.enter_context(proxied(tmp_path))
        until(lambda: runtime.ask("GET", "/health").status == 200, "readiness", runtime.process, VLLM_START_S)
        yield runtime


@pytest.mark.case("runtimes-G1", "runtimes-G3", "runtimes-G6")
@pytest.mark.parametrize("engine", list(ASKED), indirect=True)
async def test_memory_stands_still_over_100000_requests(engine: Runtime, request: pytest.FixtureRequest) -> None:
    path, document = ASKED[request.node.callspec.params["engine"]]
    after = await memory_over(engine, path, document, tree(engine.process.pid), REQUESTS)
    told(request, after)
    assert max(after[1:]) - after[0] < GROWTH_BYTES


@pytest.mark.case("runtimes-G2")
@pytest.mark.parametrize("engine", ["mlflow", "proxy"], indirect=True)
async def test_memory_stands_still_over_36000_probes_and_scrapes_without_a_request(
    engine: Runtime, request: pytest.FixtureRequest
) -> None:
    async def probe(path: str) -> None:
        async with Connection.open(engine.port) as connection:
            for _ in range(PROBES // 5 // len(paths)):
                assert (await connection.ask("GET", path)).status == 200

    async def a_fifth() -> None:
        await asyncio.gather(*map(probe, paths))

    paths = ("/health", "/live", "/metrics", "/ping")
    after = await memory_after_fifths(tree(engine.process.pid), a_fifth)
    told(request, after)
    assert max(after[1:]) - after[0] < GROWTH_BYTES
    assert engine.metric("knobless_runtime_requests_total") == 0


@pytest.mark.case("runtimes-D3")
async def test_a_prediction_of_70_s_is_answered_within_a_deadline_of_120_s(tmp_path: Path) -> None:
    row = {"qty": 3, "price": 9.5, "ratio": 0.25, "city": "sleep:70", "member": False, "seen": "2024-03-01"}
    flags = ("--predictors", "1", "--deadline-s", "120", "--load-timeout-s", "60")  # the load's is none of its business
    with serve("acts", tmp_path, *flags) as runtime:
        await asyncio.to_thread(runtime.wait_ready)
        async with Connection.open(runtime.port) as connection:
            body = json.dumps({"dataframe_records": [row]}).encode()
            assert (await connection.ask("POST", "/invocations", body, JSON)).status == 200
        assert runtime.metric("knobless_runtime_predictor_restarts_total") == 0


def told(request: pytest.FixtureRequest, after: Sequence[int]) -> None:
    sizes = ", ".join(f"{each / MIB:.1f}" for each in after)
    print(f"\n{request.node.name}: MiB after each fifth: {sizes}")
