"""The `knobless` command as tests on a cluster start it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from embedded.instance import DEFAULT_HOME

T = TypeVar("T")
ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = Path(os.environ.get("KNOBLESS_HOME") or DEFAULT_HOME)
COMMAND_BOUND_S: Final = 540


@dataclass(frozen=True)
class Said:
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


def knobless(stacks: Path, *arguments: str, bound_s: float = COMMAND_BOUND_S, **told: str) -> Said:
    """Run the command of this checkout on the declarations below `stacks`; `told` are further variables."""
    done = subprocess.run(
        [sys.executable, "-m", "stacks.cli.main", *arguments],
        cwd=ROOT,
        env={**os.environ, "KNOBLESS_STACKS": str(stacks), "KNOBLESS_HOME": str(HOME), **told},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=bound_s,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)


def must(said: Said) -> Said:
    assert said.code == 0, f"the command ended with {said.code}:\n{said.text}"
    return said


def wait_until(holds: Callable[[], T], bound_s: float, what: str) -> T:
    """The first true value of `holds`; fails with `what` after `bound_s`."""
    deadline_s = time.monotonic() + bound_s
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline_s, f"{what}: not within {bound_s:g} s"
        time.sleep(0.5)
