"""A server as a process: started, awaited, what its whole process tree costs, ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.bench.runtimes.load import Request, read_answer
from tests.bench.runtimes.servers import QUIET, Server
from tests.bench.stack_footprint import descendants, parents, pss_kib

START_S = 120.0
LOOK_S = 0.02
_TICKS = os.sysconf("SC_CLK_TCK")
_SETTLED = 1  # tick: what an idle server may use between two looks


@dataclass(frozen=True)
class Running:
    """A server that has answered once; `ready_s` is how long that took from its start, `answer` what it said."""

    server: Server
    pid: int
    port: int
    ready_s: float
    answer: bytes

    @property
    def tree(self) -> set[int]:
        return descendants(self.pid, parents())

    def pss_mib(self) -> float:
        return sum(map(pss_kib, self.tree)) / 1024

    def cpu_s(self) -> float:
        """CPU of all processes, and of those that ended before."""
        return _cpu_ticks(self.tree) / _TICKS

    def settled_cpu_s(self) -> float:
        """The same once what was left behind unanswered is done, too."""
        before, now = -2 * _SETTLED, _cpu_ticks(self.tree)
        while now - before > _SETTLED:
            time.sleep(0.1)
            before, now = now, _cpu_ticks(self.tree)
        return now / _TICKS


@contextlib.contextmanager
def running(server: Server, model: Path, folder: Path) -> Iterator[Running]:
    """The server on this model, from its first answer on."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    started = server.start(model, folder, port)
    with (folder / "log").open("ab") as log:
        began = time.monotonic()
        process = subprocess.Popen(
            started.argv, cwd=folder, env={**os.environ, **QUIET, **started.env}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    try:
        answer = _first_answer(process, port, server.request, folder)
        yield Running(server, process.pid, port, time.monotonic() - began, answer)
    finally:
        _end(process)


def _first_answer(process: subprocess.Popen[bytes], port: int, request: Request, folder: Path) -> bytes:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError, RuntimeError, asyncio.IncompleteReadError):
            return asyncio.run(_ask(port, request))
        time.sleep(LOOK_S)
    raise RuntimeError(f"{folder.name} did not start:\n{(folder / 'log').read_text()[-3000:]}")


async def _ask(port: int, request: Request) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request.wire)
        return await read_answer(reader)
    finally:
        writer.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """The whole tree: some servers leave children behind."""
    tree = descendants(process.pid, parents())
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    for each in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    process.wait()


def _cpu_ticks(tree: set[int]) -> int:
    ticks = 0
    for process in tree:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))  # its own and its ended children's, user and system
    return ticks


def free_port() -> int:
    """One with two free ones behind it."""
    while True:
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            first = held.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            for more in (1, 2):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port + more))
            return port
