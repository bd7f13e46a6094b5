"""A model repository for Triton.

Owns its folders and which back end runs a network; leaves the configuration's text to config. One idea: a back end of
Triton's own is used where this installation has it, and its Python back end with our model in it otherwise.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from runtimes.triton import model
from runtimes.triton.config import ONNXRUNTIME, PYTHON, PYTORCH, Plan, config
from runtimes.triton.model import Network
from runtimes.triton.tensors import UnservableError

PYTHON_MODEL = Path(__file__).with_name("python_model.py")
_NATIVE = {model.ONNX: ONNXRUNTIME, model.TORCH_EXPORT: PYTORCH, model.TORCH_SCRIPT: PYTORCH}
_FILES = {model.ONNX: "model.onnx", model.TORCH_EXPORT: "model.pt2", model.TORCH_SCRIPT: "model.pt"}


def backend(network: Network, installed: Collection[str], wanted: str | None = None) -> str:
    """The back end that runs it: as wanted, else the network's own where it is installed, else Python."""
    native = _NATIVE[network.kind]
    if wanted is not None and wanted not in (native, PYTHON):
        raise UnservableError(f"the {wanted} back end can't load {network.file.name}: take {native} or {PYTHON}")
    chosen = wanted or (native if native in installed else PYTHON)
    if chosen not in installed:
        raise UnservableError(f"this Triton has no {chosen} back end, only {', '.join(sorted(installed))}")
    return chosen


def write(root: Path, name: str, version: int, network: Network, plan: Plan) -> None:
    """The repository below ``root``, afresh."""
    shutil.rmtree(root, ignore_errors=True)
    files = root / name / str(version)
    files.mkdir(parents=True)
    if plan.backend == PYTHON:
        shutil.copyfile(PYTHON_MODEL, files / "model.py")
        plan = replace(plan, parameters=(("file", str(network.file)), ("kind", network.kind), *plan.parameters))
    else:
        # ONNX keeps large weights in files beside the model's, which are found by their names.
        for beside in network.file.parent.iterdir() if network.kind == model.ONNX else [network.file]:
            if beside.is_file() and beside != network.file and beside.name not in ("MLmodel",):
                (files / beside.name).symlink_to(beside)
        (files / _FILES[network.kind]).symlink_to(network.file)
    (root / name / "config.pbtxt").write_text(config(name, network.tensors, plan), encoding="utf-8")
