"""The serving interface in front of the real Triton (pytriton's server, its Python back end, tiny ONNX networks)."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from runtimes.interface.errors import MODEL_FAILED
from runtimes.triton import model, repository
from runtimes.triton.config import ONNXRUNTIME, PYTHON, PYTORCH, Plan
from runtimes.triton.tensors import Tensor, Tensors
from tests.integration.runtime_process import JSON, Connection, Runtime, until
from tests.runtime_lab import environments
from tests.runtime_lab.processes import networks, post, triton

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

INFER = "/v2/models/test/infer"
EXECUTIONS, INFERENCES = "nv_inference_exec_count", "nv_inference_count"


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with triton(networks() / "line", tmp_path_factory.mktemp("line"), "--stuck-s", "6") as runtime:
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


def server_pid(runtime: Runtime) -> int:
    (pid,) = runtime.predictors()
    return pid


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
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda number: post(runtime, INFER, body([[number, 1.0]])), range(64)))
        assert [outputs(answer) for answer in answers] == [{"y": [0.0, 0.0]}] * 64
        assert runtime.metric(INFERENCES) == runtime.metric(EXECUTIONS)


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


# Life.


@pytest.mark.case("runtimes-C1", "runtimes-H8")
def test_a_network_that_fails_on_its_own_example_is_never_ready(tmp_path: Path) -> None:
    broken = shutil.copytree(networks() / "line", tmp_path / "broken")
    (broken / "serving_input_example.json").write_text('{"inputs": {"x": [[1, 2, 3]]}}')
    with triton(broken, tmp_path / "run") as runtime:
        assert runtime.process.wait(60) == 3
        assert runtime.reason.startswith("the model failed on its own input example: ")


@pytest.mark.case("runtimes-C1")
def test_a_network_that_can_not_be_loaded_ends_the_process_with_one_line(tmp_path: Path) -> None:
    broken = shutil.copytree(networks() / "line", tmp_path / "broken")
    text = (broken / "model.onnx").read_bytes()
    (broken / "model.onnx").write_bytes(text.replace(b"MatMul", b"MatMux"))
    with triton(broken, tmp_path / "run") as runtime:
        assert runtime.process.wait(60) == 3
        assert runtime.reason.count("\n") == 1
        assert "MatMux" in runtime.reason


@pytest.mark.case("runtimes-C15", "runtimes-C5")
def test_a_server_that_is_stuck_is_not_ready_then_not_live_and_back_when_it_moves(line: Runtime) -> None:
    os.kill(server_pid(line), signal.SIGSTOP)
    try:
        until(lambda: line.ask("GET", "/health").status == 503, "not ready")
        until(lambda: line.ask("GET", "/live").status == 503, "not live")
    finally:
        os.kill(server_pid(line), signal.SIGCONT)
    until(lambda: line.ask("GET", "/live").status == 200, "alive")
    line.wait_ready()
    assert post(line, INFER, body([[1, 2, 3, 4]])).status == 200


@pytest.mark.case("runtimes-C7", "runtimes-C10", "runtimes-C11", "runtimes-C13", "runtimes-D6", "runtimes-B11")
async def test_told_to_end_it_serves_on_finishes_what_it_has_and_leaves_nothing(tmp_path: Path) -> None:
    def times(count: int) -> bytes:
        return json.dumps({"inputs": [tensor("times", "INT64", [1], [count])]}).encode()

    with triton(networks() / "slow", tmp_path) as runtime:
        await asyncio.to_thread(runtime.wait_ready)
        pid = server_pid(runtime)
        async with Connection.open(runtime.port) as late:
            answer = await late.ask("POST", INFER, times(2000), JSON | {"x-knobless-deadline-ms": "200"})
            assert answer.status == 504
        async with Connection.open(runtime.port) as long, Connection.open(runtime.port) as short:
            await long.send("POST", INFER, times(4000), JSON)
            await asyncio.to_thread(
                until, lambda: runtime.metric("knobless_runtime_requests_in_flight") == 1, "a request in flight"
            )
            runtime.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(
                until, lambda: runtime.ask("GET", "/health").status == 503, "not ready", runtime.process, 1
            )
            assert runtime.ask("GET", "/live").status == 200
            beside = await short.ask("POST", INFER, times(1), JSON)
            assert (beside.status, beside.headers["connection"]) == (200, "close")
            assert (await long.receive()).status == 200
        assert await asyncio.to_thread(runtime.process.wait, 60) == 0
        assert not await asyncio.to_thread(Path(f"/proc/{pid}").exists)
        assert [path for path in (runtime.folder / "home").rglob("*") if path.is_file()] == []


@pytest.mark.case("runtimes-C15", "runtimes-G7")
def test_a_killed_server_ends_the_process_with_a_reason(tmp_path: Path) -> None:
    with triton(networks() / "line", tmp_path) as runtime:
        runtime.wait_ready()
        os.kill(server_pid(runtime), signal.SIGKILL)
        assert runtime.process.wait(60) == 3
        assert runtime.reason == "Triton ended with status -9\n"


# What is rendered.


def test_every_configuration_is_one_by_triton_s_published_schema(tmp_path: Path) -> None:
    rows = Tensors((Tensor("x", "FP32", (-1, 4)), Tensor("t", "BYTES", (-1, -1))), (Tensor("label", "INT64", (-1,)),))
    fixed = Tensors((Tensor("k", "BOOL", (1,)),), (Tensor("y", "BF16", (1, 3)),))
    files = []
    for number, (backend, kind, tensors, gpus) in enumerate(
        (
            (PYTHON, model.ONNX, rows, False),
            (ONNXRUNTIME, model.ONNX, rows, True),
            (ONNXRUNTIME, model.ONNX, fixed, False),
            (PYTORCH, model.TORCH_SCRIPT, rows, True),
            (PYTORCH, model.TORCH_EXPORT, fixed, True),
        )
    ):
        (tmp_path / "network").touch()
        network = model.Network(kind, tmp_path / "network", tensors)
        repository.write(tmp_path / str(number), "test", 1, network, Plan(backend, 64, 2, gpus))
        files.append(tmp_path / str(number) / "test" / "config.pbtxt")
    read = environments.told(environments.triton_python(), "triton_client.py", "schema", *files)
    assert [config["backend"] for config in read] == [PYTHON, ONNXRUNTIME, ONNXRUNTIME, PYTORCH, PYTORCH]
    assert read[1]["input"][0] == {"name": "x", "data_type": "TYPE_FP32", "dims": ["4"]}
    assert read[1]["output"][0]["reshape"] == {}
    queue = {"default_queue_policy": {"allow_timeout_override": True}}  # its action is the default one, to reject
    assert read[1]["dynamic_batching"] == {"preferred_batch_size": [64], **queue}
    assert read[1]["instance_group"] == [{"kind": "KIND_GPU", "count": 2}]
    assert "max_batch_size" not in read[2]
