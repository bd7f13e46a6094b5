"""The mounts that buildah runs in: what it keeps of layers is below the home, and nothing of it is the host's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from embedded import images

pytestmark = pytest.mark.process
CACHE = Path("/var/lib/containers/cache")


def run(home: Path, *command: str) -> str:
    done = subprocess.run(
        (*images.private(home), *command), env=images.environment(home), capture_output=True, text=True, check=True
    )
    return done.stdout


def test_what_is_known_of_layers_is_kept_from_one_run_to_the_next_and_not_on_the_host(tmp_path: Path) -> None:
    before = CACHE.exists()
    run(tmp_path, "sh", "-c", f"echo known > {CACHE}/layers")
    assert run(tmp_path, "cat", str(CACHE / "layers")) == "known\n"
    assert (CACHE.exists(), (CACHE / "layers").exists()) == (before, False)


def test_what_else_is_written_below_var_lib_ends_with_the_run(tmp_path: Path) -> None:
    run(tmp_path, "sh", "-c", "touch /var/lib/knobless-of-a-test")
    assert not Path("/var/lib/knobless-of-a-test").exists()
    assert run(tmp_path, "sh", "-c", "ls /var/lib | grep -c of-a-test || true") == "0\n"
