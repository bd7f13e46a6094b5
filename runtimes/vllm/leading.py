"""The watcher of a node that answers requests: the only one of its replica, or the one that leads.

Owns answering while the model loads, and that everything ends where a node of the replica is lost; leaves serving to
`runtimes.vllm.server`. One idea: vLLM takes minutes to load and says why it fails in another process's log, so somebody
small has to be there before it and after it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Mapping

from runtimes.vllm import process
from runtimes.vllm.group import Place
from runtimes.vllm.loading import answer_meanwhile
from runtimes.vllm.process import LOST, Process
from runtimes.vllm.settings import SERVES_VARIABLE, SOCKET_VARIABLE
from runtimes.vllm.tie import Leader

_FAIL_S = 10.0  # for vLLM to answer what waits for a lost node with an error, and to end
_log = logging.getLogger("runtimes.vllm.leading")


async def lead(listening: socket.socket, own: Mapping[str, str], place: Place) -> str | None:
    """Watch vLLM to its end: None where it ended as it was told to, else why. ``own`` is its environment."""
    meanwhile = await answer_meanwhile(listening)
    reads, writes = os.pipe()
    handed = {SOCKET_VARIABLE: str(listening.fileno()), SERVES_VARIABLE: str(writes)}
    vllm = await process.start({**own, **handed}, listening.fileno(), writes)
    os.close(writes)
    ending = _Ending(vllm)
    leader = Leader(place)
    async with contextlib.AsyncExitStack() as stack:
        if place.workers:
            await stack.enter_async_context(leader.listening())
        tasks = (_until_it_serves(reads, meanwhile, ending), _end_once_one_is_lost(leader, vllm))
        beside = [asyncio.create_task(task) for task in tasks]
        status = await vllm.ended()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        if status == 0 or ending.early:
            await leader.say_goodbye()
            return None
        return leader.lost.result() if leader.lost.done() else vllm.reason(status)


class _Ending:
    """What a signal to end does. Until it serves there is nothing to finish, and vLLM, which begins by starting its
    engine, may swallow what it is told then and serve."""

    def __init__(self, vllm: Process) -> None:
        self._vllm = vllm
        self.serves = False
        self.early = False
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)

    def _end(self) -> None:
        if self.serves:
            self._vllm.tell(signal.SIGTERM)
        else:
            self.early = True
            self._vllm.kill()


async def _until_it_serves(reads: int, meanwhile: asyncio.Server, ending: _Ending) -> None:
    """Answer until the other process accepts on the socket, or has ended."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(reads, told.set)
    try:
        await told.wait()
        ending.serves = True
    finally:
        loop.remove_reader(reads)
        os.close(reads)
        meanwhile.close()


async def _end_once_one_is_lost(leader: Leader, vllm: Process) -> None:
    reason = await asyncio.shield(leader.lost)
    _log.error("this replica can't go on", extra={"reason": reason})
    vllm.tell(LOST)
    await asyncio.sleep(_FAIL_S)
    vllm.kill()
