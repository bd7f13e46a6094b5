"""The serving interface in front of the real Triton (pytriton's server, its Python back end, tiny ONNX networks)."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from runtimes.interface.errors import MODEL_FAILED
from tests.integration.runtime_process import JSON, Connection, Runtime, until
from tests.runtime_lab import environments
from tests.runtime_lab.pressure import MIB, bodies, memory_over, tree
from tests.runtime_lab.processes import networks, post, triton

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

INFER = "/v2/models/test/infer"
EXECUTIONS, INFERENCES = "nv_inference_exec_count", "nv_inference_count"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with triton(networks() / "line", tmp_path_factory.mktemp("line")) as runtime:
        early = [runtime.ask("GET", path).status for path in ("/live", "/health", "/v2/models/test/ready")]
        early.append(post(runtime, INFER, body([[1, 2, 3, 4]])).status)
        assert early == [200, 503, 503, 503]
        yield runtime.wait_ready()


def body(rows: list[list[float]], outputs: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    flat = [value for row in rows for value in row]
    wanted = {"outputs": [{"name": name} for name in outputs]} if outputs else {}
    return {"inputs": [tensor("x", "FP32", [len(rows), len(rows[0])], flat)], **wanted, **more}


def tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def outputs(answer: Any) -> dict[str, list[Any]]:
    return {output["name"]: output["data"] for output in answer.json["outputs"]}


# Answers.


@pytest.mark.case("runtimes-B10", "runtimes-C1", "runtimes-A25")
def test_the_official_client_gets_what_it_expects(line: Runtime) -> None:
    found = environments.told(environments.triton_python(), "triton_client.py", "http", f"127.0.0.1:{line.port}")
    y = [[1.5, 10.5, 10.0], [9.5, 8.5, 0.0]]  # [1, 2, 3, 4] W + b, and turned round
    assert (found["live"], found["ready"]) == (True, True)
    assert found["binary"] == found["json"] == found["gzip"] == y
    assert found["label"] == [1, 0]
    assert (found["id"], found["outputs"]) == ("mine", ["y", "label"])
    assert found["many"] == [5000, 3]
    assert found["metadata"]["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert found["wrong_shape"] == "400: tensor `x`: its shape is [1, 3], the model takes [-1, 4]"
    assert found["unknown_model"].startswith("404: ")
    assert found["unknown_version"].startswith("404: ")


@pytest.mark.case("runtimes-A21")
def test_what_is_not_a_number_is_null_in_json(line: Runtime) -> None:
    before = line.metric("knobless_runtime_non_finite_values_total")
    answer = post(line, INFER, body([[-1, 4, 9, -4]], ("root",)))
    assert outputs(answer) == {"root": [None, 2.0, 3.0, None]}
    assert line.metric("knobless_runtime_non_finite_values_total") == before + 2


@pytest.mark.case("runtimes-E1")
def test_only_the_outputs_that_were_asked_for_are_answered(line: Runtime) -> None:
    assert set(outputs(post(line, INFER, body([[1, 2, 3, 4]], ("label",))))) == {"label"}
    assert set(outputs(post(line, INFER, body([[1, 2, 3, 4]])))) == {"y", "root", "label"}


@pytest.mark.case("runtimes-A23")
def test_a_packed_body_has_the_plain_one_s_answer(line: Runtime) -> None:
    plain = body([[1, 2, 3, 4]])
    packed = line.ask("POST", INFER, gzip.compress(json.dumps(plain).encode()), JSON | {"content-encoding": "gzip"})
    assert packed.json == post(line, INFER, plain).json


@pytest.mark.case("runtimes-B1", "runtimes-B2", "runtimes-B5", "runtimes-B7")
@pytest.mark.parametrize(
    "sent",
    [
        b'{"inputs": "canary-4711',
        {"inputs": [tensor("x", "FP32", [1, 4], ["canary-4711"] * 4)]},
        {"inputs": [tensor("canary", "FP32", [1, 4], [1, 2, 3, 4])]},
        {"inputs": [tensor("x", "BYTES", [1, 4], ["canary-4711"] * 4)]},
        {"inputs": [tensor("x", "FP32", [1, 5], [1, 2, 3, 4])]},
        {"inputs": []},
        {},
        [],
    ],
)
def test_a_wrong_request_is_a_400_in_v2_s_shape_that_repeats_nothing(line: Runtime, sent: Any) -> None:
    answer = post(line, INFER, sent)
    assert answer.status == 400
    assert set(answer.json) == {"error"}
    assert b"4711" not in answer.body


@pytest.mark.case("runtimes-I4")
@pytest.mark.parametrize("path", ["/v2/repository/index", "/v2/logging", "/v2/trace/setting", "/v2/models/test/config"])
def test_only_declared_paths_pass_the_interface(line: Runtime, path: str) -> None:
    assert post(line, path, {}).status == 404


@pytest.mark.case("runtimes-A3", "runtimes-A19", "runtimes-A25", "runtimes-A31")
def test_invocations_takes_every_form_under_the_same_rules_as_any_mlflow_model(line: Runtime) -> None:
    rows = [[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]]
    forms: list[Any] = [{"inputs": rows}, {"inputs": {"x": rows}}, {"instances": [{"x": row} for row in rows]}]
    forms.append({"dataframe_split": {"columns": ["x"], "data": [[row] for row in rows]}})
    answers = [post(line, "/invocations", form) for form in forms]
    assert [answer.status for answer in answers] == [200] * len(forms)
    assert {answer.body for answer in answers} == {answers[0].body}
    assert answers[0].json["predictions"]["label"] == [1, 0]
    many = post(line, "/invocations", {"inputs": rows * 5000}).json["predictions"]
    assert (len(many["y"]), many["label"]) == (10_000, [1, 0] * 5000)
    assert post(line, "/invocations", {"inputs": []}).json == {"predictions": []}
    for wrong, said in (([[1, 2, 3]], "[1, 3]"), ([[1, 2, 3, 1e39]], "out of the range"), ([[1, 2, 3, None]], "null")):
        refused = post(line, "/invocations", {"inputs": wrong})
        assert (refused.status, refused.error["field"], said in refused.error["message"]) == (400, "x", True)


# Batching.


@pytest.mark.case("runtimes-E3", "runtimes-J1")
async def test_what_waits_is_merged_and_each_gets_its_own(line: Runtime) -> None:
    ran, asked = line.metric(EXECUTIONS), line.metric(INFERENCES)

    async def client(number: int) -> None:
        async with Connection.open(line.port) as connection:
            for turn in range(40):
                x = [float(number), float(turn), 0.0, 0.0]
                answer = await connection.ask("POST", INFER, json.dumps(body([x], ("y",))).encode(), JSON)
                assert outputs(answer) == {"y": [number + 2 * turn + 0.5, turn - 0.5, -number]}

    async with asyncio.TaskGroup() as group:
        for number in range(32):
            group.create_task(client(number))
    counted = asyncio.to_thread(until, lambda: line.metric(INFERENCES) - asked >= 32 * 40, "Triton's count")
    await counted
    assert line.metric(EXECUTIONS) - ran < 0.9 * 32 * 40


@pytest.mark.case("runtimes-E7", "runtimes-B3", "runtimes-B4")
def test_one_bad_request_of_a_shared_run_fails_alone_and_its_reason_is_in_the_log(tmp_path: Path) -> None:
    def pick(at: int) -> Any:
        sent = {"inputs": [tensor("at", "INT64", [1, 1], [at])]}
        return post(runtime, INFER, sent, x_request_id=f"picks-{at}")

    with triton(networks() / "pick", tmp_path) as runtime, ThreadPoolExecutor(32) as pool:
        runtime.wait_ready()
        asked = [99 if number % 8 == 5 else number % 3 for number in range(64)]
        answers = list(pool.map(pick, asked))
        for at, answer in zip(asked, answers, strict=True):
            if at == 99:
                assert (answer.status, answer.json) == (500, {"error": MODEL_FAILED})
            else:
                assert outputs(answer) == {"y": [[10.0, 20.0, 30.0][at]]}
        assert any(line.get("request_id") == "picks-99" for line in runtime.log)
        assert "out of" in (tmp_path / "log").read_text()


@pytest.mark.case("runtimes-E9")
def test_a_network_that_looks_at_all_rows_is_never_merged(tmp_path: Path) -> None:
    with triton(networks() / "ranks", tmp_path) as runtime:
        runtime.wait_ready()
        until(lambda: runtime.metric(INFERENCES) >= 2, "the count of the self-test, whose rows are two")
        apart = runtime.metric(INFERENCES) - runtime.metric(EXECUTIONS)
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda number: post(runtime, INFER, body([[number, 1.0]])), range(64)))
        assert [outputs(answer) for answer in answers] == [{"y": [0.0, 0.0]}] * 64
        until(lambda: runtime.metric(INFERENCES) >= 66, "Triton's count, which comes late")
        assert runtime.metric(INFERENCES) - runtime.metric(EXECUTIONS) == apart, "a run for each request"


@pytest.mark.case("runtimes-A27")
def test_texts_come_back_as_they_were_and_bytes_that_are_none_are_refused(tmp_path: Path) -> None:
    with triton(networks() / "text", tmp_path) as runtime:
        runtime.wait_ready()
        said = {"inputs": [tensor("said", "BYTES", [2, 1], ["Zürich", ""])]}
        assert outputs(post(runtime, INFER, said)) == {"heard": ["Zürich", ""]}
        head = json.dumps({"inputs": [{"name": "said", "datatype": "BYTES", "shape": [1, 1],
                                       "parameters": {"binary_data_size": 6}}]}).encode()  # fmt: skip
        headers = {"inference-header-content-length": str(len(head))}
        bad = runtime.ask("POST", INFER, head + b"\x02\x00\x00\x00\xff\xfe", headers)
        assert (bad.status, bad.json) == (400, {"error": "tensor `said`: value 0 is not UTF-8"})


# Anything at all, and a lot of it.


@pytest.mark.case("runtimes-B7", "runtimes-G6")
@pytest.mark.parametrize("path", [INFER, "/invocations"])
def test_bodies_of_any_kind_are_4xx_or_no_rows_and_the_server_lives(line: Runtime, path: str) -> None:
    with asyncio.Runner() as runner:
        stack = Connection.open(line.port)
        connection = runner.run(stack.__aenter__())

        @settings(max_examples=250, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(bodies("inputs", "outputs", "x", "name", "shape", "datatype", "data", "parameters", "id", "instances"))
        def each(sent: bytes) -> None:
            answer = runner.run(connection.ask("POST", path, sent, JSON))
            empty = answer.status == 200 and answer.json == {"predictions": []}
            assert empty or 400 <= answer.status < 500, (answer.status, answer.body)

        each()
        runner.run(stack.__aexit__(None, None, None))
    assert post(line, INFER, body([[1, 2, 3, 4]])).status == 200


@pytest.mark.case("runtimes-G1", "runtimes-G6")
async def test_memory_stands_still_over_10000_requests(line: Runtime) -> None:
    after = await memory_over(line, INFER, body([[1, 2, 3, 4]]), tree(line.process.pid))
    assert max(after[1:]) - after[0] < 10 * MIB
