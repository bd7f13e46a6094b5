"""The environments of the heavy engines, made once below KNOBLESS_HOME and kept until their lock file changes.

Nobody needs them but the tests of these engines: vLLM takes 5 GB and two minutes, Triton 0.5 GB and seconds.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from embedded.packages import APT_OPTIONS
from stacks.cli import workspace

ROOT = Path(__file__).parents[2]
STAMP = "knobless.stamp"
# What each loads of Debian's, beside Python.
_OPENMP = ("libgomp.so.1", "libgomp1")
LIBRARIES = {
    "vllm": ("libnuma.so.1", "libnuma1"),
    "triton": ("libpython3.11.so.1.0", "libpython3.11"),
    **dict.fromkeys(("flavors", "bench-kserve", "bench-mlserver"), _OPENMP),  # LightGBM's
}
PYTHON = "python3.11"  # what the lock files were resolved for, and what Triton's Python back end is built against


@functools.cache
def vllm_python() -> Path:
    """An interpreter with the real vLLM, its CPU build."""
    return _ensure("vllm")


@functools.cache
def triton_python() -> Path:
    """An interpreter with pytriton, which holds the real Triton, and with what its Python back end runs."""
    return _ensure("triton")


@functools.cache
def flavors_python() -> Path:
    """An interpreter with MLflow and the libraries of its classic flavors."""
    return _ensure("flavors")


@functools.cache
def deep_flavors_python() -> Path:
    """An interpreter with MLflow and the libraries of its deep, statistical and language flavors."""
    return _ensure("flavors-deep")


@functools.cache
def triton() -> Path:
    """Triton in the layout of its own images."""
    python = triton_python()
    folder = python.parents[1] / "tritonserver"
    with _alone("triton"):
        if not folder.is_dir():
            command = [sys.executable, "-m", "runtimes.triton.arrange", "--python", str(python), "--to", str(folder)]
            subprocess.run(command, check=True, cwd=ROOT)
    return folder


def _ensure(name: str) -> Path:
    folder = workspace.from_process("local", "tests").home / "envs" / name
    lock = ROOT / "requirements" / f"{name}.txt"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    python, stamp = folder / "bin" / "python", folder / STAMP
    with _alone(name):
        if not stamp.is_file() or stamp.read_text() != wanted:
            print(f"  {name}'s environment: installing (once)", file=sys.stderr, flush=True)
            if name in LIBRARIES:
                _ensure_library(*LIBRARIES[name])
            shutil.rmtree(folder, ignore_errors=True)
            _must([_base_python(), "-m", "venv", str(folder)])
            pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-cache-dir"]
            # The lock is whole, and leaves out on purpose what vLLM asks for and can't use here.
            _must([*pip, "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", str(lock)])
            stamp.write_text(wanted)
    return python


def _ensure_library(name: str, package: str) -> None:
    try:
        ctypes.CDLL(name)
    except OSError:
        _must(["apt-get", "install", *APT_OPTIONS, package])


def _base_python() -> str:
    found = shutil.which(f"/usr/bin/{PYTHON}") or shutil.which(PYTHON)
    assert found is not None, f"the tests of vLLM and Triton need {PYTHON}"
    return found


def _must(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One run of the tests, and one worker of it, makes an environment; the others wait for it."""
    locks = workspace.from_process("local", "tests").home / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"env-{name}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(python: Path, script: str, *arguments: str | Path) -> str:
    """What one of this folder's scripts printed, in one of these environments."""
    own = {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "ORT_DISABLE_TELEMETRY": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    command = [str(python), str(Path(__file__).with_name(script)), *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def told(python: Path, script: str, *arguments: str | Path) -> Any:
    """What one of this folder's scripts printed, as JSON."""
    return json.loads(run(python, script, *arguments).splitlines()[-1])
