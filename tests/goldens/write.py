"""Writes the goldens of the Pulumi program anew; read the difference before it is committed.

Argument: the folder to write to; without one, the goldens' own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# The example environment, one that states every field, and one whose replicas span nodes of the embedded cluster.
STACKS = {
    "local.platform": HERE.parents[1] / "stacks",
    "local.alpha.wine": HERE.parents[1] / "stacks",
    "cloud.platform": HERE / "stacks",
    "cloud.risk.fraud": HERE / "stacks",
    "cloud.risk.ranker": HERE / "stacks",
    "cloud.search.chat": HERE / "stacks",
    "groups.platform": HERE / "stacks",
    "groups.alpha.chat": HERE / "stacks",
}


def record(stack: str, stacks: Path) -> dict[str, Any]:
    """What the program registers for a stack; in a process of its own, as the SDK needs it."""
    command = [sys.executable, str(HERE / "record_graph.py"), stack, str(stacks)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise RuntimeError(finished.stderr)
    recorded: dict[str, Any] = json.loads(finished.stdout)
    return recorded


def main(target: Path) -> None:
    for stack, stacks in STACKS.items():
        text = json.dumps(record(stack, stacks), indent=1, sort_keys=True)
        (target / f"{stack}.json").write_text(text + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "recorded")
