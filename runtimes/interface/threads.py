"""Work on bytes that would hold the event loop up.

Owns its few threads; leaves what is worth a thread to the callers. One idea: few at a time, so that many large bodies
at once take turns and not memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

FROM_BYTES = 64 * 1024  # what takes longer than handing it to a thread does
_AT_A_TIME = 2
_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_executor = ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="bytes")


async def run(work: Callable[[*_Ts], _T], *arguments: *_Ts) -> _T:
    """The result of the work, done in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_executor, work, *arguments)
