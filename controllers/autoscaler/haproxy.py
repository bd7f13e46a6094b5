"""HAProxy's statistics over TCP: `show retries` and `show stat -1 6 -1`, one question a reading.

Owns the wire. Leaves the text to `statistics`. The answer to a question that failed is an exception, never an empty
dict: no statistics and no load are two things.
"""

import asyncio
from collections.abc import AsyncIterator

from controllers.autoscaler.load import Counters
from controllers.autoscaler.statistics import NOTHING, Blocks, StatisticsError, counters_of, parse, read_blocks

PORT = 8404
# -1: every proxy; 6 = 2 (back ends) + 4 (servers); -1: every server. Retries first: behind them stands something
# that must follow, so an answer that broke off is no zero.
_COMMAND = b"show retries;show stat -1 6 -1\n"
_ANSWER_MAX = 64 * 1024 * 1024
_REMEMBERED = 32


class Reader:
    """`read` again and again: each gateway's answer before is remembered, so that what is the same costs little."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int], Blocks] = {}

    async def read(self, host: str, port: int, timeout_s: float) -> dict[str, Counters]:
        """As `read_counters`."""
        text = await _ask(host, port, timeout_s)
        blocks = read_blocks(text, self._known.pop((host, port), NOTHING))
        self._known[host, port] = blocks
        if len(self._known) > _REMEMBERED:  # the one that was read longest ago
            del self._known[next(iter(self._known))]
        return counters_of(blocks)


async def read_counters(host: str, port: int, timeout_s: float) -> dict[str, Counters]:
    """One question, one connection. Raises OSError, TimeoutError or StatisticsError."""
    return parse(await _ask(host, port, timeout_s))


async def _ask(host: str, port: int, timeout_s: float) -> str:
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(_COMMAND)
            await writer.drain()
            return "".join([chunk async for chunk in _chunks(reader)])
        finally:
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    size = 0
    while chunk := await reader.read(1 << 20):
        size += len(chunk)
        if size > _ANSWER_MAX:
            raise StatisticsError("the answer has no end")
        yield chunk.decode("latin-1")
