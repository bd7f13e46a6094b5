"""What `pulumi` says, read: the steps of a preview, and what of a failed run's output a person needs.

Pure. Leaves running it to `pulumi_cli`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

TAIL_LINES: Final = 60
WITHOUT_REASON: Final = ("", "preview failed")
_QUIET: Final = frozenset(
    {"same", "read", "refresh", "create-replacement", "delete-replaced", "discard", "read-discard"}
)


@dataclass(frozen=True)
class Preview:
    """What one `pulumi preview --json` said.

    Args:
        stack: the stack's name.
        steps: the `steps` of the output, as Pulumi wrote them.
        counts: resources by operation, without `same`.
    """

    stack: str
    steps: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int]

    @property
    def changes(self) -> bool:
        return bool(self.counts)


def read_preview(stack: str, output: str) -> Preview:
    """From the standard output of a `pulumi preview --json` that ended well."""
    steps = tuple(json.loads(output).get("steps", []))
    return Preview(stack, steps, count_operations(steps))


def count_operations(steps: tuple[Mapping[str, Any], ...]) -> dict[str, int]:
    """Resources by operation; `same`, `read` and the parts of a replace are no change of their own."""
    counts: dict[str, int] = {}
    for step in steps:
        operation = str(step.get("op"))
        if operation not in _QUIET:
            counts[operation] = counts.get(operation, 0) + 1
    return counts


def has_reason(output: str) -> bool:
    """Whether a failed `--json` run says why: a policy's verdict stands in the plain text only."""
    return diagnostics(output) not in WITHOUT_REASON


def diagnostics(output: str) -> str:
    """The part of Pulumi's output that says what is wrong, else its last lines."""
    if output.lstrip().startswith("{"):
        return _json_diagnostics(output)
    lines = output.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(("Diagnostics:", "Policies:", "Policy Violations:"))]
    ends = [i for i, line in enumerate(lines) if line.startswith(("Outputs:", "Resources:", "Duration:"))]
    kept = lines[starts[0] : next((e for e in ends if e > starts[0]), None)] if starts else lines[-TAIL_LINES:]
    return "\n".join(line for line in kept if line.strip())


def _json_diagnostics(output: str) -> str:
    """Messages of a failed `--json` run: every error but the engine's own remark that there was one."""
    document, end = json.JSONDecoder().raw_decode(output.lstrip())
    told = [str(entry.get("message", "")).strip() for entry in document.get("diagnostics") or ()]
    told = [line.removeprefix("error: ") for line in told if line and "an unhandled error occurred" not in line]
    return "\n".join([*told, output.lstrip()[end:].strip()]).strip()
