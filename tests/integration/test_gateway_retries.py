"""Marked retries, from the client's header through a real HAProxy to first attempts as the autoscaler reads them."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controllers.autoscaler.haproxy import read_counters
from controllers.autoscaler.load import NEW, Counters, difference
from controllers.gateway.retries import HEADERS
from controllers.kube import ENDPOINT_SLICES
from tests.gateway_lab.cluster import revision, slices
from tests.gateway_lab.gateway import Gateway, gateway, serving, until
from tests.gateway_lab.pods import Gate

pytestmark = pytest.mark.process
REV = revision("iris")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run", queue_ms=300) as found:
        yield found


async def counters(running: Gateway) -> Counters:
    """Of the endpoint's back end."""
    backend = running.cluster.status("iris")["gateway"]["backends"][REV]
    return (await read_counters("127.0.0.1", running.settings.stats_port, 1.0))[backend]


class Clients:
    """Each tries until it is served or has tried so often, and says which try it is; counts what it did."""

    def __init__(self, running: Gateway, tries: int) -> None:
        self._running, self._tries = running, tries
        self.attempts = self.retries = 0
        self.statuses: Counter[int] = Counter()

    async def call(self, header: str, body: bytes = b"{}") -> None:
        client = self._running.client()
        for number in range(self._tries):
            self.attempts += 1
            self.retries += number > 0
            reply = await client.call(headers={header: str(number)}, body=body)
            self.statuses[reply.status] += 1
            if reply.status == 200:
                return


@pytest.mark.parametrize("header", HEADERS)
@pytest.mark.parametrize(
    ("value", "marked"),
    [("1", 1), ("2", 1), ("007", 1), ("10", 1), ("99999999999999999999", 1)]
    + [(value, 0) for value in ("", "0", "00", "-1", "+1", "1.5", "1, 2", "1x", "x1", "0x1", "true")],
)
async def test_an_integer_above_zero_marks_a_retry_and_nothing_else_does(
    running: Gateway, header: str, value: str, marked: int
) -> None:
    await serving(running, [await running.pod(f"{REV}-a")])
    assert (await running.client().call(headers={header: value})).status == 200
    found = await counters(running)
    assert (found.arrived, found.retried) == (1, marked)


async def test_a_request_is_one_retry_whatever_its_headers_and_one_without_is_none(running: Gateway) -> None:
    await serving(running, [await running.pod(f"{REV}-a")])
    client = running.client()
    for headers in ({}, dict.fromkeys(HEADERS, "3"), {HEADERS[0]: "0", HEADERS[1]: "3"}):
        assert (await client.call(headers=headers)).status == 200
    found = await counters(running)
    assert (found.arrived, found.retried) == (3, 2)


@pytest.mark.case("autoscaler-B7")
@pytest.mark.parametrize("header", HEADERS)
async def test_attempts_are_first_ones_and_retries_where_some_are_served_refused_and_left_waiting(
    running: Gateway, header: str
) -> None:
    """One slot and a queue of two for eight clients of three tries: refused at once, after a wait, or served."""
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, queue_max=2)
    clients = Clients(running, tries=3)
    calls = [asyncio.create_task(clients.call(header)) for _ in range(8)]
    await until(lambda: clients.statuses[429] >= 15)
    gate.open()
    await asyncio.gather(*calls)
    assert set(clients.statuses) == {200, 429}
    load = difference(NEW, await counters(running), 1.0)
    assert (load.arrived_rps, load.retried_rps, load.first_rps) == (clients.attempts, clients.retries, 8)
    assert load.refused_rps == clients.statuses[429]


async def test_a_retry_counts_where_no_pod_is_ready_and_where_its_large_body_is_taken_in_first(
    running: Gateway,
) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    running.cluster.put(ENDPOINT_SLICES, *slices("iris", REV, [pod], unready=[pod.name]))
    await running.servers_become({})
    clients = Clients(running, tries=3)
    for body in (b"{}", b"x" * 100_000):
        await clients.call(HEADERS[0], body)
    assert clients.statuses == {503: 6}
    found = await counters(running)
    assert (found.arrived, found.retried) == (6, 4)


async def test_a_retry_that_is_refused_before_its_back_end_is_neither_an_arrival_nor_a_retry(running: Gateway) -> None:
    await serving(running, [await running.pod(f"{REV}-a")])
    headers = dict.fromkeys(HEADERS, "1")
    assert (await running.client(None).call(headers=headers)).status == 401
    assert (await running.client().call("tulip", headers=headers)).status == 404
    found = await counters(running)
    assert (found.arrived, found.retried) == (0, 0)


async def test_retries_of_one_endpoint_are_not_anothers(running: Gateway) -> None:
    for name in ("iris", "tulip"):
        await serving(running, [await running.pod(f"{revision(name)}-a")], name)
    for name, count in (("iris", "1"), ("tulip", "0")):
        assert (await running.client().call(name, headers={HEADERS[0]: count})).status == 200
    every = await read_counters("127.0.0.1", running.settings.stats_port, 1.0)
    assert sorted((found.arrived, found.retried) for found in every.values() if found.arrived) == [(1, 0), (1, 1)]


@pytest.mark.case("autoscaler-G9")
@pytest.mark.parametrize("reloads", [True, False])
async def test_counts_of_a_process_that_begins_anew_count_whole(running: Gateway, reloads: bool) -> None:
    await serving(running, [await running.pod(f"{REV}-a")])
    clients = Clients(running, tries=1)
    for _ in range(9):
        await clients.call(HEADERS[0])
    assert (await running.client().call(headers={HEADERS[0]: "1"})).status == 200
    before = await counters(running)
    assert (before.arrived, before.retried) == (10, 1)
    await renewed(running, reloads)
    client = running.client()
    for count in ("0", "1", "2"):
        assert (await client.call(headers={HEADERS[0]: count})).status == 200
    load = difference(before, await counters(running), 1.0)
    assert (load.arrived_rps, load.retried_rps, load.first_rps) == (3, 2, 1)


async def renewed(running: Gateway, reloads: bool) -> None:
    """Once another process answers, which has the pod."""
    old = (await running.live()).pid
    if reloads:
        running.signal_haproxy(signal.SIGUSR2)
    else:
        await running.stop_haproxy()
        await running.start_haproxy()
    async with asyncio.timeout(10):
        while (await running.live()).pid == old:  # noqa: ASYNC110 - a process tells nobody that it is there
            await asyncio.sleep(0.01)
    await running.taking({f"{REV}-a"})
