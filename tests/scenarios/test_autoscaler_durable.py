"""Restarts, take-overs, failing starts and a person's hand, over the production controllers on a fake clock."""

from collections.abc import Callable

import pytest

from controllers.autoscaler.control import Control, Mode, control_text
from controllers.autoscaler.record import Kind, Record, difference, parse_line
from controllers.autoscaler.view import Endpoint
from controllers.kube import CONFIG_MAPS, RESOURCE_QUOTAS, Object
from spec import names
from tests.scenarios.lab.world import ENDPOINT, NAMESPACE, World, endpoint_object

# limit 10, target 8, service time 0.2 s: a replica carries 40 requests a second at its target. Down window 60 s.


def step(before: float, after: float, at_s: float) -> Callable[[float], float]:
    return lambda t: after if t >= at_s else before


async def at(world: World, seconds: float) -> None:
    """So many seconds after the world began."""
    await world.until(lambda: world.now_s - world.started_s >= seconds, 1000)


def replicas(world: World) -> int:
    return world.cluster.replicas(world.gateway.routed or "")


def crash_from(world: World, place: int) -> None:
    """Pods beyond so many crash when they start."""
    behaviour = world.cluster.behaviours[world.gateway.routed or ""]
    behaviour.trouble, behaviour.trouble_from = "crash", place


async def falling(restart: Callable[[World], None] | None, unattended_s: int = 0, *, most: int = 1) -> float:
    """Load falls at 130 s; a new process at 150 s. When replicas are lowered to `most`."""
    world = World(endpoint_object(), rate_rps=step(400, 20, 130))
    await at(world, 150)
    assert replicas(world) >= 10
    if restart is not None:
        await world.unattended(unattended_s)
        restart(world)
    await world.until(lambda: replicas(world) <= most, 300)
    return world.now_s - world.started_s


@pytest.mark.case("autoscaler-G1")
@pytest.mark.case("autoscaler-G2")
@pytest.mark.case("autoscaler-G6")
async def test_a_new_process_lowers_replicas_when_the_old_one_would_have() -> None:
    undisturbed = await falling(None)
    assert abs(await falling(World.restart) - undisturbed) <= 15


async def test_a_gap_is_bridged_by_the_mean_that_the_counters_tell() -> None:
    """Kept at 120 s, a new process at 168 s: 10 s of 400 and 38 s of 20 req/s are a mean of 20 in flight."""
    undisturbed = await falling(None, most=3)
    assert -15 <= await falling(World.restart, 18, most=3) - undisturbed <= 6


@pytest.mark.case("autoscaler-G2")
async def test_without_a_checkpoint_nothing_is_lowered_for_one_window() -> None:
    def lose_all(world: World) -> None:
        world.cluster.objects[CONFIG_MAPS].clear()
        world.restart()

    assert 150 + 60 <= await falling(lose_all) <= 150 + 60 + 15


async def test_a_gap_that_no_counter_tells_of_is_a_hole() -> None:
    def all_anew(world: World) -> None:
        world.gateway.forget()
        world.restart()

    assert await falling(all_anew, 18, most=3) >= 168 + 60


async def test_a_process_that_is_told_to_end_keeps_the_last_second() -> None:
    world = World(endpoint_object(), rate_rps=step(20, 400, 100))
    await at(world, 119)
    await world.checkpoints.save()
    world.restart()
    await world.run(2)
    checkpoint = world.checkpoints.find((NAMESPACE, ENDPOINT), world.cluster.endpoint(ENDPOINT)["metadata"]["uid"])
    assert checkpoint is not None
    assert checkpoint.written_s == world.now_s - 2
    assert replicas(world) >= 10


