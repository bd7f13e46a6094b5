"""``python -m runtimes.vllm``: the process that a pod watches while vLLM runs below it.

Owns the listening socket, signals, the exit status and its reason; leaves serving to `runtimes.vllm.server`. One idea:
vLLM takes minutes to load and says why it fails in another process's log, so somebody small has to be there before it
and after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtimes import gpus, jsonlog, quota
from runtimes.interface.serving import listener
from runtimes.termination import EXIT_FAILED, one_line, reason_of, write_reason
from runtimes.vllm import arguments, model
from runtimes.vllm.loading import answer_meanwhile
from runtimes.vllm.reason import Reasons
from runtimes.vllm.settings import FOLDER_VARIABLE, SERVES_VARIABLE, SOCKET_VARIABLE, VllmSettings, parse_settings

_log = logging.getLogger("runtimes.vllm")


def main() -> int:
    settings = parse_settings()
    jsonlog.configure()
    scratch = Path(tempfile.mkdtemp(prefix="knobless-vllm-"))
    try:
        cores = quota.cpu(1, quota.cpu_quota(), quota.own_affinity()).threads
        own = arguments.environment(settings, scratch, _checked(settings), cores)
        return asyncio.run(_watch(settings, {**own, FOLDER_VARIABLE: str(scratch / "model")}))
    except model.UnservableError as error:
        reason = one_line(str(error))
    except OSError as error:
        reason = reason_of(error)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return _failed(reason)


def _checked(settings: VllmSettings) -> Sequence[gpus.Gpu]:
    """The GPUs, once it is clear that this model can be served on them; vLLM would say so minutes later."""
    here = gpus.found()
    ranks = [model.adapter_rank(adapter.folder) for adapter in settings.adapters]
    arguments.flags(settings, model.read(settings.model), here, ranks)
    return here


async def _watch(settings: VllmSettings, own: Mapping[str, str]) -> int:
    with contextlib.closing(listener(settings.host, settings.port)) as listening:
        meanwhile = await answer_meanwhile(listening)
        reads, writes = os.pipe()
        process = await _start(listening, writes, own)
        os.close(writes)
        _pass_on_signals(process)
        reasons = Reasons()
        async with asyncio.TaskGroup() as group:
            group.create_task(_until_it_serves(reads, meanwhile))
            group.create_task(_pass_on(process, reasons))
            status = await process.wait()
            _end_what_is_left(process)
    return 0 if status == 0 else _failed(reasons.told(status, time.monotonic()))


def _failed(reason: str) -> int:
    _log.error("the model can't be served", extra={"reason": reason})
    write_reason(reason)
    return EXIT_FAILED


async def _start(listening: socket.socket, serves: int, own: Mapping[str, str]) -> asyncio.subprocess.Process:
    handed = {SOCKET_VARIABLE: str(listening.fileno()), SERVES_VARIABLE: str(serves)}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "runtimes.vllm.server",
        *sys.argv[1:],
        env={**os.environ, **own, **handed},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=1 << 24,
        pass_fds=(listening.fileno(), serves),
        start_new_session=True,  # a terminal's interrupt comes to us alone
    )


def _pass_on_signals(process: asyncio.subprocess.Process) -> None:
    def tell() -> None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, tell)


async def _until_it_serves(reads: int, meanwhile: asyncio.Server) -> None:
    """Answer until the other process accepts on the socket, or has ended."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(reads, told.set)
    try:
        await told.wait()
    finally:
        loop.remove_reader(reads)
        os.close(reads)
        meanwhile.close()


async def _pass_on(process: asyncio.subprocess.Process, reasons: Reasons) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        reasons.read(line.decode(errors="replace"), time.monotonic())


def _end_what_is_left(process: asyncio.subprocess.Process) -> None:
    """An engine whose server was killed; it would hold the GPU."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
