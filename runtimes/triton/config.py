"""A model's `config.pbtxt`.

Owns Triton's model configuration (its published model_config.proto) as far as we use it, and writing it as text. Pure.
One idea: dynamic batching follows from the tensors and never waits: what is queued when an instance is free runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtimes.triton.tensors import Tensor, Tensors

PYTHON, ONNXRUNTIME, PYTORCH = "python", "onnxruntime", "pytorch"
MOST_ROWS = 1 << 20  # of one request: no limit before that of a body's size


class Word(str):
    """An enum's value: written without quotes."""


Value = str | int | Sequence["Value"] | Mapping[str, "Value"]


@dataclass(frozen=True)
class Plan:
    """How a model is run. ``merged_rows``: requests are merged up to so many, 0 where they must not be."""

    backend: str
    merged_rows: int = 64
    instances: int = 1
    gpus: bool = False
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def merges(self) -> bool:
        """Whether requests share a run."""
        return self.merged_rows > 0


def config(name: str, tensors: Tensors, plan: Plan) -> str:
    """The whole configuration."""
    rows = tensors.have_rows
    document: dict[str, Value] = {
        "name": name,
        "backend": plan.backend,
        "max_batch_size": MOST_ROWS if rows else 0,
        "input": [_tensor(tensor, rows) for tensor in tensors.inputs],
        "output": [_tensor(tensor, rows) for tensor in tensors.outputs],
        "instance_group": [{"count": plan.instances, "kind": Word("KIND_GPU" if plan.gpus else "KIND_CPU")}],
    }
    if rows and plan.merges:
        document["dynamic_batching"] = {
            "preferred_batch_size": [plan.merged_rows],
            "max_queue_delay_microseconds": 0,
            "default_queue_policy": {"timeout_action": Word("REJECT"), "allow_timeout_override": Word("true")},
        }
    if plan.parameters:
        document["parameters"] = [{"key": key, "value": {"string_value": value}} for key, value in plan.parameters]
    return "".join(f"{line}\n" for line in _lines(document))


def _tensor(tensor: Tensor, rows: bool) -> dict[str, Value]:
    datatype = "STRING" if tensor.datatype == "BYTES" else tensor.datatype
    dims = tensor.shape[1:] if rows else tensor.shape
    stated: dict[str, Value] = {"name": tensor.name, "data_type": Word(f"TYPE_{datatype}"), "dims": list(dims) or [1]}
    if not dims:
        stated["reshape"] = {"shape": []}  # Triton has no empty dims: one value a row is seen as a row of one
    return stated


def _lines(document: Mapping[str, Value], indent: str = "") -> list[str]:
    lines = []
    for key, value in document.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{key} {{", *_lines(value, f"{indent}  "), f"{indent}}}"]
        elif isinstance(value, Sequence) and not isinstance(value, str) and any(isinstance(v, Mapping) for v in value):
            for inner in value:
                assert isinstance(inner, Mapping)
                lines += [f"{indent}{key} {{", *_lines(inner, f"{indent}  "), f"{indent}}}"]
        else:
            lines.append(f"{indent}{key}: {_scalar(value)}")
    return lines


def _scalar(value: Value) -> str:
    if isinstance(value, (Word, int)):
        return str(value)
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    assert isinstance(value, Sequence)
    return f"[{', '.join(_scalar(inner) for inner in value)}]"
