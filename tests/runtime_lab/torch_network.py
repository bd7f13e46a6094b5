"""Runs in vLLM's environment, which has PyTorch: log a network with the real MLflow, and run it as Triton's Python back
end would, if its program is named; prints its outputs as one JSON line.

    python torch_network.py FOLDER [PYTHON_MODEL]
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

X = np.array([[1, 2], [3, 4]], dtype=np.float32)


def log(folder: Path) -> None:
    import mlflow.pytorch
    import torch
    from mlflow.models import ModelSignature
    from mlflow.types.schema import Schema, TensorSpec

    class Doubles(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    schema = Schema([TensorSpec(np.dtype(np.float32), (-1, 2))])
    mlflow.pytorch.save_model(
        Doubles(), folder, signature=ModelSignature(schema, schema), input_example=X, pip_requirements=["torch"],
        serialization_format="pt2",
    )  # fmt: skip


def back_end(path: Path) -> Any:
    sys.modules["triton_python_backend_utils"] = types.ModuleType("triton_python_backend_utils")
    spec = importlib.util.spec_from_file_location("python_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(folder: Path, python_model: Path | None = None) -> None:
    log(folder)
    if python_model is None:
        return
    run = back_end(python_model).load_torch_export(str(folder / "data" / "model.pt2"), 1, False, ["OUTPUT__0"])
    print(json.dumps({name: values.tolist() for name, values in run({"INPUT__0": X}).items()}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
