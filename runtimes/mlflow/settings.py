"""What the MLflow runtime is told on its command line, besides what the interface is told.

Owns the options, their defaults and their limits; leaves acting on them to the pool. One idea: nothing is read from
anywhere else, so what a pod runs with stands in its manifest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtimes.interface import settings as interface


@dataclass(frozen=True, kw_only=True)
class Settings(interface.Settings):
    """One runtime process."""

    model: Path
    model_python: Path
    predictors: int | None = None
    load_timeout_s: float = 600.0


def parse_settings(arguments: Sequence[str] | None = None) -> Settings:
    """The settings of a command line; ends the process with a usage message where they make no sense."""
    parser = argparse.ArgumentParser(prog="python -m runtimes.mlflow", description="Serve one MLflow model.")
    add = parser.add_argument
    add("--model", type=Path, required=True, help="the model's folder, with MLmodel in it")
    add("--model-python", type=Path, required=True, help="the python of the model's environment")
    add("--predictors", type=interface.count, help="predictor processes (default: the CPU quota, rounded up)")
    add("--load-timeout-s", type=interface.seconds, default=600.0, help="the longest the model may load")
    interface.add_options(parser)
    return Settings(**vars(parser.parse_args(arguments)))
