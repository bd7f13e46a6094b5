"""What of an MLflow model Triton has to be given.

Owns reading its folder: which back end, which file, which tensors; leaves the repository to repository. One idea: the
network's own file says what it takes where it can, the signature where it can't.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from runtimes.triton import onnx_graph
from runtimes.triton.tensors import Tensors, UnservableError, from_signature

ONNX, TORCH_EXPORT, TORCH_SCRIPT = "onnx", "torch_export", "torch_script"


@dataclass(frozen=True)
class Network:
    """A file that one of Triton's back ends can load; ``kind`` is one of the above."""

    kind: str
    file: Path
    tensors: Tensors
    example: Path | None = None


def read(folder: Path) -> Network:
    """The network in an MLflow model's folder; UnservableError where there is none."""
    network = _read(folder)
    network.tensors.check()
    return network


def _read(folder: Path) -> Network:
    described = folder / "MLmodel"
    if not described.is_file():
        raise UnservableError("the folder has no MLmodel file, so it is not an MLflow model")
    document = yaml.safe_load(described.read_text(encoding="utf-8"))
    flavors = document.get("flavors") or {}
    example = _example(folder, document)
    if "onnx" in flavors:
        file = folder / flavors["onnx"].get("data", "model.onnx")
        return Network(ONNX, file, onnx_graph.read(file), example)
    if "pytorch" in flavors:
        kind, file = _torch_file(folder / flavors["pytorch"].get("model_data", "data"))
        return Network(kind, file, from_signature(document.get("signature")), example)
    raise UnservableError("Triton serves models with the onnx or pytorch flavor; this one has neither")


def _torch_file(data: Path) -> tuple[str, Path]:
    for name, kind in (("model.pt2", TORCH_EXPORT), ("model.pt", TORCH_SCRIPT)):
        if (data / name).is_file():
            return kind, data / name
    raise UnservableError(
        "the PyTorch model is a pickle, which needs its own code: log it with an input example, so that it is exported"
    )


def _example(folder: Path, document: dict[str, Any]) -> Path | None:
    told = (document.get("saved_input_example_info") or {}).get("serving_input_path")
    return folder / told if told and (folder / told).is_file() else None
