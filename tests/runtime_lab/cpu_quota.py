"""A real CPU quota for a process of the tests, on cgroup v1 and v2."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PERIOD_US = 100_000
_ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def cores(count: float) -> Iterator[Path]:
    """A cgroup with this quota, for processes to be put in; OSError where this machine lets nobody make one."""
    parent = next((each for each in (_ROOT / "cpu", _ROOT / "cpu,cpuacct") if each.is_dir()), _ROOT)
    folder = parent / f"knobless-test-{os.getpid()}"
    folder.mkdir()
    try:
        quota_us = int(count * PERIOD_US)
        if parent == _ROOT:
            (folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        yield folder
    finally:
        folder.rmdir()


def run(folder: Path, command: Sequence[str | Path], environment: Mapping[str, str]) -> str:
    """What a command printed that ran inside; it enters before it becomes the command."""
    words = ["sh", "-c", f'echo $$ > "{folder}/cgroup.procs" && exec "$@"', "sh", *map(str, command)]
    done = subprocess.run(words, env=dict(environment), stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout
