"""The real MLServer, KServe and BentoML, each in an environment of its own, serving a model that doubles.

Leaves making environments to `environments`. They are what their users would start in an image; here no image is made.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.integration.runtime_process import free_port, listens, until
from tests.runtime_lab import environments

HERE = Path(__file__).parent / "foreign"
START_S = 90
QUIET = {"BENTOML_DO_NOT_TRACK": "True", "DO_NOT_TRACK": "1"}


def _mlserver(python: Path, folder: Path, port: int) -> list[str]:
    settings = {
        "host": "127.0.0.1", "http_port": port, "grpc_port": free_port(), "metrics_port": free_port(),
        "parallel_workers": 0,
    }  # fmt: skip
    shutil.copyfile(HERE / "mlserver_model.py", folder / "double.py")
    (folder / "settings.json").write_text(json.dumps(settings))
    (folder / "model-settings.json").write_text(json.dumps({"name": "m", "implementation": "double.Double"}))
    return [str(python.with_name("mlserver")), "start", str(folder)]


def _kserve(python: Path, folder: Path, port: int) -> list[str]:
    return [str(python), str(HERE / "kserve_server.py"), str(port)]


def _bentoml(python: Path, folder: Path, port: int) -> list[str]:
    shutil.copyfile(HERE / "bentoml_service.py", folder / "service.py")
    return [str(python.with_name("bentoml")), "serve", "service:Double", "--host", "127.0.0.1", "--port", str(port)]


SERVERS = {"mlserver": _mlserver, "kserve": _kserve, "bentoml": _bentoml}


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The server's port and process, once it listens; it may not be ready yet."""
    python = environments._ensure(name)
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    own = {**QUIET, "HOME": str(folder), "PYTHONPATH": str(folder), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    log = (folder / "log").open("wb")
    argv = SERVERS[name](python, folder, port)
    with (
        log,
        subprocess.Popen(
            argv, cwd=folder, env={**os.environ, **own}, stdout=log, stderr=log, start_new_session=True
        ) as process,
    ):
        try:
            until(lambda: listens(port), f"{name} listens", process, START_S)
            yield port, process
        finally:
            for pid in _in(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _in(folder: Path) -> list[int]:
    """Who works in the folder: BentoML's workers are in no group of the server's."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):  # it ended while being looked at
            if place.readlink() == folder.resolve():
                found.append(int(place.parent.name))
    return found
