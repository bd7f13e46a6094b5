"""Waiting for what real things take time for; a time bounds the wait and is no assertion."""

import asyncio
import time
from collections.abc import Awaitable, Callable


async def until(true: Callable[[], Awaitable[bool]], limit_s: float) -> float:
    """Seconds until it holds; fails after `limit_s`."""
    started_s = time.monotonic()
    while not await true():
        assert time.monotonic() - started_s < limit_s, f"not within {limit_s} s"
        await asyncio.sleep(0.1)
    return time.monotonic() - started_s
