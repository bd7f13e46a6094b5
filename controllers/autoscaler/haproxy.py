"""HAProxy's statistics over TCP: `show retries`, `show stat -1 6 -1` and their CSV -> counters by back end.

Owns the wire and the columns. The answer to a question that failed is an exception, never an empty dict: no
statistics and no load are two things.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping

from controllers.autoscaler.load import Counters

PORT = 8404
# -1: every proxy; 6 = 2 (back ends) + 4 (servers); -1: every server. Retries first: behind them stands something
# that must follow, so an answer that broke off is no zero.
_COMMAND = b"show retries;show stat -1 6 -1\n"
_RETRIES = "# backend,retried"
_COLUMNS = ("pxname", "svname", "qcur", "scur", "stot")
_BACKEND_ROW = "BACKEND"
_ANSWER_MAX = 64 * 1024 * 1024


class StatisticsError(Exception):
    """An answer that is no statistics."""


async def read_counters(host: str, port: int, timeout_s: float) -> dict[str, Counters]:
    """One question, one connection. Raises OSError, TimeoutError or StatisticsError."""
    async with asyncio.timeout(timeout_s):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(_COMMAND)
            await writer.drain()
            return parse("".join([chunk async for chunk in _chunks(reader)]))
        finally:
            writer.close()


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    size = 0
    while chunk := await reader.read(1 << 20):
        size += len(chunk)
        if size > _ANSWER_MAX:
            raise StatisticsError("the answer has no end")
        yield chunk.decode("latin-1")


def parse(text: str) -> dict[str, Counters]:
    """Counters by back end. Raises StatisticsError where a column is missing or a count is no number.

    A gateway of before `show retries` answers it with an explanation: what was retried there is unknown.
    """
    first, _, second = text.partition("\n\n")
    if first.startswith(_RETRIES):
        return _statistics(second, _retried(first.splitlines()[1:]))
    return _statistics(text if text.startswith("# ") else second, None)


def _retried(lines: Iterable[str]) -> dict[str, int]:
    """By back end; one that is not named had none."""
    try:
        return {backend: int(count) for backend, count in (line.split(",") for line in lines)}
    except ValueError as error:
        raise StatisticsError(f"retries that can't be read: {error}") from error


def _statistics(text: str, retried: Mapping[str, int] | None) -> dict[str, Counters]:
    lines = text.splitlines()
    if not lines or not lines[0].startswith("# "):
        raise StatisticsError(f"no statistics: {text[:80]!r}")
    header = lines[0][2:].split(",")
    try:
        columns = tuple(header.index(name) for name in _COLUMNS)
    except ValueError as error:
        raise StatisticsError(f"statistics without a column: {error}") from error
    return _assemble(_rows(lines[1:], columns), retried)


def _rows(lines: Iterable[str], columns: tuple[int, ...]) -> Iterator[tuple[str, str, int, int, int]]:
    last = max(columns) + 1
    for line in lines:
        if not line:
            continue
        cells = line.split(",", last)
        try:
            backend, server, queued, current, total = (cells[column] for column in columns)
            yield backend, server, int(queued or 0), int(current or 0), int(total or 0)
        except (ValueError, IndexError) as error:
            raise StatisticsError(f"a row that can't be read: {line[:80]!r}") from error


def _assemble(rows: Iterable[tuple[str, str, int, int, int]], retried: Mapping[str, int] | None) -> dict[str, Counters]:
    """Server rows come before their back end's. What waits for one server waits in the back end's queue too."""
    servers: dict[str, dict[str, tuple[int, int]]] = {}
    totals: dict[str, tuple[int, int]] = {}
    for backend, server, queued, current, total in rows:
        if server == _BACKEND_ROW:
            totals[backend] = (queued, total)
        else:
            servers.setdefault(backend, {})[server] = (current, total)
    return {
        backend: Counters(
            queued, arrived, servers.get(backend, {}), None if retried is None else retried.get(backend, 0)
        )
        for backend, (queued, arrived) in totals.items()
    }
