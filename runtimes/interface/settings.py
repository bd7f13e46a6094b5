"""What the interface is told on its process's command line.

Owns the options that hold whatever the engine, their defaults and their limits; an engine adds its own to the parser.
One idea: nothing is read from anywhere else, so what a pod runs with stands in its manifest.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

MAX_BODY_BYTES = 16 * 1024 * 1024
KEEP_ALIVE_S = 3600  # longer than any gateway keeps an idle connection, so it is never us who closes one


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The interface of one process."""

    host: str = "0.0.0.0"
    port: int = 8080
    name: str = "model"
    version: str = "unknown"
    deadline_s: float = 60.0
    idle_s: float = 60.0
    max_in_flight: int = 1024
    max_body_bytes: int = MAX_BODY_BYTES
    max_answer_bytes: int = MAX_BODY_BYTES
    max_buffered_bytes: int = 16 * MAX_BODY_BYTES
    linger_s: float = 5.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """The interface's options."""
    default = Settings()
    add = parser.add_argument
    add("--host", default=default.host, help="the address to listen on")
    add("--port", type=int, default=default.port)
    add("--name", default=default.name, help="the endpoint: its model's name in v2 and OpenAI's API, in metrics, logs")
    add("--version", default=default.version, help="the model's version, for metrics, logs and answers")
    add("--deadline-s", type=seconds, default=default.deadline_s, help="the longest a prediction may take")
    add("--idle-s", type=seconds, default=default.idle_s, help="the longest a stream may say nothing")
    add("--max-in-flight", type=count, default=default.max_in_flight, help="above it: 429")
    add("--max-body-bytes", type=count, default=default.max_body_bytes, help="of a request, unpacked; above it: 413")
    add("--max-answer-bytes", type=count, default=default.max_answer_bytes, help="above it: 500")
    add("--max-buffered-bytes", type=count, default=default.max_buffered_bytes, help="of all bodies; above it: 429")
    add("--linger-s", type=seconds, default=default.linger_s, help="the longest to accept after SIGTERM")


def seconds(text: str) -> float:
    """A time on a command line."""
    value = float(text)
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError("must be above 0 and below 86400 seconds")
    return value


def count(text: str) -> int:
    """A number of things on a command line, at least one."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
