"""The two environments of a model that is served on this machine: the front's, and the model's own.

Owns making and finding them below the state folder. What is in them is what is in a model's image: runtimes/
requirements.txt for the front, the model's own requirements for the model. One idea: a folder is named by what it was
made from, so nothing that runs ever loses its packages, and two models with the same requirements share one.
"""

from __future__ import annotations

import fcntl
import hashlib
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runtimes.images import Environment
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import Workspace

STAMP = "knobless.stamp"
Report = Callable[[str], None]


def front(workspace: Workspace, report: Report) -> Path:
    """The interpreter of the front's environment."""
    lock = workspace.root / "runtimes" / "requirements.txt"
    folder = _folder(workspace, "front", lock.read_text() + sys.version)
    packages = ["--require-hashes", "--only-binary", ":all:", "-r", str(lock)]
    return _ensure(folder, sys.executable, packages, lambda: report("the front's environment: installing (once)"))


def of_model(workspace: Workspace, wanted: Environment, report: Report) -> Path:
    """The interpreter of a model's own environment. CliError where this machine lacks its Python."""
    python = interpreter(wanted.python)
    folder = _folder(workspace, "model", wanted.digest)
    needed = folder.with_suffix(".txt")
    needed.parent.mkdir(parents=True, exist_ok=True)
    needed.write_text(wanted.requirements_text)
    said = "the model's environment: installing (once for these requirements, some minutes)"
    return _ensure(folder, python, ["-r", str(needed)], lambda: report(said))


def interpreter(version: str) -> str:
    """A Python of this minor version on this machine."""
    if platform.python_version().startswith(f"{version}."):
        return sys.executable
    if found := shutil.which(f"python{version}"):
        return found
    hint = f"the model was logged with it: install it, or log the model with Python {platform.python_version()}"
    raise CliError(f"this machine has no python{version}", hint=hint, code=ExitCode.MACHINE)


def _folder(workspace: Workspace, kind: str, made_from: str) -> Path:
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:16]
    return workspace.home / "envs" / "served" / f"{kind}-{digest}"


def _ensure(folder: Path, base: str, packages: Sequence[str], told: Callable[[], None]) -> Path:
    python = folder / "bin" / "python"
    with _alone(folder):
        if not (folder / STAMP).is_file():
            told()
            shutil.rmtree(folder, ignore_errors=True)
            _make(folder, base)
            _must([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages])
            (folder / STAMP).touch()
    return python


def _make(folder: Path, base: str) -> None:
    if base == sys.executable:
        venv.create(folder, with_pip=True)
    else:
        _must([base, "-m", "venv", str(folder)])


def _must(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        hint = "the next run starts it afresh"
        raise CliError(f"an environment could not be made:\n{done.stderr[-2000:]}", hint=hint, code=ExitCode.MACHINE)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """A second command waits for the first one's environment and then uses it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
