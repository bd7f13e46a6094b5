"""A predictor's process, as the front starts it.

Owns its command line, its environment and the socket to it; leaves what is said over the socket to predictor. One idea:
it imports little and no event loop, so the first predictor begins before the front has imported what it serves with.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from runtimes.mlflow.settings import Settings
from runtimes.quota import THREAD_VARIABLES, Cpu, cpu, cpu_quota, own_affinity


class LoadFailedError(Exception):
    """The model can't be loaded; the text is one line for whoever runs the endpoint."""


@dataclass(frozen=True)
class Launched:
    """A process that has begun, and our end of the socket to it."""

    process: subprocess.Popen[bytes]
    sock: socket.socket


def usable(settings: Settings) -> Cpu:
    """Predictors and threads that fit into this process's CPUs."""
    return cpu(settings.predictors, cpu_quota(), own_affinity())


def first(settings: Settings) -> Launched | None:
    """The first predictor; None where it can't be started, which the fleet will find out, too, and give a reason."""
    with suppress(LoadFailedError):
        return launch(settings, predictor_environment(os.environ, usable(settings).threads))
    return None


def launch(settings: Settings, environment: Mapping[str, str]) -> Launched:
    """Start a process on the settings' model; LoadFailedError where this machine can't."""
    ours, theirs = sockets()
    fd, python = theirs.fileno(), str(settings.model_python)
    command = [python, "-m", "runtimes.mlflow.worker", str(fd), str(settings.model), str(settings.max_in_flight)]
    with theirs:
        try:
            process = subprocess.Popen(
                command, env=environment, pass_fds=(fd,), stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise LoadFailedError(f"{python} can't be started: {error.strerror}") from None
    return Launched(process, ours)


def sockets() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection to a predictor; LoadFailedError where there can't be one more."""
    try:
        return socket.socketpair()
    except OSError as error:
        raise LoadFailedError(f"there is no socket for a predictor: {error.strerror}") from None


def predictor_environment(own: Mapping[str, str], threads: int) -> dict[str, str]:
    """A predictor's environment: ours, its numeric threads within the quota, and nobody phones home."""
    quiet = {
        "MLFLOW_CONFIGURE_LOGGING": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "ORT_DISABLE_TELEMETRY": "1",
        "PYTHONSAFEPATH": "1",  # the working directory holds nothing of the model's
        "PYTHONUNBUFFERED": "1",
    }
    limits = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return {**limits, **own, **quiet, "KNOBLESS_FRONT_PID": str(os.getpid())}
