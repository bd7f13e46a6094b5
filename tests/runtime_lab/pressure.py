"""Many requests, any bodies, and what they leave in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.integration.runtime_process import JSON, Answer, Connection, Runtime

MIB = 1 << 20

single = st.sampled_from([None, True, 0, -1, 1.5, 1e39, 10**20, "", "x", "FP32", "BYTES", [], {}])
lists = st.lists(single, max_size=4)
values: st.SearchStrategy[Any] = single | lists | st.lists(lists, max_size=2)


def bodies(*names: str) -> st.SearchStrategy[bytes]:
    """Documents with these names and anything in them, cut off or not, and what is no document at all."""
    inner = st.dictionaries(st.sampled_from(names), values, max_size=5)
    known = st.dictionaries(st.sampled_from(names), values | st.lists(inner, max_size=2), max_size=4)
    written = known.map(lambda document: json.dumps(document).encode())
    return written | st.builds(lambda body, end: body[:end], written, st.integers(0, 60)) | st.binary(max_size=60)


async def memory_over(
    runtime: Runtime, path: str, document: Any, pids: Sequence[int], count: int = 10_000
) -> list[int]:
    """Resident bytes of these processes after each fifth of so many requests, all of which are answered."""
    connections = 16
    body = json.dumps(document).encode()

    async def client() -> None:
        async with Connection.open(runtime.port) as connection:
            for _ in range(count // 5 // connections):
                answer: Answer = await connection.ask("POST", path, body, JSON)
                assert answer.status == 200

    async def a_fifth() -> None:
        await asyncio.gather(*(client() for _ in range(connections)))

    return await memory_after_fifths(pids, a_fifth)


async def memory_after_fifths(pids: Sequence[int], a_fifth: Callable[[], Awaitable[object]]) -> list[int]:
    """Resident bytes of these processes after each fifth of something."""
    after = []
    for _ in range(5):
        await a_fifth()
        after.append(sum(map(_resident_bytes, pids)))
    return after


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [below for child in task.read_text().split() for below in tree(int(child))]
    return found


def _resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) * 1024
