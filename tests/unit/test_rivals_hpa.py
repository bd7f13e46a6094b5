"""The HPA's formulas, a row a branch, each worked in its comment."""

import pytest

from simulator.policy import Fleet, Sample, Seen
from simulator.rivals.hpa import (
    Hpa,
    HpaOfPods,
    PodMetrics,
    average_value,
    limited,
    limited_by_behavior,
    pods_average,
    stabilised,
)


@pytest.mark.parametrize(
    ("total", "target", "current", "expected"),
    [
        (45, 10, 4, 5),  # |1 - 45/40| = 0.125 > 0.1: ceil(4.5)
        (43, 10, 4, 4),  # 0.075 is within the tolerance
        (37, 10, 4, 4),  # and so it is downwards
        (35, 10, 4, 4),  # 0.125, but ceil(3.5) = 4
        (30, 10, 4, 3),  # 0.25: ceil(3)
        (25, 10, 0, 3),  # nothing to divide by
    ],
)
def test_an_average_value_is_the_total_over_the_target_outside_a_tenth(total, target, current, expected) -> None:
    assert average_value(total, target, current) == expected


@pytest.mark.parametrize(
    ("pods", "current", "expected"),
    [
        (PodMetrics(4, 15.0), 4, 6),  # ratio 1.5 x 4
        (PodMetrics(4, 10.5), 4, 4),  # 1.05: within tolerance
        (PodMetrics(4, 4.0), 4, 2),  # 0.4 x 4 = 1.6
        (PodMetrics(4, 20.0, pending=4), 8, 8),  # up: (80 + 0) / 8 = 10: ratio 1: within tolerance
        (PodMetrics(4, 30.0, pending=4), 8, 12),  # (120 + 0) / 8 = 15: 1.5 x 8
        (PodMetrics(4, 15.0, pending=4), 8, 8),  # (60 + 0) / 8 = 7.5: past 1, no change
        (PodMetrics(4, 4.0, pending=4), 8, 2),  # down: pending ones are set aside: 0.4 x 4 = 1.6
        (PodMetrics(4, 4.0, missing=4), 8, 6),  # down: missing ones at target: (16 + 40) / 8 = 7: 0.7 x 8 = 5.6
        (PodMetrics(4, 30.0, missing=2), 6, 12),  # up: missing ones idle: 120 / 6 = 20: 2 x 6
        (PodMetrics(4, 5.0, missing=8), 6, 6),  # (20 + 80) / 12: 0.83 x 12 = 10 is up where the ratio said down
        (PodMetrics(0, 0.0, pending=3), 3, 3),  # nobody reports
    ],
)
def test_pods_without_a_metric_count_against_the_direction_of_the_change(pods, current, expected) -> None:
    assert pods_average(pods, 10.0, current) == expected


@pytest.mark.parametrize(
    ("current", "desired", "expected"),
    [(1, 100, 4), (3, 100, 6), (10, 15, 15), (10, 2, 2)],  # max(2 x 1, 4); max(2 x 3, 4); below the limit; down is free
)
def test_without_behavior_a_sync_doubles_or_reaches_four(current, desired, expected) -> None:
    assert limited(current, desired) == expected


@pytest.mark.parametrize(
    ("current", "desired", "added", "removed", "expected"),
    [
        (1, 100, 0, 0, 5),  # max(2 x 1, 1 + 4)
        (10, 100, 0, 0, 20),  # max(2 x 10, 10 + 4)
        (12, 100, 4, 0, 16),  # start 8: max(16, 12)
        (12, 100, 12, 0, 12),  # start 0: max(0, 4), but an increase is never a decrease
        (8, 100, 0, 4, 24),  # start 12: those just removed may come back
        (10, 12, 0, 0, 12),  # below the limit
        (10, 0, 0, 0, 0),  # down 100 %
    ],
)
def test_behavior_limits_growth_over_what_stood_15_s_ago(current, desired, added, removed, expected) -> None:
    assert limited_by_behavior(current, desired, added, removed) == expected


@pytest.mark.parametrize(
    ("current", "newest", "recent", "expected"),
    [
        (4, 9, [3, 4], 9),  # up at once
        (9, 3, [9, 5], 9),  # down to the maximum of the window: still 9
        (9, 3, [5, 4], 5),
        (4, 3, [9, 5], 4),  # between the newest and the window's maximum: as it is
    ],
)
def test_behavior_rises_at_once_and_falls_to_the_window_s_maximum(current, newest, recent, expected) -> None:
    assert stabilised(current, newest, recent) == expected


def seen(now_s: float, loads: dict[float, float], fleet: Fleet) -> Seen:
    samples = [Sample(at_s, 0, 0, 0, 0, load, 0.0, 0, 0) for at_s, load in sorted(loads.items())]
    return Seen(now_s, samples, fleet, slots=10)


def constant(load: float) -> dict[float, float]:
    return {float(at_s): load for at_s in range(700)}


def test_load_that_vanished_holds_replicas_for_the_five_minutes_of_the_window() -> None:
    policy = Hpa(utilization=1.0)
    desired = [policy.decide(seen(t, constant(0.0), Fleet(8, 0))) for t in (15.0, 150.0, 300.0, 315.0, 330.0)]
    assert desired == [8, 8, 8, 0, 0]  # the first sight, at 15 s, leaves the window at 315 s


def test_without_behavior_an_earlier_peak_still_raises() -> None:
    plain, with_behavior = Hpa(1.0, behavior=False), Hpa(1.0, behavior=True)
    for policy in (plain, with_behavior):
        assert policy.decide(seen(60.0, constant(90.0), Fleet(4, 0))) == 8  # 9 wanted; 2 x 4
    later = seen(75.0, constant(10.0), Fleet(8, 0))
    assert (plain.decide(later), with_behavior.decide(later)) == (9, 8)


def test_what_came_in_the_last_15_seconds_is_not_seen_yet() -> None:
    loads = {float(at_s): 10.0 if at_s <= 45 else 1000.0 for at_s in range(61)}
    assert Hpa(1.0).decide(seen(60.0, loads, Fleet(1, 0))) == 1


def test_no_metric_no_action() -> None:
    assert Hpa().decide(seen(60.0, {}, Fleet(3, 0))) is None


def test_a_pods_metric_waits_for_those_that_start() -> None:
    assert HpaOfPods(1.0).decide(seen(60.0, constant(80.0), Fleet(4, 4))) == 8  # 80 / 4 = 20 each; with four idle: 10
    assert HpaOfPods(1.0).decide(seen(60.0, constant(80.0), Fleet(4, 0))) == 8  # 20 each: 2 x 4
