"""A container's process that is told to end while it still imports: it is process 1, from which the kernel keeps every
signal that it has no handler for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.runtime_process import ROOT, model_python, models, until

pytestmark = pytest.mark.process

# In place of a package that every front imports before it listens.
ENDLESS = "import pathlib, time\npathlib.Path(__file__).with_name('begun').touch()\ntime.sleep(600)\n"


def _command(module: str) -> list[str]:
    own = {
        "mlflow": ["--model", str(models() / "iris"), "--model-python", str(model_python())],
        "proxy": ["--upstream-port", "1", "--protocol", "mlflow"],
        "triton": ["--model", ".", "--model-python", sys.executable],
    }
    where = ["--host", "127.0.0.1", "--port", "0", "--name", "test", "--version", "7"]
    return [sys.executable, "-m", f"runtimes.{module}", *where, *own[module]]


@pytest.mark.parametrize("module", ["mlflow", "proxy", "triton"])
def test_process_1_that_is_told_to_end_while_it_imports_ends(tmp_path: Path, module: str) -> None:
    (tmp_path / "runtimes").symlink_to(ROOT / "runtimes")
    (tmp_path / "uvloop.py").write_text(ENDLESS)
    own = {"PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    alone = ["unshare", "--pid", "--fork", "--kill-child", *_command(module)]
    with subprocess.Popen(alone, env={**os.environ, **own}, cwd=tmp_path) as process:
        try:
            until((tmp_path / "begun").exists, "the import", process)
            (front,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(front), signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
