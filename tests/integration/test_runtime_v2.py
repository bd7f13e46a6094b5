"""The Open Inference Protocol on an MLflow model: metadata, tensors in JSON and in bytes, and anything that is none."""

from __future__ import annotations

import asyncio
import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.runtime_process import JSON, Answer, Connection, Runtime, serve

pytestmark = pytest.mark.process

INFER = "/v2/models/test/infer"
NAMES = ["sl", "sw", "pl", "pw"]
ROW = [5.1, 3.5, 1.4, 0.2]
LENGTH = "inference-header-content-length"
MIB = 1 << 20


@pytest.fixture(scope="module")
def iris(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("iris", tmp_path_factory.mktemp("iris"), "--predictors", "1") as runtime:
        yield runtime.wait_ready()


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with serve("named", tmp_path_factory.mktemp("named"), "--predictors", "1") as runtime:
        yield runtime.wait_ready()


def columns(rows: list[list[float]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": "FP64", "shape": [len(rows)], "data": [row[at] for row in rows]}
        for at, name in enumerate(NAMES)
    ]


def infer(runtime: Runtime, inputs: list[dict[str, Any]], tail: bytes = b"", **beside: Any) -> Answer:
    head = json.dumps({"inputs": inputs, **beside}).encode()
    length = {LENGTH: str(len(head))} if tail else {}
    return runtime.ask("POST", INFER, head + tail, {**JSON, **length})


def test_the_metadata_are_those_of_the_signature(iris: Runtime) -> None:
    described = iris.ask("GET", "/v2/models/test").json
    assert [(one["name"], one["datatype"], one["shape"]) for one in described["inputs"]] == [
        (name, "FP64", [-1]) for name in NAMES
    ]
    assert [one["datatype"] for one in described["outputs"]] == ["INT64"]
    assert described["platform"] == "mlflow_sklearn"


def test_tensors_in_json_and_in_bytes_are_answered_alike_and_with_the_id(iris: Runtime) -> None:
    plain = infer(iris, columns([ROW, [7, 3, 6, 2]]), id="mine").json
    assert (plain["id"], plain["model_name"], plain["model_version"]) == ("mine", "test", "7")
    assert plain["outputs"] == [{"name": "predictions", "datatype": "INT64", "shape": [2], "data": [0, 2]}]
    raw = struct.pack("<8f", *ROW, 7, 3, 6, 2)
    matrix = {"name": "x", "datatype": "FP32", "shape": [2, 4], "parameters": {"binary_data_size": len(raw)}}
    packed = infer(iris, [matrix], raw, parameters={"binary_data_output": True})
    head = int(packed.headers[LENGTH])
    (output,) = json.loads(packed.body[:head])["outputs"]
    assert output["parameters"] == {"binary_data_size": 16}
    assert struct.unpack("<2q", packed.body[head:]) == (0, 2)


def test_named_tensors_come_and_go_by_name(named: Runtime) -> None:
    ids = {"name": "ids", "datatype": "INT32", "shape": [1, 2], "data": [[1, 2]]}
    weights = {"name": "w", "datatype": "FP32", "shape": [1], "data": [0.5]}
    answer = infer(named, [weights, ids])
    assert answer.status == 200, answer.body
    refused = infer(named, [ids])
    assert (refused.status, refused.json) == (400, {"error": "tensor `w` is missing"})


@pytest.mark.case("runtimes-B10")
@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (columns([ROW])[:3], "column `pw` is missing"),
        (
            [{"name": "x", "datatype": "FP64", "shape": [1, 3], "data": [1, 2, 3]}],
            "its shape is [1, 3], the model takes [-1, 4]",
        ),
        ([*columns([ROW])[:3], {"name": "pw", "datatype": "BYTES", "shape": [1], "data": ["x"]}], "not a number"),
        ([*columns([ROW])[:3], {"name": "pw", "datatype": "FP64", "shape": [2], "data": [1, 2]}], "numbers of rows"),
    ],
)
def test_what_does_not_fit_is_400_in_the_protocol_s_shape(iris: Runtime, inputs: list[Any], why: str) -> None:
    answer = infer(iris, inputs)
    assert answer.status == 400
    assert set(answer.json) == {"error"}
    assert why in answer.json["error"]


@pytest.mark.case("runtimes-B10")
@pytest.mark.parametrize("path", ["/v2/models/other/infer", "/v2/models/test/versions/8/infer"])
def test_another_model_and_another_version_are_404(iris: Runtime, path: str) -> None:
    body = json.dumps({"inputs": columns([ROW])}).encode()
    assert iris.ask("POST", path, body, JSON).status == 404
    assert iris.ask("POST", "/v2/models/test/versions/7/infer", body, JSON).status == 200


numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
scraps = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
inputs = st.fixed_dictionaries(
    {
        "name": st.sampled_from(NAMES) | scraps,
        "datatype": st.sampled_from(["FP64", "INT8", "BYTES", "BOOL"]) | scraps,
        "shape": st.just([1]) | scraps,
    },
    optional={"data": st.just([1]) | scraps, "parameters": st.just({"binary_data_size": 8}) | scraps},
)
documents = st.fixed_dictionaries(
    {"inputs": st.lists(inputs, max_size=4) | scraps}, optional={"outputs": scraps, "parameters": scraps, "id": scraps}
)
bodies = documents.map(lambda document: json.dumps(document).encode()) | scraps.map(lambda s: json.dumps(s).encode())


@pytest.mark.case("runtimes-B7")
def test_500_bodies_of_any_kind_are_4xx_and_the_server_lives(iris: Runtime) -> None:
    pids = iris.predictors()
    with asyncio.Runner() as runner:
        stack = Connection.open(iris.port)
        connection = runner.run(stack.__aenter__())

        @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(bodies, st.binary(max_size=16), st.booleans())
        def each(body: bytes, tail: bytes, told: bool) -> None:
            headers = {**JSON, LENGTH: str(len(body))} if told else JSON
            answer = runner.run(connection.ask("POST", INFER, body + tail, headers))
            assert answer.status == 200 or 400 <= answer.status < 500, (answer.status, answer.body)
            assert answer.status == 200 or set(answer.json) == {"error"}

        each()
        runner.run(stack.__aexit__(None, None, None))
    assert iris.predictors() == pids


@pytest.mark.case("runtimes-G1")
async def test_memory_stands_still_over_ten_thousand_requests(tmp_path: Path) -> None:
    with serve("iris", tmp_path, "--predictors", "1") as runtime:
        runtime.wait_ready()
        body = json.dumps({"dataframe_split": {"columns": NAMES, "data": [ROW]}}).encode()

        async def some(count: int) -> None:
            async with Connection.open(runtime.port) as connection:
                for _ in range(count):
                    answer = await connection.ask("POST", "/invocations", body, JSON)
                    assert answer.status == 200

        async def a_fifth() -> int:
            await asyncio.gather(*(some(250) for _ in range(8)))
            return sum(resident_bytes(pid) for pid in [runtime.process.pid, *runtime.children()])

        after = [await a_fifth() for _ in range(5)]
        assert max(after[1:]) - after[0] < 10 * MIB


def resident_bytes(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found.group(1)) * 1024
