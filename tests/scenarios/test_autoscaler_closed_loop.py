"""The production controllers against pods that take time to start and a gateway that queues, on a fake clock."""

import random
from collections.abc import Callable

import pytest

from controllers.autoscaler.load import Counters
from controllers.kube import DEPLOYMENTS, PODS
from spec import names
from tests.scenarios.lab.world import ENDPOINT, NAMESPACE, World, endpoint_object

# limit 10, target 8, service time 0.2 s: a replica carries 40 requests a second at its target.


# Until the limit of a replica is learnt; from then on neither it nor the replicas move at constant load.
LEARNT_S = 260


def step(before: float, after: float, at_s: float, end_s: float = 1e9) -> Callable[[float], float]:
    return lambda t: after if at_s <= t < end_s else before


async def settled(world: World, seconds: int = 30) -> World:
    await world.until(world.is_ready, 60)
    await world.run(seconds)
    world.history.clear()
    return world


def replicas(world: World) -> int:
    return world.cluster.replicas(world.gateway.routed or "")


async def test_a_step_raises_replicas_within_30_seconds_and_lowers_them_after_the_window() -> None:
    world = await settled(World(endpoint_object(), rate_rps=step(20, 400, 60, 200)))
    await world.until(lambda: world.now_s - world.started_s >= 60, 60)
    assert replicas(world) == 1
    assert await world.until(lambda: replicas(world) >= 10, 30) <= 12
    await world.run(60)
    assert world.cluster.ready(world.gateway.routed or "") >= 10
    refused = world.gateway.refused
    await world.until(lambda: world.now_s - world.started_s >= 200, 200)
    assert world.gateway.refused == refused, "once the replicas are there nothing is refused"
    assert max(world.history) <= 13, "peak within 1.3 of the ideal 10"
    before = replicas(world)
    await world.run(55)
    assert replicas(world) == before, "the window still holds the peak"
    await world.until(lambda: replicas(world) == 1, 90)


async def test_a_hundredfold_step_is_met_within_start_up_and_20_seconds() -> None:
    """1 -> 4,000 req/s is 800 requests in flight: 100 replicas, two cycles at a cap of ten."""
    world = await settled(World(endpoint_object(high=5000), rate_rps=step(4, 4000, 60)))
    await world.until(lambda: world.now_s - world.started_s >= 60, 60)
    assert await world.until(lambda: replicas(world) >= 100, 40) <= 20
    await world.run(60)
    assert max(world.history) <= 130


@pytest.mark.case("autoscaler-C10")
@pytest.mark.case("autoscaler-F2")
@pytest.mark.case("autoscaler-F6")
async def test_constant_load_with_ten_percent_noise_changes_at_most_once() -> None:
    noise = random.Random(7)
    world = await settled(World(endpoint_object(), rate_rps=lambda t: max(0.0, noise.gauss(215, 21.5))), 120)
    await world.run(900)
    assert world.changes() <= 1


