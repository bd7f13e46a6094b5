"""The lease on a fake clock: who may write, when not any more, and how fast another takes over."""

import asyncio
import contextlib
import copy

import pytest

from controllers.kube import DEPLOYMENTS, LEASES, Conflict, Gvr, NotFound, Object, Unreachable
from controllers.lease import FencedWriter, Lease, NotLeader, Terms


class Server:
    """One Lease object with versions, reachable or not."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.down = False
        self.writes: list[str] = []

    async def get(self, gvr: Gvr, namespace: str, name: str) -> Object:
        self._reachable()
        if self.lease is None:
            raise NotFound(404, "NotFound", name)
        return copy.deepcopy(self.lease)

    async def create(self, gvr: Gvr, namespace: str, body: Object, manager: str = "") -> Object:
        return self._put(body)

    async def replace(self, gvr: Gvr, namespace: str, body: Object) -> Object:
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise Conflict(409, "Conflict", "moved on")
        return self._put(body)

    async def apply(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        self.writes.append(name)
        return body

    def _put(self, body: Object) -> Object:
        self._reachable()
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return self.lease

    def _reachable(self) -> None:
        if self.down:
            raise Unreachable("away")


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Pair:
    """Two processes, one lease, one clock."""

    def __init__(self) -> None:
        self.server, self.clock = Server(), Clock()
        self.a, self.b = (
            Lease(self.server, "ns", "l", who, monotonic=self.clock, wall=self.clock) for who in ("a", "b")
        )

    async def round(self, *who: Lease, seconds: float = 2.0) -> None:
        for lease in who:
            await lease.try_once()
        self.clock.now_s += seconds


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.mark.case("autoscaler-G4")
async def test_exactly_one_of_two_holds_the_lease(pair: Pair) -> None:
    for _ in range(20):
        await pair.round(pair.a, pair.b)
        assert (pair.a.held(), pair.b.held()) == (True, False)


@pytest.mark.parametrize("phase_s", [0.0, 0.5, 1.0, 1.5, 1.9])
async def test_a_killed_holder_is_followed_within_20_seconds(pair: Pair, phase_s: float) -> None:
    """At any moment between two renewals; who stands by looks every second."""
    await pair.round(pair.a, pair.b, seconds=phase_s)
    killed_s = pair.clock.now_s
    while not pair.b.held():
        await pair.round(pair.b, seconds=Terms().standby_s)
    assert 15.0 - phase_s <= pair.clock.now_s - killed_s <= 17.0 + Terms().standby_s


async def test_who_stands_by_looks_every_second_and_who_holds_renews_every_two(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for lease in (pair.a, pair.b):
        slept.clear()
        with contextlib.suppress(asyncio.CancelledError):
            await lease.run()
        assert slept == ([2.0, 2.0] if lease is pair.a else [1.0, 1.0])


async def test_a_holder_that_leaves_is_followed_within_2_seconds(pair: Pair) -> None:
    await pair.round(pair.a, pair.b)
    await pair.a.release()
    assert not pair.a.held()
    await pair.round(pair.b)
    assert pair.b.held()


@pytest.mark.case("autoscaler-G5")
async def test_a_holder_that_was_asleep_may_not_write_before_another_may(pair: Pair) -> None:
    await pair.round(pair.a, pair.b)
    pair.clock.now_s += 10.0  # nothing renewed, nothing told
    assert not pair.a.held()
    with pytest.raises(NotLeader):
        pair.a.check()
    await pair.round(pair.b)
    assert not pair.b.held()


async def test_the_fence_stands_before_every_write(pair: Pair) -> None:
    writer = FencedWriter(pair.server, pair.a)
    with pytest.raises(NotLeader):
        await writer.apply(DEPLOYMENTS, "ns", "d", "m", {})
    await pair.a.try_once()
    await writer.apply(DEPLOYMENTS, "ns", "d", "m", {})
    assert pair.server.writes == ["d"]


async def test_an_outage_of_the_api_server_stops_writes_and_the_same_holder_goes_on(pair: Pair) -> None:
    await pair.round(pair.a, pair.b)
    pair.server.down = True
    for _ in range(10):
        await pair.round(pair.a, pair.b)
    assert not pair.a.held()
    pair.server.down = False
    await pair.round(pair.a)
    assert pair.a.held()


async def test_the_age_of_a_renewal_counts_from_before_its_request(pair: Pair) -> None:
    slow = pair.server.replace

    async def replace(gvr: Gvr, namespace: str, body: Object) -> Object:
        pair.clock.now_s += 4.0
        return await slow(gvr, namespace, body)

    await pair.a.try_once()
    pair.server.replace = replace  # type: ignore[method-assign]
    await pair.a.try_once()
    pair.clock.now_s += 6.0
    assert not pair.a.held()


async def test_another_holders_clock_does_not_matter(pair: Pair) -> None:
    await pair.round(pair.a, pair.b)
    assert pair.server.lease is not None
    pair.server.lease["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
    await pair.round(pair.b)
    assert not pair.b.held()


async def test_the_lease_tells_who_holds_it_and_how_often_it_changed_hands(pair: Pair) -> None:
    await pair.round(pair.a, pair.b)
    await pair.a.release()
    await pair.round(pair.b)
    spec = (await pair.server.get(LEASES, "ns", "l"))["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("b", 15, 2)
