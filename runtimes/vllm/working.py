"""The watcher of a node that works for its leader and answers nothing but probes.

Owns when the node ends: with its leader, whatever else it was told. Leaves its part of the model to vLLM. One idea:
all pods of a replica are told to end at once, and requests that the leader still answers need every node, so a worker
stays until the leader says goodbye or is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Mapping

from runtimes.interface.metrics import Metrics
from runtimes.interface.routes import Does
from runtimes.vllm import process
from runtimes.vllm.group import Place
from runtimes.vllm.loading import LIVE, READY, answer_meanwhile
from runtimes.vllm.process import Process
from runtimes.vllm.settings import VllmSettings
from runtimes.vllm.tie import Worker, tied

_STAY_S = 30.0  # after the leader's end: a pod that ends before it is told to is started anew
_log = logging.getLogger("runtimes.vllm.working")


async def work(listening: socket.socket, own: Mapping[str, str], place: Place, settings: VllmSettings) -> str | None:
    """Run this node's part to the leader's end: None where both ended as they were told to, else why."""
    node = _Node(settings)
    answering = await answer_meanwhile(listening, node.told)
    try:
        return await node.run(own, place)
    finally:
        answering.close()


class _Node:
    """From the first socket to the end."""

    def __init__(self, settings: VllmSettings) -> None:
        self._metrics = Metrics(settings.name, settings.version)
        self._runs = False
        self._ends = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)

    def told(self, does: Does) -> bytes | None:
        """What probes hear: live always, ready while its part of the model runs for a leader."""
        if does is Does.METRICS:
            return self._metrics.render()
        if does is Does.READY and self._runs and not self._ends.is_set():
            return READY
        return LIVE if does is Does.LIVE else None

    async def run(self, own: Mapping[str, str], place: Place) -> str | None:
        """Wait for the leader, then for whichever ends first."""
        ending = asyncio.create_task(self._ends.wait())
        tying = asyncio.create_task(tied(place))
        await asyncio.wait((ending, tying), return_when=asyncio.FIRST_COMPLETED)
        if not tying.done():
            tying.cancel()
            return None
        worker = tying.result()
        vllm = await process.start(own)
        self._runs = True
        try:
            return await self._until_one_ends(worker, vllm)
        finally:
            ending.cancel()

    async def _until_one_ends(self, worker: Worker, vllm: Process) -> str | None:
        ended = asyncio.create_task(vllm.ended())
        await asyncio.wait((ended, worker.over), return_when=asyncio.FIRST_COMPLETED)
        self._runs = False
        if not worker.over.done():
            reason = vllm.reason(ended.result())
            await worker.fail(reason)
            return reason
        vllm.kill()
        await ended
        why = worker.over.result()
        worker.leave()
        if not why:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ends.wait(), _STAY_S)
        return None if self._ends.is_set() else why or None

    def _end(self) -> None:
        _log.info("told to end: stays until its leader has")
        self._ends.set()
