"""Triton's process.

Owns its flags, its environment, its start and its end, and why it did not start. Leaves what it is asked to engine.
One idea: it listens on loopback alone, with nothing switched on that the interface does not use, and it is ended only
once nobody waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path

from runtimes.termination import one_line

HOST = "127.0.0.1"
_END_S = 10.0
_LIBRARIES = "import sysconfig; print(sysconfig.get_config_var('LIBDIR')); print(sysconfig.get_path('purelib'))"
_FAILED = re.compile(r'failed to load \'?(?P<model>[^\' ]+)\'? version \d+: (?P<reason>.+?)"?$')
_ERROR = re.compile(r"^(?P<kind>[A-Za-z_]\w*(?:Error|Exception)): (?P<text>.+)$")


def installed(triton: Path) -> frozenset[str]:
    """The back ends that this Triton has."""
    return frozenset(folder.name for folder in (triton / "backends").glob("*") if folder.is_dir())


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def command(triton: Path, repository: Path, http: int, metrics: int) -> list[str]:
    """All words of the server's command line."""
    flags = {
        "model-repository": repository,
        "backend-directory": triton / "backends",
        "http-address": HOST,
        "http-port": http,
        "metrics-address": HOST,
        "metrics-port": metrics,
        "allow-grpc": "false",
        "allow-sagemaker": "false",
        "allow-vertex-ai": "false",
        "exit-timeout-secs": int(_END_S),
        "log-info": "false",
    }
    words = [str(triton / "bin" / "tritonserver"), *(f"--{flag}={value}" for flag, value in flags.items())]
    return [*words, "--disable-auto-complete-config"]


def environment(triton: Path, python: Path, threads: int, own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Of the server and of the Python back end, whose interpreter is the first `python3` on PATH."""
    told = subprocess.run([str(python), "-c", _LIBRARIES], capture_output=True, text=True, check=True).stdout.split()
    libraries = [str(triton / "lib"), *filter(None, [own.get("LD_LIBRARY_PATH")]), told[0]]
    return {
        **own,
        "LD_LIBRARY_PATH": ":".join(libraries),
        "PATH": f"{python.parent}:{own.get('PATH', os.defpath)}",
        "PYTHONPATH": told[1],
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "DO_NOT_TRACK": "1",
        "ORT_DISABLE_TELEMETRY": "1",
    }


class Reasons:
    """Why Triton could not load a model, from what it and its back end wrote."""

    def __init__(self) -> None:
        self._loads: deque[str] = deque(maxlen=10)
        self._errors: deque[str] = deque(maxlen=10)

    def read(self, line: str) -> None:
        """One line of its log."""
        if (failed := _FAILED.search(line)) is not None:
            self._loads.append(failed["reason"])
        elif (error := _ERROR.match(line.strip())) is not None:
            self._errors.append(f"{error['kind']}: {error['text']}")

    def told(self, otherwise: str) -> str:
        """In one line."""
        return one_line(next(iter([*self._loads, *self._errors]), otherwise))


class Process:
    """The running server."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.reasons = Reasons()

    async def start(self, words: Collection[str], own: Mapping[str, str]) -> None:
        """Start it in a session of its own, with its log among ours."""
        self._process = await asyncio.create_subprocess_exec(
            *words,
            env=dict(own),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            limit=1 << 20,
            start_new_session=True,
        )
        self._reading = asyncio.create_task(self._read(self._process))

    async def ended(self) -> str:
        """Wait until it has ended, and say why."""
        assert self._process is not None and self._reading is not None
        status = await self._process.wait()
        await asyncio.wait([self._reading], timeout=1)
        return self.reasons.told(f"Triton ended with status {status}")

    async def stop(self) -> None:
        """End it, and whatever it has started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            self._process.terminate()
            async with asyncio.timeout(_END_S + 2):
                await self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            self.reasons.read(line.decode(errors="replace"))
