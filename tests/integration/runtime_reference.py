"""A model served by us beside MLflow with the same model, and what makes their answers the same."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration.runtime_process import JSON, Runtime, process_of_ours
from tests.runtime_lab import environments

_SCRIPT = Path(environments.__file__).with_name("flavor_reference.py")


class Reference:
    """MLflow itself with the same model, in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, document: Any) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(document) + "\n")
        self._process.stdin.flush()
        return dict(json.loads(self._process.stdout.readline()))


@contextlib.contextmanager
def both(model: Path, python: Path, folder: Path) -> Iterator[tuple[Runtime, Reference]]:
    """The model served by us, and MLflow with the same model in the same environment."""
    ours = ["runtimes.mlflow", "--model", str(model), "--model-python", str(python), "--predictors", "1"]
    elsewhere = folder / "reference"  # MLflow writes the traces of agents to where it runs
    elsewhere.mkdir()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with (
        subprocess.Popen([str(python), str(_SCRIPT), str(model)], text=True, cwd=elsewhere, **pipes) as reference,  # type: ignore[call-overload]
        process_of_ours(folder / "ours", ours) as runtime,
    ):
        try:
            assert reference.stdout.readline() == "ready\n"
            yield runtime.wait_ready(), Reference(reference)
        finally:
            reference.kill()


def way(runtime: Runtime) -> str:
    """How the model is called, as the log tells."""
    (told,) = [line["message"] for line in runtime.log if "the model is called by" in line["message"]]
    return str(told.removeprefix("the model is called by ").partition(",")[0])


def same(one: Any, other: Any) -> bool:
    """Equal values of equal types; a number that is not finite is null for us and NaN for MLflow's server."""
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(other, float) and not math.isfinite(other):
        return one is None
    return type(one) is type(other) and one == other


def raw(runtime: Runtime, inputs: list[dict[str, Any]]) -> list[Any]:
    """Type, shape and bytes of the answer, by the protocol that carries them."""
    body = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    answer = runtime.ask("POST", "/v2/models/test/infer", body, JSON)
    assert answer.status == 200, answer.body
    head = int(answer.headers["inference-header-content-length"])
    (output,) = json.loads(answer.body[:head])["outputs"]
    types = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8", "INT32": "<i4", "BOOL": "|b1"}
    return [types[output["datatype"]], output["shape"], answer.body[head:].hex()]
