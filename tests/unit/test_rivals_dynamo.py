"""The planner's two loops, a row a branch, each worked in its comment."""

import pytest

from simulator.policy import Fleet, Sample, Seen
from simulator.rivals.dynamo import Dynamo, Trend, followed, lower_bound, step


@pytest.mark.parametrize(
    ("in_flight", "waiting", "expected"),
    [
        (60, 8, 1),  # 68 / 64 > 1
        (64, 0, 0),  # exactly full
        (0, 64, 1),  # waiting 64 / 64 >= 1
        (32, 0, -1),  # 0.5 < 0.6, none waits
        (40, 0, 0),  # 0.625
        (30, 7, 0),  # 0.58 < 0.6 and 0.109 >= 0.1: not down
    ],
)
def test_a_fast_step_is_one_up_one_down_or_none(in_flight, waiting, expected) -> None:
    assert step(in_flight, waiting, 4, 16) == expected


def test_a_sweep_shifts_the_thresholds() -> None:
    assert step(40, 0, 4, 16, scale=0.5) == 1  # 40 / 32


@pytest.mark.parametrize(("rate", "expected"), [(130.0, 3), (0.0, 1)])  # 130 / 56 = 2.3
def test_the_slow_loop_s_bound_is_the_forecast_over_an_engine_s_rate_and_at_least_one(rate, expected) -> None:
    assert lower_bound(rate, 56.0) == expected


def test_the_filter_splits_an_error_between_level_and_slope() -> None:
    trend = followed(Trend(100.0), 124.0)
    # cov (10 + 0 + 1 + 1, 0 + 1, 1 + 0.1); gains 12/22, 1/22
    assert trend.level == pytest.approx(100 + 24 * 12 / 22)
    assert trend.slope == pytest.approx(24 / 22)
    assert trend.cov == pytest.approx((10 / 22 * 12, 10 / 22, 1.1 - 1 / 22))


def test_the_first_interval_is_taken_as_it_is() -> None:
    assert followed(None, 42.0) == Trend(42.0)


@pytest.mark.parametrize(
    ("trend", "expected"),
    [(Trend(100.0, 7.0, points=4), 100.0), (Trend(100.0, 7.0, points=5), 107.0), (Trend(3.0, -9.0, points=9), 0.0)],
)
def test_the_slope_counts_from_five_points_on_and_a_forecast_is_never_negative(trend, expected) -> None:
    assert trend.forecast == expected


def seen(now_s: float, load: float, rate: int, fleet: Fleet, known: bool = True) -> Seen:
    ends = (now_s - 179 + s for s in range(180))
    samples = [Sample(end, rate, 0, 0, rate, min(load, 10.0 * fleet.ready), 0.0, 0, 0, None, known) for end in ends]
    return Seen(now_s, samples, fleet, slots=10)


def test_it_holds_while_replicas_start() -> None:
    assert Dynamo(0.2).decide(seen(5.0, 1000.0, 100, Fleet(2, 1))) is None


def test_after_three_minutes_the_forecast_is_a_floor_under_the_fast_loop() -> None:
    policy = Dynamo(0.2, utilization=0.8)  # an engine does 0.8 x 10 / 0.2 = 40 req/s
    assert policy.decide(seen(5.0, 1.0, 150, Fleet(2, 0))) == 1
    assert policy.decide(seen(180.0, 1.0, 150, Fleet(2, 0))) == 4  # 150 / 40 = 3.75


def test_unknown_metrics_are_zero_load_to_the_forecast_and_nothing_to_the_fast_loop() -> None:
    policy = Dynamo(0.2)
    assert policy.decide(seen(180.0, 1.0, 150, Fleet(2, 0), known=False)) is None
    assert policy._bound == 1