@pytest.mark.case("autoscaler-C8")
async def test_while_pods_fail_to_start_no_more_are_asked_for_and_one_is_tried_now_and_then() -> None:
    world = World(endpoint_object(), rate_rps=step(20, 400, 100))
    await at(world, 99)
    name = world.gateway.routed or ""
    crash_from(world, 3)
    await at(world, 125)
    asked = replicas(world)
    assert world.condition("CircuitOpen")["status"] == "True"
    assert world.condition("Scaled")["reason"] == "CircuitOpen"
    await world.run(120)
    assert replicas(world) <= asked + 3
    world.cluster.behaviours[name].trouble = None
    await world.run(60)
    assert replicas(world) >= 10
    assert world.condition("CircuitOpen") == {}


async def test_an_open_circuit_is_known_to_the_next_process() -> None:
    world = World(endpoint_object(), rate_rps=step(20, 400, 100))
    await at(world, 99)
    crash_from(world, 3)
    await at(world, 122)
    asked = replicas(world)
    world.restart()
    await world.run(5)
    assert replicas(world) == asked


def hold(world: World, control: Control | str | None) -> None:
    """What the command line does."""
    text = control_text(control) if isinstance(control, Control) else control
    world.annotate(names.ANNOTATION_CONTROL, text)


async def settled() -> World:
    """Four replicas by the floor, and a load from 100 s on that needs ten."""
    world = World(endpoint_object(low=25), rate_rps=step(60, 400, 100))
    await at(world, 90)
    assert replicas(world) == 4
    return world


async def test_a_paused_endpoint_keeps_its_replicas_until_it_is_resumed() -> None:
    world = await settled()
    hold(world, Control(Mode.PAUSE))
    await at(world, 160)
    assert replicas(world) == 4
    assert (world.condition("Paused")["status"], world.condition("Scaled")["reason"]) == ("True", "Paused")
    hold(world, None)
    await world.run(10)
    assert replicas(world) >= 10
    assert world.condition("Paused") == {}


async def test_a_dry_run_tells_what_would_be_and_does_nothing() -> None:
    world = await settled()
    hold(world, Control(Mode.DRY_RUN))
    await at(world, 160)
    assert replicas(world) == 4
    said = world.condition("DryRun")["message"].rsplit(" ", 1)
    assert (said[0].endswith("the load asks for"), int(said[1]) >= 10) == (True, True)


async def test_an_override_acts_at_once_within_the_range_and_ends_by_itself() -> None:
    world = await settled()
    hold(world, Control(Mode.SCALE, 7, world.now_s + 40))
    assert await world.until(lambda: replicas(world) == 7, 5) <= 2
    assert "7 replicas until" in world.condition("Overridden")["message"]
    await world.until(lambda: replicas(world) != 7, 60)
    assert 130 <= world.now_s - world.started_s <= 137
    assert replicas(world) >= 10
    await world.run(1)
    assert world.condition("Overridden") == {}


async def test_a_hold_outlives_the_process() -> None:
    world = await settled()
    hold(world, Control(Mode.SCALE, 7, world.now_s + 400))
    await world.run(5)
    world.restart()
    await world.run(60)
    assert replicas(world) == 7


async def test_a_hold_that_cannot_be_read_is_ignored_and_told() -> None:
    world = await settled()
    hold(world, "stop!")
    await at(world, 130)
    assert replicas(world) >= 10
    assert "'stop!' is no JSON" in world.condition("ControlIgnored")["message"]
    assert world.condition("Scaled")["reason"] == "FollowsLoad"


@pytest.mark.case("autoscaler-D6")
async def test_a_new_version_while_paused_gets_what_the_old_one_has() -> None:
    world = await settled()
    hold(world, Control(Mode.PAUSE))
    await at(world, 130)
    world.declare(endpoint_object("2", low=25))
    await world.until(lambda: world.phases().get(world.gateway.routed or "") == "Serving" and world.is_ready(), 120)
    await world.run(5)
    assert replicas(world) == 4


