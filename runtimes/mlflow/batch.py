"""Requests that share one call of the model.

Owns what a job is, which jobs may share a call, how their blocks are joined and the result is given back to each.
Pure. One idea: a block is row after row, so joining requests is joining bytes and splitting a result is cutting it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtimes.mlflow.answers import split
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.frames import Frame, Head, Kind
from runtimes.mlflow.layout import Buffer, Layout, layout_to_plain
from runtimes.mlflow.plan import Work

MOST_ROWS = 1024  # of a call that several requests share
LARGEST_SHARED_ROWS = 256  # a request with more of them gains nothing from company


@dataclass(eq=False, slots=True)
class Job:
    """One request on its way to an answer."""

    work: Work
    request_id: str
    as_text: bool
    future: asyncio.Future[Any]  # of a Result, or of the Pieces where it is streamed
    alone: bool = False
    streamed: bool = False

    @property
    def rows(self) -> int:
        return self.work.rows or 0

    def like(self, other: Job, /) -> bool:
        """Whether one call of the model does for both."""
        mine, theirs = self.work, other.work
        return not (
            self.alone
            or other.alone
            or theirs.rows is None
            or theirs.rows > LARGEST_SHARED_ROWS
            or (mine.layout is not theirs.layout and mine.layout != theirs.layout)
            or (mine.params is not theirs.params and repr(mine.params) != repr(theirs.params))  # True == 1 == 1.0
            or self.as_text != other.as_text
        )


def call(jobs: Sequence[Job], usual: Layout | None) -> tuple[Head, list[Buffer]]:
    """The head and the blocks of one call for these jobs."""
    work = jobs[0].work
    buffers = work.buffers if len(jobs) == 1 else _joined(jobs)
    head: Head = {
        "ids": [job.request_id for job in jobs],
        "rows": [job.work.rows for job in jobs],
        "sizes": [len(buffer) for buffer in buffers],
    }
    if work.layout is not usual:
        head["layout"] = layout_to_plain(work.layout)
        head["media"] = work.media
    if work.params:
        head["params"] = work.params
    if work.index is not None:
        head["index"] = work.index
    if not jobs[0].as_text:
        head["as_text"] = False
    return head, buffers


def settle(jobs: Sequence[Job], frame: Frame) -> list[Job]:
    """Give each job its part of the answer; returns those that have to run again, each on its own."""
    if frame.kind is Kind.REFUSAL:
        if len(jobs) > 1:
            return [job for job in jobs if not job.future.done()]
        refuse(jobs, RefusedError(frame.head["status"], frame.head["message"], frame.head.get("field")))
        return []
    results = split(frame.head, frame.body, [job.work.rows for job in jobs])
    for job, result in zip(jobs, results, strict=True):
        if not job.future.done():
            job.future.set_result(result)
    return []


def refuse(jobs: Sequence[Job], error: Exception) -> None:
    """The same error for each of them."""
    for job in jobs:
        if not job.future.done():
            job.future.set_exception(error)


def _joined(jobs: Sequence[Job]) -> list[Buffer]:
    blocks = jobs[0].work.layout.blocks
    parts = zip(*(job.work.buffers for job in jobs), strict=True)
    return [
        b"".join(part) if block.item_bytes is not None else _join_lists(part)
        for block, part in zip(blocks, parts, strict=True)
    ]


def _join_lists(lists: Sequence[Buffer]) -> bytes:
    """JSON lists as one; none of them is empty, for no job without rows gets here."""
    return b"[" + b",".join(bytes(part)[1:-1] for part in lists) + b"]"
