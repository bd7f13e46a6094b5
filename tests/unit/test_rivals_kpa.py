"""Knative's KPA, a row a branch, each worked in its comment."""

import pytest

from simulator.policy import Fleet, Sample, Seen, Waits
from simulator.rivals.kpa import Kpa, Panic, activator_in_path, desired, queue_of, started, target_of, to_zero

CALM = Panic()


@pytest.mark.parametrize(("concurrency", "utilization", "expected"), [(16, 0.7, 11.2), (0.001, 0.7, 0.01)])
def test_the_target_is_a_share_of_the_container_concurrency_and_at_least_a_hundredth(
    concurrency, utilization, expected
) -> None:
    assert target_of(concurrency, utilization) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stable", "panic", "ready", "mode", "now_s", "expected_mode", "expected"),
    [
        (35.0, 39.0, 4, CALM, 0.0, CALM, 4),  # ceil(3.5); 4/4 < 2: calm
        (35.0, 75.0, 4, CALM, 9.0, Panic(9.0, 8), 8),  # ceil(7.5) / 4 = 2.0: panic, the larger
        (95.0, 75.0, 4, CALM, 9.0, Panic(9.0, 10), 10),  # in panic the stable mean may be the larger
        (35.0, 20.0, 4, Panic(9.0, 8), 30.0, Panic(9.0, 8), 8),  # 21 s into it: its peak holds
        (35.0, 90.0, 4, Panic(9.0, 8), 30.0, Panic(30.0, 9), 9),  # over again: renewed, a higher peak
        (35.0, 20.0, 4, Panic(9.0, 8), 69.0, Panic(9.0, 8), 8),  # exactly a stable window: not yet past
        (35.0, 20.0, 4, Panic(9.0, 8), 70.0, CALM, 4),  # past it
        (5.0, 5.0, 8, CALM, 0.0, CALM, 4),  # no lower than half of what is ready
        (0.0, 0.0, 1, CALM, 0.0, CALM, 0),  # half of one is none
        (0.0, 15.0, 0, CALM, 5.0, Panic(5.0, 2), 2),  # none ready counts as one
        (50_000.0, 50_000.0, 4, CALM, 5.0, Panic(5.0, 4000), 4000),  # 5,000, at most 1,000 x 4
    ],
)
def test_a_tick(stable, panic, ready, mode, now_s, expected_mode, expected) -> None:
    assert desired(stable, panic, ready, 10.0, mode, now_s) == (expected_mode, expected)


def test_a_restart_over_several_pods_begins_in_panic() -> None:
    assert started(7, 100.0) == Panic(100.0, 7)
    assert started(1, 100.0) == CALM


@pytest.mark.parametrize(
    ("ready", "panic", "expected"),
    [(20, 100.0, False), (20, 110.0, True), (3, 0.0, True)],  # 320-211-100=9; 320-211-110=-1; 48-211<0
)
def test_the_activator_stands_in_the_path_until_spare_capacity_exceeds_the_burst(ready, panic, expected) -> None:
    assert activator_in_path(ready, 16, panic) is expected


def test_requests_wait_at_the_activator_or_ten_times_a_pod_s_concurrency_at_each_pod() -> None:
    assert queue_of(3, 16, 0.0).bound(3) == 10_000
    direct = queue_of(20, 16, 0.0)
    assert (direct.waits, direct.bound(20)) == (Waits.REPLICA, 3200)


@pytest.mark.parametrize(
    ("idle_s", "active_s", "expected"),
    [(30.0, 100.0, True), (29.0, 100.0, False), (40.0, 60.0, False)],  # grace; grace not over; just woken
)
def test_the_last_pod_stays_for_the_grace_and_for_a_window_after_waking(idle_s, active_s, expected) -> None:
    assert to_zero(idle_s, active_s) is expected


def seen(now_s: float, load: float, fleet: Fleet) -> Seen:
    return Seen(now_s, [Sample(now_s - 1.0, 0, 0, 0, 0, load, 0.0, 0, 0)], fleet, slots=10)


def test_idle_from_the_start_it_goes_to_zero_90_s_after_waking_at_the_earliest() -> None:
    policy = Kpa(1.0)
    asked = {t: policy.decide(seen(float(t), 0.0, Fleet(1, 0))) for t in range(0, 70, 2)}
    assert next(t for t, replicas in asked.items() if replicas == 0) == 62  # idle for 62 s, active for more than 60


def test_starting_pods_are_no_capacity_so_the_panic_is_renewed_while_they_start() -> None:
    policy = Kpa(1.0)
    asked = [policy.decide(seen(float(t), 40.0, Fleet(1, 3))) for t in range(0, 200, 2)]
    assert set(asked) == {4}
    assert policy.decide(seen(240.0, 10.0, Fleet(4, 0))) == 4  # 42 s after the last renewal, at 198 s
    assert policy.decide(seen(260.0, 10.0, Fleet(4, 0))) == 2  # the panic is over: half of 4


def test_without_a_sample_of_the_last_window_nothing_is_decided() -> None:
    assert Kpa().decide(Seen(100.0, [], Fleet(3, 0), 10)) is None
