"""Registers the example models in the embedded model registry, in MLflow's own environment."""

from __future__ import annotations

from stacks.cli import mlflow_env
from stacks.cli.workspace import Workspace


def register(workspace: Workspace, tracking_uri: str) -> str:
    """Train and register what is not there yet; returns one line a version for a person."""
    output = mlflow_env.run_script(workspace, workspace.root / "examples" / "train.py", tracking_uri)
    return "\n".join(f"    {line}" for line in output.splitlines() if line.startswith("models:/"))
