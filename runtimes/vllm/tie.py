"""The connection that each worker of a replica holds to its leader, and what its end means.

Owns who is there, who is gone and who said goodbye; leaves what follows to leading and working. One idea: vLLM waits
five minutes for a node that is lost in the middle of a step, and for ever between two, so both ends of a connection
say all the time that they are there.

A worker says its index and the size of its group, the leader repeats it; then each sends an empty line twice a second.
Any other line is the last one: the leader's says that it ended as it was told to, a worker's why it can't go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from runtimes.termination import one_line
from runtimes.vllm.group import Place

PORT = 29400
BEAT_S = 0.5
SILENT_S = 10.0  # a node that is lost closes no connection
_AGAIN_S = 0.5
_HELLO_S = 10.0
_MOST_LINE_BYTES = 4096
_GOODBYE = "goodbye"
_log = logging.getLogger("runtimes.vllm.tie")


class Leader:
    """The leader's ends: ``lost`` is the reason once a worker that was there is there no more."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._here: dict[int, asyncio.StreamWriter] = {}
        self._heard: set[asyncio.Task[None]] = set()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def listening(self, port: int = PORT) -> AsyncIterator[None]:
        """Workers may come, by IPv4 or IPv6."""
        server = await asyncio.start_server(self._hear, port=port, limit=_MOST_LINE_BYTES)
        try:
            yield
        finally:
            server.close()
            for task in self._heard:
                task.cancel()
            await asyncio.gather(*self._heard, return_exceptions=True)

    def missing(self) -> frozenset[int]:
        """Workers that have not come yet."""
        return self._place.workers.difference(self._here)

    async def say_goodbye(self) -> None:
        """Nobody is lost from now on: the replica ends because it was told to."""
        self.lost.cancel()
        for writer in self._here.values():
            await _say(writer, _GOODBYE)

    def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._one(reader, writer))
        self._heard.add(task)
        task.add_done_callback(self._heard.discard)
        task.add_done_callback(lambda _: writer.close())

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        index = await self._greeted(reader)
        if index is None:
            return
        self._here[index] = writer
        await _say(writer, _hello(index, self._place.size))
        _log.info("a node of this replica is here", extra={"node": index, "missing": sorted(self.missing())})
        why = await _until_the_end(reader, writer)
        if not self.lost.done():
            self.lost.set_result(f"node {index} of this replica {why or 'is gone'}")

    async def _greeted(self, reader: asyncio.StreamReader) -> int | None:
        """The index of a worker of this group; None for anybody else."""
        hello = b""
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            hello = await asyncio.wait_for(reader.readline(), _HELLO_S)
        said = hello.decode(errors="replace").strip()
        return next((index for index in self.missing() if said == _hello(index, self._place.size)), None)


class Worker:
    """A worker's end. ``over`` is the reason once the leader is no more, and empty where it had been told to end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.over: asyncio.Task[str] = asyncio.create_task(self._watch(reader))

    async def fail(self, reason: str) -> None:
        """Tell the leader why this node can't go on."""
        await _say(self._writer, f"failed: {one_line(reason)}")
        self.leave()

    def leave(self) -> None:
        """Close the connection."""
        self.over.cancel()
        self._writer.close()

    async def _watch(self, reader: asyncio.StreamReader) -> str:
        why = await _until_the_end(reader, self._writer)
        return "" if why == _GOODBYE else f"the leader of this replica {why or 'is gone'}"


async def tied(place: Place, port: int = PORT) -> Worker:
    """The end of a worker that its leader knows; asks until there is one."""
    _log.info("waits for the leader of this replica", extra={"node": place.index, "leader": place.leader})
    while True:
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            async with asyncio.timeout(_HELLO_S):
                reader, writer = await asyncio.open_connection(place.leader, port, limit=_MOST_LINE_BYTES)
                if await _known(place, reader, writer):
                    return Worker(reader, writer)
        await asyncio.sleep(_AGAIN_S)


async def _known(place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Whether the leader repeats who this is; the connection is closed where it does not."""
    hello, repeats = _hello(place.index, place.size), False
    try:
        await _say(writer, hello)
        repeats = (await reader.readline()).decode(errors="replace").strip() == hello
    finally:
        if not repeats:
            writer.close()
    return repeats


async def _until_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    """What the other end said last; empty where it only closed. It is told that this end is here meanwhile."""
    beating = asyncio.create_task(_beat(writer))
    try:
        while line := await asyncio.wait_for(reader.readline(), SILENT_S):
            if said := line.decode(errors="replace").strip():
                return said
    except TimeoutError:
        return f"said nothing for {SILENT_S:.0f} s"
    except (OSError, ValueError):
        pass
    finally:
        beating.cancel()
    return ""


async def _beat(writer: asyncio.StreamWriter) -> None:
    while True:
        await _say(writer, "")
        await asyncio.sleep(BEAT_S)


async def _say(writer: asyncio.StreamWriter, line: str) -> None:
    """Nothing where nobody listens any more: who reads will hear of it."""
    with contextlib.suppress(OSError):
        writer.write(f"{line}\n".encode())
        await writer.drain()


def _hello(index: int, size: int) -> str:
    return f"{index} of {size}"
