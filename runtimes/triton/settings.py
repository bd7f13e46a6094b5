"""What Triton's runtime is told on its command line.

Owns the options beside the interface's; leaves what follows from them to config and process.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from runtimes.interface import settings as interface
from runtimes.interface.settings import Settings, count, seconds
from runtimes.selection import BATCHED_LIMIT

BACKENDS = ("onnxruntime", "pytorch", "python")


@dataclass(frozen=True, kw_only=True)
class TritonSettings(Settings):
    """One Triton with one model. None: what the model and the machine suggest."""

    model: Path
    model_python: Path
    triton: Path = Path("/opt/tritonserver")
    backend: str | None = None
    merged_rows: int = BATCHED_LIMIT
    instances: int | None = None
    load_timeout_s: float = 600.0
    stuck_s: float = 60.0


def parse_settings(arguments: Sequence[str] | None = None) -> TritonSettings:
    """Read the command line."""
    found = vars(_parser().parse_args(arguments))
    names = {field.name for field in fields(TritonSettings)}
    return TritonSettings(**{name: value for name, value in found.items() if name in names and value is not None})


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m runtimes.triton", description="Serve a network with Triton.")
    interface.add_options(parser)
    add = parser.add_argument
    add("--model", type=Path, required=True, help="the folder of an MLflow model with the onnx or pytorch flavor")
    add("--model-python", type=Path, required=True, help="the interpreter that has what the Python back end runs")
    add("--triton", type=Path, help="Triton's folder, with bin/ and backends/")
    add("--backend", choices=BACKENDS, help="instead of the network's own where that is installed, else python")
    add("--merged-rows", type=count, help="requests that wait are merged up to so many rows")
    add("--instances", type=count, help="how many batches run at once; on a CPU as many as there are cores")
    add("--load-timeout-s", type=seconds, help="the longest that loading may take")
    add("--stuck-s", type=seconds, help="a Triton that says nothing for so long needs a new process")
    return parser
