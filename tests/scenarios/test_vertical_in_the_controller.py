"""The learner inside the whole controller: the status tells, the gateway applies, whoever takes over goes on."""

import pytest

from controllers.kube import Object
from tests.scenarios.lab.world import World, endpoint_object

# A pod works on 10 at once for 0.2 s each: 50 requests a second; 400 a second are 80 in flight.
KNEE = 10


def told(world: World) -> Object:
    found: Object = world.status()["autoscaler"]["revisions"][world.gateway.routed]
    return found


def limits(world: World) -> list[int]:
    return sorted(pod.limit for pod in world.gateway._pods[world.gateway.routed or ""].values() if pod.limit)


async def learnt(limit: int, rate_rps: float = 400.0, seconds: int = 600) -> World:
    world = World(endpoint_object(limit=limit), rate_rps=lambda t: rate_rps, knee=KNEE)
    await world.until(world.is_ready, 60)
    await world.run(seconds)
    return world


@pytest.mark.case("autoscaler-I8")
@pytest.mark.parametrize("limit", [4 * KNEE, 3])
async def test_ten_minutes_after_its_start_the_limit_is_the_knee_and_replicas_fit_it(limit: int) -> None:
    world = await learnt(limit)
    assert told(world)["limit"] == pytest.approx(KNEE, abs=2)
    assert told(world)["knee"] == pytest.approx(KNEE, abs=2)
    assert 0.8 <= told(world)["target"] / told(world)["limit"] <= 0.9
    assert told(world)["baselineMs"] == pytest.approx(200, rel=0.1)
    assert told(world)["why"]
    await world.run(300)
    assert 8 <= world.cluster.replicas(world.gateway.routed or "") <= 14


async def test_the_gateway_holds_every_pod_to_the_limit_and_at_most_one_to_another() -> None:
    world = await learnt(4 * KNEE, seconds=120)
    for _ in range(300):
        await world.run(1)
        found = limits(world)
        assert len(found) - max(found.count(each) for each in found) <= 1


@pytest.mark.case("autoscaler-G6")
async def test_a_new_process_goes_on_with_the_limit_that_was_learnt() -> None:
    world = await learnt(4 * KNEE)
    before = told(world)["limit"]
    world.restart()
    await world.run(60)
    assert told(world)["limit"] == before
    assert told(world)["knee"] == pytest.approx(KNEE, abs=2)


async def test_who_stands_by_has_learnt_what_the_leader_learnt() -> None:
    world = await learnt(4 * KNEE)
    before = told(world)["limit"]
    world.lease.mine = False
    await world.run(60)
    world.lease.mine = True
    await world.run(60)
    assert told(world)["limit"] == before


async def test_a_successor_begins_with_the_limit_of_the_one_before() -> None:
    world = await learnt(4 * KNEE)
    before, old = told(world)["limit"], world.gateway.routed
    world.declare(endpoint_object("2", limit=4 * KNEE))
    await world.until(lambda: world.gateway.routed != old, 120)
    assert told(world)["limit"] == before
