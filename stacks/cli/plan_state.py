"""A copy of one stack's state to plan on: a plan leaves nothing behind, and sees what protection would hide.

Owns the copy: a file backend of its own in a temporary folder, gone with the plan however that ends. Leaves the real
state to Pulumi. One idea: a deletion of what is protected is an error of Pulumi's preview, so that nobody would see
what goes; in the copy nothing is protected, and the rules on operations are what refuses it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from spec.names import PROJECT

PREFIX: Final = "knobless-plan-"
VERSION: Final = 3  # of Pulumi's checkpoints and exports, which share their inner format


@dataclass(frozen=True)
class PlanState:
    """The copy. `settings` takes the file that Pulumi would generate in the checkout for a stack that is new."""

    backend_url: str
    settings: Path


def unprotected(deployment: Mapping[str, Any]) -> dict[str, Any]:
    """The same deployment with nothing protected in it."""
    resources = deployment.get("resources") or []
    open_ones = [{key: value for key, value in each.items() if key != "protect"} for each in resources]
    return {**deployment, "resources": open_ones}


def checkpoint(stack: str, deployment: Mapping[str, Any] | None) -> dict[str, Any]:
    """A stack's state as the file backend keeps it; None is a stack in which nothing stands yet."""
    latest = None if deployment is None else unprotected(deployment)
    return {"version": VERSION, "checkpoint": {"stack": f"organization/{PROJECT}/{stack}", "latest": latest}}


@contextmanager
def copied(stack: str, deployment: Mapping[str, Any] | None) -> Iterator[PlanState]:
    """The copy, for as long as the plan takes; only this user can read it."""
    with tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        file = folder / ".pulumi" / "stacks" / PROJECT / f"{stack}.json"
        file.parent.mkdir(parents=True)
        (folder / ".pulumi" / "meta.yaml").write_text("version: 1\n")
        file.write_text(json.dumps(checkpoint(stack, deployment)))
        yield PlanState(f"file://{folder}", folder / f"Pulumi.{stack}.yaml")
