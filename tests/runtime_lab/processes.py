"""The runtimes of the heavy engines as real processes, on models that were made for them, once a run."""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.integration.runtime_process import JSON, Answer, Runtime, free_port, listening
from tests.runtime_lab import environments
from tests.runtime_lab.environments import ROOT
from tests.runtime_lab.pods import Pod, pods

VLLM_START_S = 280  # its imports take most of it, twice, on a machine that may be busy
_NO_COMPILER = {"CXX": "/nowhere/g++", "CC": "/nowhere/gcc"}  # as in the image


@contextlib.contextmanager
def vllm(folder: Path, *flags: str, model: str = "model", adapter: bool = False) -> Iterator[Runtime]:
    """vLLM on one of the tiny models; it may not be ready yet."""
    made = llm()
    words = ["--model", str(made / model), *([f"--adapter=tuned={made / 'adapter'}"] if adapter else []), *flags]
    with _serve(environments.vllm_python(), "runtimes.vllm", folder, words, _NO_COMPILER) as runtime:
        yield runtime


@contextlib.contextmanager
def vllm_group(
    folder: Path, *flags: str, started: Sequence[int] = (1, 0)
) -> Iterator[tuple[dict[int, Runtime], list[Pod]]]:
    """vLLM over two pods by their index, with what LeaderWorkerSet tells each; they may not be ready yet. The last that
    is started is the first to be told to end."""
    words = ["--model", str(llm() / "model"), "--nodes", "2", *flags]
    with pods(2, folder) as made, ExitStack() as stack:
        runtimes = {}
        for index in started:
            told = {"LWS_GROUP_SIZE": "2", "LWS_WORKER_INDEX": str(index), "LWS_LEADER_ADDRESS": made[0].name}
            own, python = _NO_COMPILER | told, environments.vllm_python()
            serving = _serve(python, "runtimes.vllm", folder / str(index), words, own, made[index])
            runtimes[index] = stack.enter_context(serving)
        yield runtimes, made


@contextlib.contextmanager
def triton(model: Path, folder: Path, *flags: str) -> Iterator[Runtime]:
    """Triton on this MLflow model; it may not be ready yet, or ever."""
    words = ["--model", str(model), "--triton", str(environments.triton())]
    words += ["--model-python", str(environments.triton_python()), *flags]
    with _serve(Path(sys.executable), "runtimes.triton", folder, words, {}) as runtime:
        yield runtime


@functools.cache
def llm() -> Path:
    """The tiny models for vLLM."""
    return _made(environments.vllm_python(), "tiny_llm.py")


@functools.cache
def networks() -> Path:
    """The tiny networks, a folder each."""
    return _made(environments.triton_python(), "tiny_networks.py")


def _made(python: Path, script: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="knobless-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environments.run(python, script, folder)
    return folder


@contextlib.contextmanager
def _serve(
    python: Path, module: str, folder: Path, words: Sequence[str], own: dict[str, str], pod: Pod | None = None
) -> Iterator[Runtime]:
    site, home = folder / "site", folder / "home"
    site.mkdir(parents=True)
    home.mkdir()
    (site / "runtimes").symlink_to(ROOT / "runtimes")  # as in the image: nothing else of ours can be imported
    host, port = ("127.0.0.1", free_port()) if pod is None else (pod.address, 8080)
    where = ["--host", host, "--port", str(port)]
    command = [str(python), "-m", module, *where, "--name", "test", "--version", "7", *words]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HF_", "VLLM_"))},
        "PYTHONPATH": str(site),
        "PYTHONSAFEPATH": "1",
        "HOME": str(home),
        "KNOBLESS_TERMINATION_LOG": str(folder / "termination-log"),
        **own,
    }
    # A path to a socket has at most 107 characters, which the test's own folder may have by itself.
    with tempfile.TemporaryDirectory(prefix="kn-", ignore_cleanup_errors=True) as scratch:
        environment["TMPDIR"] = scratch
        with listening(command if pod is None else pod.command(command), environment, port, folder, host) as runtime:
            yield runtime


def post(runtime: Runtime, path: str, document: Any, **headers: str) -> Answer:
    """One JSON request."""
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return runtime.ask("POST", path, body, {**JSON, **own})


class Stream:
    """One streamed answer, event by event."""

    def __init__(self, runtime: Runtime, path: str, document: Any) -> None:
        self._connection = http.client.HTTPConnection(runtime.host, runtime.port, timeout=60)
        self._connection.request("POST", path, json.dumps(document | {"stream": True}), JSON)
        self.answer = self._connection.getresponse()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.answer.close()
        self._connection.close()

    def __iter__(self) -> Iterator[bytes]:
        """The data of each event."""
        for line in self.answer:
            if line.startswith(b"data: "):
                yield line.removeprefix(b"data: ").strip()
