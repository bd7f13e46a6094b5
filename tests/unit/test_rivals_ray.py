"""Ray Serve's policy, a row a branch, each worked in its comment."""

import pytest

from simulator.policy import Fleet, Sample, Seen
from simulator.rivals.ray import Insistence, RayServe, desired, insisted


@pytest.mark.parametrize(
    ("total", "running", "factor", "expected"),
    [
        (100.0, 5, 1.0, 13),  # 100 / 8 = 12.5
        (32.0, 5, 0.5, 4),  # 5 + 0.5 x (4 - 5) = 4.5 -> 5 would stall: 4
        (16.0, 5, 0.5, 4),  # 5 + 0.5 x (2 - 5) = 3.5 -> 4
        (100.0, 5, 2.0, 20),  # 5 + 2 x 7.5
        (40.0, 5, 1.0, 5),
        (0.0, 5, 1.0, 0),
    ],
)
def test_the_difference_to_running_is_scaled_and_rounded_up(total, running, factor, expected) -> None:
    assert desired(total, running, 8.0, factor) == expected


@pytest.mark.parametrize(
    ("held", "wanted", "loops", "expected"),
    [
        (Insistence(299), 9, 1, (Insistence(300), 5)),  # 300 loops are not more than 30 s
        (Insistence(300), 9, 1, (Insistence(), 9)),  # 301 are; the last loop's value, and the count anew
        (Insistence(250), 3, 1, (Insistence(-1), 5)),  # an opposite wish restarts it
        (Insistence(250), 5, 1, (Insistence(), 5)),  # none zeroes it
        (Insistence(-6000), 3, 1, (Insistence(), 3)),  # 6,001 downwards: 600 s
        (Insistence(-5995), 3, 5, (Insistence(-6000), 5)),
        (Insistence(-300), 9, 10, (Insistence(10), 5)),
    ],
)
def test_a_wish_must_insist_for_thirty_seconds_up_and_six_hundred_down(held, wanted, loops, expected) -> None:
    assert insisted(held, 5, wanted, loops) == expected


def seen(now_s: float, load: float, fleet: Fleet) -> Seen:
    return Seen(now_s, [Sample(now_s - s, 0, 0, 0, 0, load, 0.0, 0, 0) for s in range(30, -1, -1)], fleet, slots=10)


def test_a_step_is_answered_after_thirty_seconds_of_loops() -> None:
    policy = RayServe(1.0)
    asked = [policy.decide(seen(float(t), 50.0, Fleet(1, 0))) for t in range(60)]
    assert asked.index(5) == 30  # 31 decisions of ten loops: the first multiple above 300


def test_a_handle_s_push_of_ten_seconds_ago_is_what_is_seen() -> None:
    policy = RayServe(1.0)
    policy.decide(seen(0.0, 10.0, Fleet(1, 0)))
    for t in range(1, 10):
        policy.decide(seen(float(t), 90.0, Fleet(1, 0)))
    assert policy._held == Insistence()
    policy.decide(seen(10.0, 90.0, Fleet(1, 0)))
    assert policy._held == Insistence(10)


def test_from_zero_it_starts_at_once_and_below_its_minimum_it_never_goes() -> None:
    assert RayServe(1.0).decide(seen(0.0, 50.0, Fleet(0, 0))) == 1
    policy = RayServe(1.0)
    assert {policy.decide(seen(float(t), 0.0, Fleet(1, 0))) for t in range(700)} == {1}
