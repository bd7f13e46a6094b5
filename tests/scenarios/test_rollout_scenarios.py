"""Rollouts from a changed file to the last removed pod, under load, on a fake clock: nothing is lost on the way."""

import pytest

from controllers.kube import DEPLOYMENTS, MODEL_ENDPOINTS, SERVICES
from tests.scenarios.lab import world as lab
from tests.scenarios.lab.cluster import Behaviour
from tests.scenarios.lab.world import ENDPOINT, NAMESPACE, World, endpoint_object, revision, unharmed

ONE, TWO, THREE = endpoint_object("1"), endpoint_object("2"), endpoint_object("3")


async def live(rate_rps: float = 200.0, **spec: object) -> World:
    """Version 1 serves 200 requests a second with six replicas."""
    return await lab.live(endpoint_object("1", **spec), rate_rps)


async def test_a_new_version_takes_over_at_its_full_size_without_a_lost_request() -> None:
    world = await live()
    one, two, before = revision(ONE), world.declare(TWO), world.cluster.replicas(revision(ONE))
    assert before >= 5
    await world.until(lambda: world.gateway.routed == two, 60)
    assert world.cluster.ready(two) in (before, before + 1), "one more until its own knee is learnt"
    await world.until(world.is_ready, 10)
    assert world.phases() == {one: "Draining", two: "Serving"}
    assert world.status()["modelVersion"] == "2"
    await world.until(lambda: world.phases().get(one) == "Held", 15)
    assert world.cluster.ready(one) == before, "a held one keeps its pods"
    await world.until(lambda: one not in world.cluster.revisions(), 70)
    assert (NAMESPACE, one) not in world.cluster.objects[SERVICES]
    assert world.phases() == {two: "Serving"}
    assert unharmed(world)


@pytest.mark.case("autoscaler-D1")
@pytest.mark.case("autoscaler-D6")
async def test_a_rollout_at_constant_load_does_not_change_what_is_wanted() -> None:
    world = await live()
    before = world.cluster.replicas(revision(ONE))
    world.history.clear()
    two = world.declare(TWO)
    await world.run(200)
    assert world.gateway.routed == two
    assert set(world.history) == {before}


async def test_a_successor_is_sized_at_once_and_not_in_the_next_cycle() -> None:
    world = await live()
    await world.run(3)
    before, two = world.cluster.replicas(revision(ONE)), world.declare(TWO)
    assert await world.until(lambda: world.cluster.replicas(two) in (before, before + 1), 5) <= 3


async def test_a_resource_limit_alone_is_a_new_revision_by_the_same_path() -> None:
    world = await live()
    changed = endpoint_object("1")
    changed["spec"]["podTemplate"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "2Gi"}}
    two = world.declare(changed)
    assert two != revision(ONE)
    await world.until(lambda: world.gateway.routed == two, 60)
    assert unharmed(world)


async def test_what_is_not_the_model_makes_no_revision() -> None:
    world = await live()
    world.declare(endpoint_object("1", high=500))
    await world.until(world.is_ready, 10)
    assert world.cluster.revisions() == {revision(ONE)}
    assert world.status()["readySpecDigest"] == "digest-1-500"


async def test_a_revert_within_the_hold_is_immediate_and_keeps_the_pods() -> None:
    world = await live()
    one, two = revision(ONE), world.declare(TWO)
    await world.until(lambda: world.phases().get(one) == "Held", 90)
    pods = {pod["metadata"]["uid"] for pod in world.cluster.pods(one)}
    world.declare(ONE)
    assert await world.until(lambda: world.gateway.routed == one, 5) <= 3
    assert {pod["metadata"]["uid"] for pod in world.cluster.pods(one)} == pods
    await world.until(lambda: two not in world.cluster.revisions(), 80)
    assert unharmed(world)


async def test_a_revert_to_one_that_has_become_too_small_grows_it_first() -> None:
    world = await live(100.0)
    one = revision(ONE)
    world.declare(TWO)
    await world.until(lambda: world.phases().get(one) == "Held", 90)
    small = world.cluster.replicas(one)
    world.gateway.rate_rps = lambda t: 390.0
    await world.run(30)
    world.declare(ONE)
    await world.until(lambda: world.gateway.routed == one, 40)
    assert world.cluster.ready(one) > small
    assert world.cluster.ready(one) * 10 >= 390 * 0.2


@pytest.mark.parametrize(
    ("trouble", "reason", "within_s"),
    [("image", "ImagePullBackOff", 40), ("crash", "ModelLoadFailed", 10), ("unschedulable", "Unschedulable", 70)],
)
async def test_a_successor_that_cannot_start_is_told_and_removed_by_the_next_change(
    trouble: str, reason: str, within_s: int
) -> None:
    world = await live()
    one, two = revision(ONE), revision(TWO)
    world.cluster.behaviours[two] = Behaviour(trouble=trouble)
    world.declare(TWO)
    await world.until(lambda: world.phases().get(two) == "Failed", within_s)
    assert world.condition("Ready")["reason"] == reason
    assert world.condition("Available")["status"] == "True"
    assert (world.gateway.routed, world.phases()[one]) == (one, "Serving")
    before = world.cluster.replicas(two)
    await world.run(120)
    assert world.cluster.replicas(two) == before, "a failed one is not grown"
    three = world.declare(THREE)
    await world.until(lambda: world.gateway.routed == three, 60)
    assert two not in world.cluster.revisions()
    assert unharmed(world)


