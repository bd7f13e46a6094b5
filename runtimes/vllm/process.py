"""vLLM's process, as its watcher sees it.

Owns its start, its log and its last remains; leaves when it has to end to the watcher. One idea: it leads a session of
its own, so that whatever it has started can be ended with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping

from runtimes.vllm.reason import Reasons

LOST = signal.SIGUSR1  # to the server: a node of the replica is gone, so no step of the engine's ends any more


class Process:
    """One that runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reasons = Reasons()
        self._ended = asyncio.create_task(self._until_it_ends())

    async def ended(self) -> int:
        """Its exit status, once all that it has started is gone too."""
        return await asyncio.shield(self._ended)

    def tell(self, number: signal.Signals) -> None:
        """Send it a signal; nothing where it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it and all that it has started; an engine without a server would hold its GPU."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def reason(self, status: int) -> str:
        """Why it ended, in one line."""
        return self._reasons.told(status, time.monotonic())

    async def _until_it_ends(self) -> int:
        reading = asyncio.create_task(self._pass_on())
        status = await self._process.wait()
        self.kill()
        await reading
        return status

    async def _pass_on(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            self._reasons.read(line.decode(errors="replace"), time.monotonic())


async def start(own: Mapping[str, str], *handed: int) -> Process:
    """Start vLLM with this in its environment; it inherits the descriptors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "runtimes.vllm.server",
        *sys.argv[1:],
        env={**os.environ, **own},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 24,
        pass_fds=handed,
        start_new_session=True,  # a terminal's interrupt comes to us alone
    )
    return Process(process)
