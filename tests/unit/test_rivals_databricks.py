"""The autoscaler that Databricks describes, each stated number a row."""

import pytest

from simulator.policy import Fleet, Sample, Seen
from simulator.rivals.databricks import AsDescribed, capped, recommended


def test_the_recommendation_is_requests_over_target_rounded_up() -> None:
    assert recommended(96.0, 11.2) == 9  # 8.57
    assert recommended(0.0, 11.2) == 0


@pytest.mark.parametrize(
    ("issued", "wanted", "expected"),
    [(3, 40, 12), (3, 11, 11), (0, 40, 4), (10, 4, 4)],  # 4 x 3; below the cap; as from one; down is not its business
)
def test_growth_of_a_cycle_is_capped_by_what_is_there(issued, wanted, expected) -> None:
    assert capped(issued, wanted, 4.0) == expected


def test_a_cap_below_one_more_still_lets_it_grow() -> None:
    assert capped(1, 9, 1.5) == 2


def seen(now_s: float, loads: dict[float, float], fleet: Fleet) -> Seen:
    return Seen(now_s, [Sample(t, 0, 0, 0, 0, load, 0.0, 0, 0) for t, load in loads.items()], fleet, slots=10)


def test_ten_of_the_last_twenty_seconds_show_half_of_a_step() -> None:
    loads = {float(t): 0.0 if t <= 90 else 40.0 for t in range(60, 101)}
    assert AsDescribed(1.0).decide(seen(100.0, loads, Fleet(1, 0))) == 2  # 10 x 40 / 20 = 20


def test_down_it_goes_to_the_largest_recommendation_of_five_minutes() -> None:
    policy = AsDescribed(1.0)
    assert policy.decide(seen(0.0, {0.0: 100.0}, Fleet(4, 0))) == 10
    assert policy.decide(seen(5.0, {5.0: 60.0}, Fleet(10, 0))) == 10
    assert policy.decide(seen(299.0, {299.0: 10.0}, Fleet(10, 0))) == 10
    assert policy.decide(seen(301.0, {301.0: 10.0}, Fleet(10, 0))) == 6


def test_nothing_known_nothing_changed() -> None:
    assert AsDescribed().decide(seen(5.0, {}, Fleet(4, 0))) is None