@pytest.mark.case("autoscaler-A15")
async def test_a_start_that_never_ends_is_a_timeout() -> None:
    world = await live()
    two = revision(TWO)
    world.cluster.behaviours[two] = Behaviour(trouble="silent")
    world.declare(TWO)
    await world.until(lambda: world.condition("Ready").get("reason") == "StartTimeout", 130)
    assert world.condition("Ready")["message"].startswith("0 of ")
    assert unharmed(world)


async def test_a_failed_one_that_recovers_goes_on() -> None:
    world = await live()
    two = revision(TWO)
    world.cluster.behaviours[two] = Behaviour(trouble="image")
    world.declare(TWO)
    await world.until(lambda: world.phases().get(two) == "Failed", 50)
    world.cluster.behaviours[two] = Behaviour()
    await world.until(lambda: world.gateway.routed == two, 60)
    await world.until(world.is_ready, 10)
    assert unharmed(world)


@pytest.mark.case("autoscaler-D4")
async def test_too_little_room_for_the_successor_leaves_the_old_one_whole() -> None:
    world = await live()
    one, two = revision(ONE), revision(TWO)
    before = world.cluster.replicas(one)
    world.cluster.behaviours[two] = Behaviour(most=2)
    world.declare(TWO)
    await world.until(lambda: world.phases().get(two) == "Failed", 90)
    assert world.condition("Ready")["reason"] == "Unschedulable"
    assert world.cluster.ready(one) == before
    assert unharmed(world)


async def test_changes_in_a_row_end_at_the_last_and_never_touch_the_serving_one() -> None:
    world = await live()
    one = revision(ONE)
    two = world.declare(TWO)
    await world.run(6)
    assert two in world.cluster.revisions()
    three = world.declare(THREE)
    await world.run(6)
    assert world.cluster.revisions() == {one, three}
    world.declare(ONE)
    await world.run(6)
    assert world.cluster.revisions() == {one}
    three = world.declare(THREE)
    await world.until(lambda: world.gateway.routed == three, 60)
    assert unharmed(world)


async def test_the_first_revision_that_fails_is_told_and_the_next_one_serves() -> None:
    world = World(ONE)
    world.cluster.behaviours[revision(ONE)] = Behaviour(trouble="crash")
    await world.until(lambda: world.condition("Ready").get("reason") == "ModelLoadFailed", 20)
    assert "lightgbm" in world.condition("Ready")["message"]
    assert world.condition("Available")["status"] == "False"
    two = world.declare(TWO)
    await world.until(world.is_ready, 60)
    assert world.cluster.revisions() == {two}


async def test_controllers_that_die_in_a_rollout_go_on_where_they_were() -> None:
    world = await live()
    two = world.declare(TWO)
    await world.run(5)
    world.restart()
    await world.until(lambda: world.gateway.routed == two, 60)
    await world.run(3)
    world.restart()
    await world.until(lambda: world.cluster.revisions() == {two}, 120)
    assert unharmed(world)


async def test_a_gateway_that_does_not_answer_holds_the_move_and_nothing_else() -> None:
    world = await live()
    one, two = revision(ONE), world.declare(TWO)
    world.gateway.applying = False
    await world.until(lambda: world.status().get("trafficRevision") == two, 60)
    await world.run(200)
    assert world.phases() == {one: "Serving", two: "Ready"}
    assert world.condition("Ready")["reason"] == "MovingTraffic"
    world.gateway.applying = True
    await world.until(world.is_ready, 10)
    assert unharmed(world)


async def test_an_outage_of_the_api_server_during_a_rollout_loses_nothing() -> None:
    world = await live()
    two = world.declare(TWO)
    await world.run(5)
    world.cluster.down = True
    await world.run(20)
    world.cluster.down = False
    await world.until(lambda: world.gateway.routed == two, 100)
    assert unharmed(world)


async def test_a_deployment_that_somebody_deletes_comes_back_at_its_size() -> None:
    world = await live()
    one = revision(ONE)
    before = world.cluster.replicas(one)
    world.cluster.remove(DEPLOYMENTS, (NAMESPACE, one))
    await world.run(8)
    assert world.cluster.replicas(one) == before


async def test_what_a_deleted_endpoint_of_the_same_name_left_is_not_touched() -> None:
    world = await live()
    left = world.cluster.objects[DEPLOYMENTS][(NAMESPACE, revision(ONE))]
    owner = [{"uid": "of-a-former-life"}]
    metadata = {"namespace": NAMESPACE, "name": "iris-00000000", "labels": left["metadata"]["labels"]}
    world.cluster.store(DEPLOYMENTS, {"metadata": metadata | {"ownerReferences": owner}, "spec": left["spec"]})
    await world.run(10)
    assert "iris-00000000" in world.cluster.revisions()
    assert set(world.phases()) == {revision(ONE)}


async def test_a_deleted_endpoint_takes_everything_of_it_along() -> None:
    world = await live(0.0)
    world.cluster.remove(MODEL_ENDPOINTS, (NAMESPACE, ENDPOINT))
    assert world.cluster.objects[DEPLOYMENTS] == world.cluster.objects[SERVICES] == {}
    for endpoint, obj in world.autoscaler.due():
        await world.autoscaler.attend(endpoint, obj)
    for key in world.rollout.due():
        await world.rollout.attend(key)
    assert world.cluster.objects[DEPLOYMENTS] == {}
