"""The life of the real Triton behind the interface: starts that fail, health, the end, and what is rendered for it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from runtimes.triton import model, repository
from runtimes.triton.config import ONNXRUNTIME, PYTHON, PYTORCH, Plan
from runtimes.triton.tensors import Tensor, Tensors
from tests.integration.runtime_process import JSON, Connection, Runtime, model_python, until
from tests.runtime_lab import environments
from tests.runtime_lab.processes import networks, triton

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

INFER = "/v2/models/test/infer"


def times(count: int) -> bytes:
    """A request that takes the slow network so many turns."""
    tensor = {"name": "times", "datatype": "INT64", "shape": [1], "data": [count]}
    return json.dumps({"inputs": [tensor]}).encode()


def server_pid(runtime: Runtime) -> int:
    (pid,) = runtime.predictors()
    return pid


@pytest.mark.case("runtimes-H8")
def test_with_a_numpy_that_its_back_end_can_not_take_it_is_never_ready(tmp_path: Path) -> None:
    python = with_numpy_2(tmp_path / "venv")
    told = subprocess.run([python, "-c", "import numpy, onnxruntime; print(numpy.__version__)"], stdout=subprocess.PIPE)
    assert told.stdout.startswith(b"2.")
    with triton(networks() / "line", tmp_path / "run", "--model-python", str(python)) as runtime:
        assert runtime.process.wait(60) == 3
        assert runtime.reason.startswith("the model failed on its own input example: ")
        assert "bytes do not hold the values of shape" in runtime.reason  # Triton itself says 200


def with_numpy_2(venv: Path) -> Path:
    """Triton's interpreter and packages, but for numpy, which is that of MLflow's environment."""
    ours, other = (environments.triton_python(), model_python())
    subprocess.run([ours, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    for python, is_numpy in ((ours, False), (other, True)):
        (site,) = python.parents[1].glob("lib/python*/site-packages")
        for entry in site.iterdir():
            if entry.name.startswith("numpy") is is_numpy:
                (packages / entry.name).symlink_to(entry)
    return venv / "bin" / "python"


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
def test_a_server_that_is_stuck_is_not_ready_then_not_live_and_back_when_it_moves(tmp_path: Path) -> None:
    with triton(networks() / "slow", tmp_path, "--stuck-s", "3") as runtime:
        runtime.wait_ready()
        os.kill(server_pid(runtime), signal.SIGSTOP)
        try:
            until(lambda: runtime.ask("GET", "/health").status == 503, "not ready")
            until(lambda: runtime.ask("GET", "/live").status == 503, "not live")
        finally:
            os.kill(server_pid(runtime), signal.SIGCONT)
        until(lambda: runtime.ask("GET", "/live").status == 200, "alive")
        runtime.wait_ready()
        assert runtime.ask("POST", INFER, times(1), JSON).status == 200


@pytest.mark.case(
    "runtimes-C7", "runtimes-C10", "runtimes-C11", "runtimes-C13", "runtimes-C16", "runtimes-D6", "runtimes-B11"
)
async def test_told_to_end_it_serves_on_finishes_what_it_has_and_leaves_nothing(tmp_path: Path) -> None:
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
            assert runtime.predictors() == [pid]
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


def test_a_pytorch_model_that_mlflow_exported_is_read_and_run_by_the_python_back_end(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    ran = environments.told(environments.vllm_python(), "torch_network.py", folder, repository.PYTHON_MODEL)
    network = model.read(folder)
    assert (network.kind, network.file) == (model.TORCH_EXPORT, folder / "data" / "model.pt2")
    assert network.tensors == Tensors((Tensor("INPUT__0", "FP32", (-1, 2)),), (Tensor("OUTPUT__0", "FP32", (-1, 2)),))
    assert ran == {"OUTPUT__0": [[2.0, 4.0], [6.0, 8.0]]}
