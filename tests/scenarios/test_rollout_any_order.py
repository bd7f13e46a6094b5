"""Changes, failures, outages and restarts in any order: what serves is never touched, and quiet ends in Ready."""

import asyncio
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.kube import LEADER_WORKER_SETS
from tests.scenarios.lab.cluster import Behaviour
from tests.scenarios.lab.world import World, endpoint_object, revision

# The last one's replicas span nodes.
VERSIONS = {version: endpoint_object(version) for version in "123"} | {"4": endpoint_object("4", nodes=2)}  # type: ignore[arg-type]


@dataclass(frozen=True)
class Op:
    what: str
    version: str = "1"
    seconds: int = 0


declares = st.builds(Op, st.just("declare"), st.sampled_from("1234"))
troubles = st.builds(
    Op, st.sampled_from(["image", "crash", "unschedulable", "silent", "heal"]), st.sampled_from("1234")
)
faults = st.builds(Op, st.sampled_from(["restart", "api", "gateway", "lease", "kind"]))
waits = st.builds(Op, st.just("wait"), st.just("1"), st.sampled_from([1, 2, 5, 11, 30, 70, 130]))
scripts = st.lists(declares | troubles | faults | waits | waits, max_size=25)


def act(world: World, op: Op) -> None:
    name = revision(VERSIONS[op.version])
    match op.what:
        case "declare":
            world.declare(VERSIONS[op.version])
        case "heal":
            world.cluster.behaviours[name] = Behaviour()
        case "restart":
            world.restart()
        case "api":
            world.cluster.down = not world.cluster.down
        case "gateway":
            world.gateway.applying = not world.gateway.applying
        case "kind":
            lacks = not world.cluster.lacking and not world.cluster.objects[LEADER_WORKER_SETS]
            world.cluster.lack(LEADER_WORKER_SETS, lacks)
        case "lease":
            world.lease.mine = not world.lease.mine
        case trouble if name not in world.cluster.revisions() and trouble != "wait":
            world.cluster.behaviours[name] = Behaviour(trouble=trouble)


async def play(script: list[Op]) -> None:
    world = World(VERSIONS["1"], rate_rps=lambda t: 60.0 if t > 30 else 0.0)
    await world.until(world.is_ready, 60)
    await world.run(30)
    world.gateway.lost = 0
    for op in script:
        act(world, op)
        for _ in range(op.seconds):
            await world.second()
            assert world.gateway.routed in world.cluster.revisions(), "what has the traffic is there"
            assert world.cluster.ready(world.gateway.routed or "") >= 1
    await quiet(world)
    assert world.gateway.lost == 0


async def quiet(world: World) -> None:
    """All faults end; within a start, a hold and the longest pause of a retry everything is as declared."""
    world.cluster.down, world.gateway.applying, world.lease.mine = False, True, True
    if world.cluster.lacking:
        world.cluster.lack(LEADER_WORKER_SETS, False)
    for obj in VERSIONS.values():
        world.cluster.behaviours[revision(obj)] = Behaviour()
    await world.until(world.is_ready, 300)
    declared = world.status()["declaredRevision"]
    assert world.gateway.routed == world.status()["trafficRevision"] == declared
    await world.until(lambda: world.cluster.revisions() == {declared}, 200)
    assert world.phases() == {declared: "Serving"}


@given(scripts)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_happens_what_serves_is_kept_and_quiet_ends_as_declared(script: list[Op]) -> None:
    asyncio.run(play(script))
