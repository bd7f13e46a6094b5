"""Bounded load at a set pace: requests leave on time whether or not those before them were answered.

Beside `load`, whose clients wait for their answers and so press less the slower they get them. One idea: clients that
never wait are the worst case of a step, and they make two runs of it alike.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.gateway_lab.client import Client
from tests.platform_lab.load import FAILED, Target

HEADERS = {"content-type": "application/json"}
LAST_ANSWER_S = 90.0


@dataclass(frozen=True)
class Stage:
    rps: float
    seconds: float

    @property
    def count(self) -> int:
        return round(self.rps * self.seconds)


@dataclass(frozen=True)
class Answer:
    """`sent_s`: Unix time, as in the cluster's own stamps. status 0: no whole answer came."""

    sent_s: float
    status: int
    seconds: float


class Paced:
    """One stage after the other, evenly, in a thread of its own. Nothing is retried."""

    def __init__(self, target: Target, body: bytes, stages: Sequence[Stage]) -> None:
        self._target, self._body, self._stages = target, body, stages
        self._idle: list[Client] = []
        self._stop = threading.Event()
        self._begun = [threading.Event() for _ in stages]
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self.answers: list[Answer] = []
        self.began_s: list[float] = []

    def wait_for(self, stage: int) -> float:
        """Until a stage begins; when that was."""
        seconds = sum(each.seconds for each in self._stages[:stage])
        assert self._begun[stage].wait(seconds + 60), f"stage {stage} did not begin"
        return self.began_s[stage]

    def wait_for_the_end(self) -> None:
        self._thread.join(sum(each.seconds for each in self._stages) + LAST_ANSWER_S)
        assert not self._thread.is_alive(), "the load has not ended"

    def __enter__(self) -> Paced:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(LAST_ANSWER_S)

    async def _run(self) -> None:
        async with asyncio.timeout(sum(each.seconds for each in self._stages) + LAST_ANSWER_S):
            async with asyncio.TaskGroup() as group:
                for stage, begun in zip(self._stages, self._begun, strict=True):
                    self.began_s.append(time.time())
                    begun.set()
                    await self._send(stage, group)
            await asyncio.gather(*(client.leave() for client in self._idle))

    async def _send(self, stage: Stage, group: asyncio.TaskGroup) -> None:
        began_s = time.monotonic()
        for number in range(stage.count):
            await asyncio.sleep(max(began_s + number / stage.rps - time.monotonic(), 0.0))
            if self._stop.is_set():
                return
            group.create_task(self._one())

    async def _one(self) -> None:
        """On a connection that nothing waits for, so that no request waits for another here."""
        client = self._idle.pop() if self._idle else self._new()
        sent_s, started_s = time.time(), time.monotonic()
        try:
            status = (await client.call(self._target.endpoint, body=self._body, headers=HEADERS)).status
            self._idle.append(client)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            await client.leave()
            status = FAILED
        self.answers.append(Answer(sent_s, status, time.monotonic() - started_s))

    def _new(self) -> Client:
        return Client(self._target.port, self._target.key, self._target.tls, self._target.host)
