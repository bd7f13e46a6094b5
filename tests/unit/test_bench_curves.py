"""Curves of bad requests against cost, as the benchmark compares them."""

import pytest

from tests.bench.autoscaler.curves import Point, Read, bad_at, cost_at, frontier


def point(cost: float, bad: float) -> Point:
    return Point(0.7, cost, bad, 1000, 9, 1.0)


SWEEP = [point(300, 10), point(100, 50), point(200, 60), point(250, 20)]


def test_a_setting_that_costs_more_and_serves_no_better_is_on_no_curve() -> None:
    assert frontier(SWEEP) == [(100, 50), (250, 20), (300, 10)]


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (100, Read(50)),
        (175, Read(35)),  # half-way from 100 to 250: 50 - 30 / 2
        (300, Read(10)),
        (90, Read(50, beyond=True)),  # cheaper than it can be: what its cheapest has, which flatters it
        (400, Read(10, beyond=True)),  # it cannot spend more
    ],
)
def test_bad_requests_at_equal_cost(cost, expected) -> None:
    assert bad_at(SWEEP, cost) == expected


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (35, Read(175)),
        (10, Read(300)),
        (5, Read(300, beyond=True)),  # it never is as good, at any cost it has
        (80, Read(100, beyond=True)),
    ],
)
def test_cost_at_equal_bad_requests(bad, expected) -> None:
    assert cost_at(SWEEP, bad) == expected
