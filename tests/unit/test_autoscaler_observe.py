"""The sampler: what rests is nothing, zeros of most endpoints at once are unknown, counts go on between readings."""

import asyncio

import pytest

from controllers.autoscaler.load import ZERO, Counters, Load, LoadSample, difference
from controllers.autoscaler.observe import Gateway, Sampler
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.view import Endpoint, endpoint_of

COUNT = 12
GATEWAY = Gateway("g1", "10.0.0.9", leaving=False)


def endpoint(number: int) -> Endpoint:
    name = f"e{number}"
    return endpoint_of(
        {
            "metadata": {"namespace": "team-alpha", "name": name, "uid": f"u{number}"},
            "spec": {"concurrency": {"min": 1, "max": 9}, "runtime": {"initialLimit": 8}},
            "status": {"gateway": {"backends": {f"{name}-a": f"b{number}"}}},
        }
    )


ENDPOINTS = [endpoint(number) for number in range(COUNT)]


class Balancer:
    """Each back end takes ten requests a second, one in flight, unless it is `silent`; `anew` counts from nothing."""

    def __init__(self) -> None:
        self.now_s, self.silent, self.begun_s = 0.0, 0, 0.0

    async def read(self, host: str, port: int, timeout_s: float) -> dict[str, Counters]:
        return {f"b{number}": self.counters(number) for number in range(COUNT)}

    def counters(self, number: int) -> Counters:
        sent = int(10 * (self.now_s - self.begun_s))
        return Counters(0, 0, {"p": (0, 0)}) if number < self.silent else Counters(0, sent, {"p": (1, sent)})


class Seconds:
    def __init__(self) -> None:
        self.balancer = Balancer()
        self.sampler = Sampler(Settings(), self.balancer.read, lambda: self.balancer.now_s)

    async def run(self, seconds: int) -> list[Load | None]:
        """The last second's loads."""
        for _ in range(seconds):
            self.balancer.now_s += 1.0
            await self.sampler.sample([GATEWAY], ENDPOINTS)
        found = [self.sampler.latest(each) for each in ENDPOINTS]
        return [sample.load for sample in found if sample is not None]


async def test_zeros_of_most_busy_endpoints_at_once_are_unknown_for_a_minute_and_then_believed() -> None:
    time = Seconds()
    assert None not in await time.run(10)
    time.balancer.silent = COUNT
    assert set(await time.run(1)) == {None}
    assert set(await time.run(58)) == {None}
    assert all(load is not None and load.in_flight == 0 for load in await time.run(2))


async def test_zeros_of_a_few_are_theirs() -> None:
    time = Seconds()
    await time.run(10)
    time.balancer.silent = 3
    assert None not in await time.run(1)


async def test_arrivals_are_told_by_gateway_and_revision() -> None:
    time = Seconds()
    await time.run(10)
    assert time.sampler.arrivals(ENDPOINTS[0]) == {"g1": {"e0-a": 100}}
    assert time.sampler.arrivals(endpoint(99)) == {"g1": {}}


@pytest.mark.parametrize("arrived", [0, 7])
async def test_a_back_end_that_rests_has_the_load_that_arithmetic_would_give(arrived: int) -> None:
    resting = Counters(0, arrived, {"p": (0, arrived)}, retried=arrived)
    assert difference(resting, resting, 1.0) == ZERO
    time = Seconds()
    time.balancer.counters = lambda number: resting  # type: ignore[method-assign]
    assert set(await time.run(2)) == {ZERO}


class Slow:
    """Two gateways, of which the second fails at first and then says nothing until it is let."""

    def __init__(self) -> None:
        self.asked, self.let = 0, asyncio.Event()

    async def read(self, host: str, port: int, timeout_s: float) -> dict[str, Counters]:
        if host == "h2":
            self.asked += 1
            if self.asked == 1:
                raise TimeoutError
            await self.let.wait()
        return {f"b{number}": Counters(0, 0, {"p": (1, 1)}) for number in range(COUNT)}


@pytest.mark.case("autoscaler-A10")
async def test_nobody_waits_for_a_gateway_that_was_silent_and_its_share_is_unknown_until_it_speaks() -> None:
    slow, gateways = Slow(), [Gateway(name, name, leaving=False) for name in ("h1", "h2")]
    sampler = Sampler(Settings(), slow.read)

    async def second() -> LoadSample:
        async with asyncio.timeout(5):
            await sampler.sample(gateways, ENDPOINTS)
        sample = sampler.latest(ENDPOINTS[0])
        assert sample is not None
        return sample

    for _ in range(4):
        sample = await second()
        assert (sample.load is not None and sample.load.in_flight, sample.complete) == (1, False)
    assert slow.asked == 2, "one question at a time"
    slow.let.set()
    await asyncio.sleep(0)
    sample = await second()
    assert (sample.load is not None and sample.load.in_flight, sample.complete) == (2, True)


async def test_where_every_gateway_was_silent_they_are_waited_for() -> None:
    slow = Slow()
    sampler = Sampler(Settings(), slow.read)
    only = [Gateway("h2", "h2", leaving=False)]
    await sampler.sample(only, ENDPOINTS)
    slow.let.set()
    await sampler.sample(only, ENDPOINTS)
    sample = sampler.latest(ENDPOINTS[0])
    assert sample is not None
    assert sample.complete
