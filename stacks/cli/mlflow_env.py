"""The Python environment of the embedded model registry, in which the example models are trained and models are read.

It is apart from the project's own environment, because the pins of MLflow and of Pulumi need not agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from embedded import host_settings
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import Workspace

STAMP = "knobless.stamp"


def lock_file(workspace: Workspace) -> Path:
    return workspace.root / "requirements" / "mlflow.txt"


def ensure(workspace: Workspace, report: Callable[[str], None]) -> Path:
    """Make the environment where it is missing or its lock changed; returns its interpreter."""
    wanted = hashlib.sha256(lock_file(workspace).read_bytes() + sys.version.encode()).hexdigest()
    stamp = workspace.mlflow_env / STAMP
    if stamp.is_file() and stamp.read_text() == wanted:
        return workspace.mlflow_python
    report("MLflow's environment: installing (once, one to four minutes)")
    shutil.rmtree(workspace.mlflow_env, ignore_errors=True)
    venv.create(workspace.mlflow_env, with_pip=True)
    pip = [str(workspace.mlflow_python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    result = subprocess.run(
        [*pip, "--require-hashes", "-r", str(lock_file(workspace))], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        hint = "the next run starts it afresh"
        raise CliError(f"MLflow could not be installed:\n{result.stderr[-2000:]}", hint=hint, code=ExitCode.MACHINE)
    stamp.write_text(wanted)
    report("MLflow's environment: ready")
    return workspace.mlflow_python


def run_script(workspace: Workspace, script: Path, tracking_uri: str, *arguments: str) -> str:
    """Run a script in this environment against a model registry; returns its standard output."""
    own = {"MLFLOW_TRACKING_URI": tracking_uri, "PYTHONPATH": str(workspace.root), "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **own, **host_settings.no_proxy(os.environ), "MLFLOW_DISABLE_TELEMETRY": "true"}
    result = subprocess.run(
        [str(workspace.mlflow_python), str(script), *arguments],
        env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if result.returncode != 0:
        raise CliError(f"{script.name} failed:\n{result.stderr[-3000:] or result.stdout[-3000:]}")
    return result.stdout


def last_json(output: str) -> dict[str, object]:
    """The JSON object on the last line of a script's output."""
    return dict(json.loads(output.strip().splitlines()[-1]))