async def test_a_quota_bounds_what_is_asked_for_and_is_told() -> None:
    world = await settled()
    quota = {
        "metadata": {"namespace": NAMESPACE, "name": "quota"},
        "status": {"hard": {"pods": "6"}, "used": {"pods": "4"}},
    }
    world.cluster.store(RESOURCE_QUOTAS, quota)
    await world.until(lambda: replicas(world) > 4, 60)
    assert replicas(world) == 6
    world.cluster.store(RESOURCE_QUOTAS, quota | {"status": {"hard": {"pods": "6"}, "used": {"pods": "6"}}})
    await world.run(10)
    assert replicas(world) == 6
    assert (world.condition("AtBudget")["status"], world.condition("Scaled")["reason"]) == ("True", "AtBudget")


async def test_every_change_is_recorded_and_all_records_decide_the_same_again() -> None:
    world = await settled()
    hold(world, Control(Mode.SCALE, 7, world.now_s + 40))
    await at(world, 160)
    records = [parse_line(line) for line in world.journal.lines]
    assert [difference(record) for record in records] == [None] * len(records)
    changes = [record for record in records if isinstance(record, Record) and record.kind is Kind.CHANGE]
    decided = [d["to"] for d in world.status()["autoscaler"]["decisions"]]
    assert [r.turn.verdict.decisions[0].desired for r in changes] == decided[::-1]
    assert any(record.kind is Kind.SNAPSHOT for record in records)


async def test_a_process_that_stands_by_records_and_keeps_nothing() -> None:
    world = await settled()
    world.lease.mine = False
    before, writes = len(world.journal.lines), len(world.cluster.writes)
    await at(world, 200)
    assert (len(world.journal.lines), len(world.cluster.writes)) == (before, writes)
    world.lease.mine = True
    assert await world.until(lambda: replicas(world) >= 10, 10) <= 4, "who takes over does not wait for its next cycle"


async def test_an_endpoint_without_load_is_looked_at_less_and_wakes_as_fast_as_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(endpoint_object(), rate_rps=step(0, 400, 300))
    attended: list[float] = []
    attend = world.autoscaler.attend

    async def noted(endpoint: Endpoint, obj: Object) -> None:
        attended.append(world.now_s)
        await attend(endpoint, obj)

    monkeypatch.setattr(world.autoscaler, "attend", noted)

    async def cycles(seconds: int) -> int:
        before = len(attended)
        await world.run(seconds)
        return len(attended) - before

    await at(world, 150)
    assert await cycles(60) in (1, 2)
    await at(world, 300)
    assert await world.until(lambda: replicas(world) >= 10, 30) <= 12
    await world.run(60)
    assert await cycles(60) == 12, "overload is over"


async def test_ten_quiet_minutes_are_a_handful_of_cycles_without_a_hole_in_what_is_known(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(endpoint_object())
    await at(world, 150)
    attended: list[float] = []
    attend = world.autoscaler.attend

    async def noted(endpoint: Endpoint, obj: Object) -> None:
        attended.append(world.now_s)
        await attend(endpoint, obj)

    monkeypatch.setattr(world.autoscaler, "attend", noted)
    await world.run(600)
    assert 2 <= len(attended) <= 5
    (kept,) = world.autoscaler.checkpoints().values()
    age_s = 1_000.0 + world.now_s - world.started_s - (kept.remembered.state.known_at_s or 0.0)
    assert age_s <= 61
    assert kept.remembered.state.demands.known_since_s == pytest.approx(1_005, abs=10), "unbroken from the start"
    assert "not looked at for long" not in caplog.text


async def test_another_hand_ends_a_rest() -> None:
    world = World(endpoint_object())
    await at(world, 200)
    (name,) = world.cluster.revisions()
    deployment = world.cluster.workload(name)
    assert deployment is not None
    world.cluster.scale(deployment, 7, "kubectl")
    assert await world.until(lambda: replicas(world) == 1, 30) <= 6
    assert world.condition("Scaled")["reason"] == "ForeignWriter"
    assert await world.until(lambda: world.condition("Scaled")["status"] == "True", 100) <= 70
