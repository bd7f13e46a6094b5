"""Tells HAProxy, every few seconds, how long those that it refuses should wait.

Owns `waits.map`, back end -> seconds, which no other part writes. Its one idea: a wait is advice, so nothing depends
on it: a reading that fails leaves the last one, and a back end that is not in the map has the shortest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from controllers.gateway.backlog import WAIT_MIN_S, Backlog, PodCount, Reading, expected_wait_s, observe
from controllers.gateway.desired import WAITS, LiveServer, Mode, map_file
from controllers.gateway.readback import parse_map, read_queues, read_servers
from controllers.gateway.runtime_api import RefusedError, RuntimeApiError, ask, swap_map

log = logging.getLogger(__name__)

_READ_S: Final = 5.0


async def follow(socket: Path) -> None:
    """For ever; ends by cancellation."""
    waits = Waits(socket)
    while True:
        try:
            await waits.step(time.monotonic())
        except (RuntimeApiError, RefusedError) as error:
            log.debug("waits not renewed", extra={"error": str(error)})
        await asyncio.sleep(_READ_S)


class Waits:
    """`step` reads those back ends that make requests wait or refuse them, and no others."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._refused: Mapping[str, int] = {}
        self._backlogs: dict[str, Backlog] = {}

    async def step(self, now_s: float) -> None:
        queues = await read_queues(self._socket)
        busy = [
            name for name, (queued, refused) in queues.items() if queued or refused > self._refused.get(name, refused)
        ]
        self._refused = {name: refused for name, (_, refused) in queues.items()}
        servers = await read_servers(self._socket, busy)
        readings = {name: reading(now_s, queues[name][0], servers[name]) for name in busy}
        self._backlogs = {name: observe(self._backlogs.get(name), seen) for name, seen in readings.items()}
        await self._tell({name: expected_wait_s(backlog) for name, backlog in self._backlogs.items()})

    async def _tell(self, waits: Mapping[str, int | None]) -> None:
        wanted = {name: str(wait) for name, wait in waits.items() if wait is not None and wait > WAIT_MIN_S}
        (text,) = await ask(self._socket, [f"show map {map_file(WAITS)}"])
        held, damaged = parse_map(text)
        if damaged or held != wanted:
            await swap_map(self._socket, map_file(WAITS), wanted)


def reading(now_s: float, queued: int, servers: Mapping[str, LiveServer]) -> Reading:
    slots = sum(server.maxconn or 0 for server in servers.values() if server.mode is Mode.READY)
    return Reading(now_s, queued, slots, {n: PodCount(s.in_flight, s.sent) for n, s in servers.items()})