class Flaky:
    """Statistics of which a share is lost, by a fixed seed."""

    def __init__(self, world: World, share: float) -> None:
        self._real, self._random, self._share = world.gateway.statistics, random.Random(3), share

    async def __call__(self, host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        if self._random.random() < self._share:
            raise TimeoutError
        return await self._real(host, port, deadline_s)


@pytest.mark.case("autoscaler-A2")
async def test_constant_load_with_30_percent_of_samples_lost_stays_within_one_replica() -> None:
    world = World(endpoint_object(), rate_rps=lambda t: 215.0)
    world.gateway.statistics = Flaky(world, 0.3)  # type: ignore[method-assign]
    world.restart()
    await settled(world, 120)
    await world.run(900)
    assert max(world.history) - min(world.history) <= 1
    assert world.changes() <= 1


@pytest.mark.case("autoscaler-A1")
@pytest.mark.case("autoscaler-A5")
async def test_a_silent_gateway_lowers_nothing_and_is_told_as_a_condition() -> None:
    world = await settled(World(endpoint_object(), rate_rps=step(400, 0, 200)), 120)
    before = replicas(world)
    assert before >= 10
    world.gateway.silent = True
    await world.run(400)
    assert replicas(world) == before
    assert world.condition("Scaled")["reason"] == "MetricsUnavailable"
    world.gateway.silent = False
    await world.run(20)
    assert world.condition("Scaled")["reason"] == "FollowsLoad"
    await world.run(40)
    assert replicas(world) == before, "a window that was not seen is no window of no load"
    await world.until(lambda: replicas(world) == 1, 60)


@pytest.mark.case("autoscaler-A14")
async def test_the_floor_holds_without_any_metrics() -> None:
    world = World(endpoint_object(low=30))
    world.gateway.silent = True
    await world.until(world.is_ready, 60)
    assert replicas(world) == 4


@pytest.mark.case("autoscaler-G1")
@pytest.mark.case("autoscaler-G2")
async def test_a_restart_under_constant_load_changes_nothing() -> None:
    world = await settled(World(endpoint_object(), rate_rps=lambda t: 400.0), LEARNT_S)
    world.restart()
    await world.run(200)
    assert world.changes() == 0


async def test_a_restart_in_the_middle_of_a_step_is_off_by_at_most_a_cycle() -> None:
    async def meets_at(*, restart: bool) -> float:
        world = await settled(World(endpoint_object(), rate_rps=step(20, 400, 60)))
        await world.until(lambda: world.now_s - world.started_s >= 63, 60)
        if restart:
            world.restart()
        return await world.until(lambda: replicas(world) >= 10, 40)

    assert await meets_at(restart=True) - await meets_at(restart=False) <= 6


@pytest.mark.case("autoscaler-G1")
async def test_a_restart_over_a_queue_asks_for_no_more_than_who_saw_the_step() -> None:
    """The controller is away for the first seconds of a step from 60/s to 400/s; its successor finds a full queue."""

    async def most(away_s: int) -> int:
        world = await settled(World(endpoint_object(), rate_rps=step(60, 400, 100)), 80)
        await world.until(lambda: world.now_s - world.started_s >= 100, 60)
        if away_s:
            await world.unattended(away_s)
            world.restart()
        await world.run(40)
        return max(world.history)

    assert abs(await most(16) - await most(0)) <= 1


@pytest.mark.case("autoscaler-G5")
async def test_without_the_lease_nothing_is_written_and_the_past_is_known_when_it_comes_back() -> None:
    world = await settled(World(endpoint_object(), rate_rps=step(20, 400, 60, 120)))
    world.lease.mine = False
    writes = len(world.cluster.writes)
    await world.run(60)
    assert (replicas(world), len(world.cluster.writes)) == (1, writes)
    world.lease.mine = True
    await world.until(lambda: replicas(world) >= 8, 10)
    await world.run(30)
    assert replicas(world) >= 8, "the peak it saw while it stood by still holds"


@pytest.mark.case("autoscaler-C6")
@pytest.mark.case("autoscaler-C7")
async def test_a_slow_start_does_not_overshoot() -> None:
    world = World(endpoint_object(), rate_rps=step(20, 400, 100), start_s=60.0)
    await world.until(world.is_ready, 120)
    await world.run(150)
    assert max(world.history) <= 13


@pytest.mark.case("autoscaler-C1")
@pytest.mark.case("autoscaler-C2")
@pytest.mark.case("autoscaler-C3")
@pytest.mark.case("autoscaler-C4")
async def test_evicted_finished_and_terminating_pods_are_neither_capacity_nor_demand() -> None:
    """What counts is what was asked for; pods that linger are read for nothing but a start's reason."""
    world = await settled(World(endpoint_object(), rate_rps=lambda t: 400.0), LEARNT_S)
    name, before = world.gateway.routed or "", replicas(world)
    for number, extra in enumerate(({"phase": "Failed", "reason": "Evicted"}, {"phase": "Succeeded"}, {}) * 10):
        pod = dict(world.cluster.pods(name)[0])
        metadata = pod["metadata"] | {"name": f"lingers-{number}", "uid": f"x{number}", "deletionTimestamp": "now"}
        world.cluster.stores[PODS].put(pod | {"metadata": metadata, "status": extra})
    await world.run(120)
    assert replicas(world) == before


@pytest.mark.case("autoscaler-B3")
async def test_the_ceiling_holds_and_is_told() -> None:
    world = await settled(World(endpoint_object(high=40), rate_rps=step(20, 2000, 60)))
    await world.run(120)
    assert replicas(world) == 5
    assert world.condition("Scaled")["reason"] == "AtCeiling"


@pytest.mark.case("autoscaler-E7")
async def test_a_foreign_hand_is_corrected_named_and_forgotten_after_a_minute() -> None:
    world = await settled(World(endpoint_object(), rate_rps=lambda t: 20.0))
    name = world.gateway.routed or ""
    world.cluster.scale(world.cluster.objects[DEPLOYMENTS][(NAMESPACE, name)], 7, "kubectl")
    await world.until(lambda: replicas(world) == 1, 6)
    await world.run(1)
    assert world.condition("Scaled")["reason"] == "ForeignWriter"
    assert "kubectl" in world.condition("Scaled")["message"]
    assert world.status()["autoscaler"]["decisions"][0]["reason"] == "ForeignWriter"
    await world.run(70)
    assert world.condition("Scaled")["reason"] == "FollowsLoad"


async def test_every_change_has_an_event_and_a_reason() -> None:
    world = await settled(World(endpoint_object(), rate_rps=step(20, 400, 60)))
    await world.run(60)
    changes = [d for d in world.status()["autoscaler"]["decisions"] if d["to"] != d["from"]]
    events = [obj for objects in world.cluster.objects.values() for obj in objects.values() if obj["kind"] == "Event"]
    assert changes
    assert {(f"{d['from']} -> {d['to']}", d["reason"]) for d in changes} == {
        (e["message"].split(": ")[1].split(" replicas")[0], e["reason"]) for e in events
    }
    assert {e["involvedObject"]["name"] for e in events} == {ENDPOINT}


@pytest.mark.case("autoscaler-G3")
async def test_a_settled_endpoint_is_hardly_ever_written_to() -> None:
    world = await settled(World(endpoint_object(), rate_rps=lambda t: 200.0), LEARNT_S)
    before = world.cluster.writes.count(f"{names.MANAGER_AUTOSCALER} {ENDPOINT}")
    await world.run(300)
    assert world.cluster.writes.count(f"{names.MANAGER_AUTOSCALER} {ENDPOINT}") - before <= 300 / 30


async def test_one_endpoint_that_cannot_be_read_harms_no_other() -> None:
    world = World(endpoint_object(), rate_rps=step(20, 400, 60))
    broken = endpoint_object()
    broken["metadata"] = {"namespace": NAMESPACE, "name": "broken"}
    broken["spec"] = {"team": "alpha", "concurrency": {"min": 1, "max": 5}, "model": {}}
    world.cluster.store(next(iter(world.cluster.stores)), broken)
    await settled(world)
    await world.run(60)
    assert replicas(world) >= 10


async def test_an_outage_of_the_api_server_is_waited_out_and_the_load_still_met() -> None:
    world = await settled(World(endpoint_object(), rate_rps=step(20, 400, 60)))
    await world.until(lambda: world.now_s - world.started_s >= 58, 60)
    world.cluster.down = True
    await world.run(20)
    assert replicas(world) == 1
    world.cluster.down = False
    await world.until(lambda: replicas(world) >= 10, 70)
