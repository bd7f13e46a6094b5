"""The learner against a real HAProxy and our gateway's control plane, with pods that have a knee; epochs of seconds."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controllers.autoscaler.haproxy import read_counters
from controllers.autoscaler.load import Counters, LoadSample, difference
from controllers.autoscaler.vertical.evidence import Tallies, evidence_of, next_epoch, tally
from controllers.autoscaler.vertical.knowledge import Knowledge
from controllers.autoscaler.vertical.learner import Advice, learn
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.signals import Signals
from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import Gateway, gateway, serving
from tests.gateway_lab.pods import Request, Work

pytestmark = pytest.mark.process
REV = revision("iris")
KNEE, SERVICE_S, CLIENTS = 4, 0.2, 60
SAMPLE_S = 0.2
# Epochs are short and looked at five times a second, so what is seen in one of them is taken for enough.
SETTINGS = Settings(epoch_s=4.0, warm_up_s=0.0, retest_s=4.0, hold_s=80.0, asked_most=1)


def sleeping_slots(count: int) -> Work:
    """A model that works on so many requests at once, each for the same time; others wait inside the pod."""
    slots = asyncio.Semaphore(count)

    async def work(_: Request) -> None:
        async with slots:
            await asyncio.sleep(SERVICE_S)

    return work


class Learner:
    """Reads HAProxy's statistics, learns, and says so in the endpoint's status, as the controller does."""

    def __init__(self, running: Gateway, limit: int) -> None:
        self._running, self.knowledge = running, Knowledge(limit=limit)
        self.limits: list[int] = []
        self._samples: list[LoadSample] = []
        self._tallies: Tallies = {}
        self._before: tuple[float, Counters] | None = None

    async def epoch(self) -> Advice:
        end_s = time.monotonic() + SETTINGS.epoch_s
        while time.monotonic() < end_s:
            await self._sample()
            await asyncio.sleep(SAMPLE_S)
        evidence = evidence_of(
            self._samples,
            self.knowledge.limit,
            3,
            SETTINGS,
            time.monotonic(),
            tallies=self._tallies,
            signals=Signals(self_test_ms=1100 * SERVICE_S),
        )
        self._tallies = next_epoch(self._tallies)
        self.knowledge, advice = learn(self.knowledge, evidence, SETTINGS, time.time())
        self.limits.append(advice.limit)
        self._tell(advice)
        return advice

    async def _sample(self) -> None:
        counters = (await read_counters("127.0.0.1", self._running.settings.stats_port, 1.0))["b00000"]
        at_s = time.monotonic()
        before_s, before = self._before or (at_s, None)
        self._tallies = tally(self._tallies, before, counters, at_s - before_s, at_s)
        self._samples.append(LoadSample(at_s, difference(before, counters, at_s - before_s)))
        self._before = at_s, counters

    def _tell(self, advice: Advice) -> None:
        probe = advice.probe
        asked = {"pod": probe.pod, "limit": probe.limit, "weight": probe.weight} if probe is not None else None
        self._running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: advice.limit}, probe=asked))


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run") as found:
        yield found


@contextlib.asynccontextmanager
async def load(running: Gateway) -> AsyncIterator[list[int]]:
    """So many clients, each with one request at a time; what they were answered."""
    statuses: list[int] = []

    async def client() -> None:
        connection = running.client()
        while True:
            statuses.append((await connection.call()).status)

    tasks = [asyncio.create_task(client()) for _ in range(CLIENTS)]
    try:
        yield statuses
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.case("autoscaler-I8")
@pytest.mark.parametrize("limit", [4 * KNEE, 1])
async def test_sleeping_slots_are_learnt_in_twenty_epochs_and_maxconn_follows(running: Gateway, limit: int) -> None:
    """From above the knee is met; from below it is approached, and never left behind by more than a step."""
    pods = [await running.pod(f"{REV}-{i}", sleeping_slots(KNEE)) for i in range(3)]
    await serving(running, pods, limit=limit)
    learner = Learner(running, limit)
    async with load(running) as statuses:
        for _ in range(20):
            advice = await learner.epoch()
            if abs(advice.limit - KNEE) <= 1 and advice.probe is None:
                break
        assert abs(advice.limit - KNEE) <= 1, learner.limits
        assert limit < KNEE or advice.knee == pytest.approx(KNEE, rel=0.25)
        await running.servers_become({pod.name: advice.limit for pod in pods})
    assert set(statuses) == {200}
