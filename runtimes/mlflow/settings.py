"""What the front process is told on its command line.

Owns the options, their defaults and their limits; leaves acting on them to serving. One idea: nothing is read from
anywhere else, so what a pod runs with stands in its manifest.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_BODY_BYTES = 16 * 1024 * 1024
KEEP_ALIVE_S = 3600  # longer than any gateway keeps an idle connection, so it is never us who closes one


@dataclass(frozen=True)
class Settings:
    """One runtime process."""

    model: Path
    model_python: Path
    host: str
    port: int
    deadline_s: float
    predictors: int | None
    name: str
    version: str
    max_in_flight: int
    max_body_bytes: int
    max_buffered_bytes: int
    load_timeout_s: float
    linger_s: float


def parse_settings(arguments: Sequence[str] | None = None) -> Settings:
    """The settings of a command line; ends the process with a usage message where they make no sense."""
    parser = argparse.ArgumentParser(prog="python -m runtimes.mlflow", description="Serve one MLflow model.")
    parser.add_argument("--model", type=Path, required=True, help="the model's folder, with MLmodel in it")
    parser.add_argument("--model-python", type=Path, required=True, help="the python of the model's environment")
    parser.add_argument("--host", default="0.0.0.0", help="the address to listen on")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--deadline-s", type=_positive, default=60.0, help="the longest a prediction may take")
    parser.add_argument("--predictors", type=_count, help="predictor processes (default: the CPU quota, rounded up)")
    parser.add_argument("--name", default="model", help="the endpoint, for metrics and logs")
    parser.add_argument("--version", default="unknown", help="the model's version, for metrics, logs and answers")
    parser.add_argument("--max-in-flight", type=_count, default=1024, help="above it: 429")
    parser.add_argument("--max-body-bytes", type=_count, default=MAX_BODY_BYTES, help="above it: 413")
    parser.add_argument("--max-buffered-bytes", type=_count, default=16 * MAX_BODY_BYTES, help="above it: 429")
    parser.add_argument("--load-timeout-s", type=_positive, default=600.0, help="the longest the model may load")
    parser.add_argument("--linger-s", type=_positive, default=5.0, help="the longest to accept after SIGTERM")
    return Settings(**vars(parser.parse_args(arguments)))


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError("must be above 0 and below 86400 seconds")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
