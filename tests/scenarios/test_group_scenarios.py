"""Endpoints whose replicas span nodes, from a changed file to the last removed pod, on a fake clock."""

import pytest

from controllers.kube import DEPLOYMENTS, LEADER_WORKER_SETS, MODEL_ENDPOINTS, PODS, SERVICES, Object
from spec import names
from tests.scenarios.lab import world as lab
from tests.scenarios.lab.cluster import Behaviour
from tests.scenarios.lab.world import ENDPOINT, NAMESPACE, World, endpoint_object, revision, unharmed

ONE, TWO = endpoint_object("1", nodes=3), endpoint_object("2", nodes=3)
ON_ONE_NODE = endpoint_object("1")


async def live(obj: Object = ONE, rate_rps: float = 200.0) -> World:
    """200 requests a second with six replicas of three pods each, or of one."""
    return await lab.live(obj, rate_rps)


async def test_replicas_follow_the_load_and_each_is_a_whole_group() -> None:
    world = await live()
    one = revision(ONE)
    groups = world.cluster.replicas(one)
    assert groups >= 5
    assert len(world.cluster.objects[PODS]) == 3 * groups
    assert world.status()["autoscaler"]["readyReplicas"] == groups
    assert world.cluster.objects[DEPLOYMENTS] == {}
    selector = world.cluster.objects[SERVICES][(NAMESPACE, one)]["spec"]["selector"]
    assert selector[names.LABEL_WORKER_INDEX] == "0"
    assert unharmed(world)


async def test_a_decrease_leaves_a_group_that_is_ready_though_the_highest_numbers_go_first() -> None:
    """The node of the first is gone. Of pods without numbers the one that is not ready would go first."""
    world = World(ONE, rate_rps=lambda t: 0.0 if t < 20 else 200.0 if t < 150 else 5.0)
    await world.run(140)
    assert world.cluster.ready(revision(ONE)) >= 5
    world.cluster.behaviours[revision(ONE)] = Behaviour(lost=frozenset({0}))
    await world.run(10)
    world.gateway.refused = world.gateway.lost = 0
    await world.run(400)
    assert (world.cluster.replicas(revision(ONE)), world.cluster.ready(revision(ONE))) == (2, 1)
    assert unharmed(world)
    world.cluster.behaviours[revision(ONE)] = Behaviour()
    await world.until(lambda: world.cluster.replicas(revision(ONE)) == 1, 60)
    assert unharmed(world)


async def test_a_new_version_takes_over_at_its_full_size_without_a_lost_request() -> None:
    world = await live()
    one, two, before = revision(ONE), world.declare(TWO), world.cluster.replicas(revision(ONE))
    await world.until(lambda: world.gateway.routed == two, 60)
    assert world.cluster.ready(two) in (before, before + 1)
    await world.until(lambda: one not in world.cluster.revisions(), 120)
    assert (NAMESPACE, one) not in world.cluster.objects[SERVICES]
    assert world.phases() == {two: "Serving"}
    assert unharmed(world)


@pytest.mark.parametrize(("before", "after"), [(ON_ONE_NODE, ONE), (ONE, ON_ONE_NODE)], ids=["to three", "to one"])
async def test_other_nodes_are_another_revision_and_what_ran_the_old_one_goes(before: object, after: object) -> None:
    world = await live(before)
    old, new = revision(before), world.declare(after)  # type: ignore[arg-type]
    assert old != new
    await world.until(lambda: world.gateway.routed == new, 60)
    await world.until(lambda: world.cluster.revisions() == {new}, 120)
    kind = LEADER_WORKER_SETS if after is ONE else DEPLOYMENTS
    assert set(world.cluster.objects[kind]) == {(NAMESPACE, new)}
    assert unharmed(world)


@pytest.mark.parametrize(
    ("trouble", "reason"), [("crash", "ModelLoadFailed"), ("image", "ImagePullBackOff")], ids=["crash", "image"]
)
async def test_a_worker_that_can_not_start_is_a_failed_start_with_its_reason(trouble: str, reason: str) -> None:
    world = await live()
    one, two = revision(ONE), revision(TWO)
    world.cluster.behaviours[two] = Behaviour(trouble=trouble, trouble_from=1)
    world.declare(TWO)
    await world.until(lambda: world.phases().get(two) == "Failed", 60)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert "-1, container server" in ready["message"], "a worker's"
    await world.until(lambda: world.condition("CircuitOpen").get("status") == "True", 60)
    for _ in range(25):  # its pause, through a group that begins anew every few seconds
        await world.second()
        assert world.condition("CircuitOpen").get("status") == "True"
    assert world.gateway.routed == one
    assert unharmed(world)


async def test_a_cluster_without_the_kind_is_told_and_once_it_is_there_the_endpoint_serves() -> None:
    world = World(ONE)
    world.cluster.lack(LEADER_WORKER_SETS, True)
    await world.run(3)
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "LeaderWorkerSetMissing")
    assert world.phases() == {revision(ONE): "Failed"}
    assert world.cluster.objects[LEADER_WORKER_SETS] == {}
    writes = len(world.cluster.writes)
    await world.run(60)
    assert len(world.cluster.writes) - writes <= 3, "it is looked at again and again, and said once"
    world.cluster.lack(LEADER_WORKER_SETS, False)
    await world.until(world.is_ready, 60)
    assert world.phases() == {revision(ONE): "Serving"}


async def test_an_endpoint_on_one_node_needs_no_such_kind() -> None:
    world = World(ON_ONE_NODE)
    world.cluster.lack(LEADER_WORKER_SETS, True)
    await world.until(world.is_ready, 60)


async def test_removing_the_endpoint_removes_its_groups() -> None:
    world = await live(rate_rps=1.0)
    world.cluster.remove(MODEL_ENDPOINTS, (NAMESPACE, ENDPOINT))
    left = {kind.plural: world.cluster.objects[kind] for kind in (LEADER_WORKER_SETS, PODS, SERVICES)}
    assert not any(left.values())
