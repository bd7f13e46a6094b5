"""The fleet that never changes and the one that knows the future."""

import pytest

from simulator.policy import Fleet, Seen
from simulator.rivals.fixed import Clairvoyant, Prompt, Static, ahead, needed


def test_static_is_static() -> None:
    assert Static(7).decide(Seen(5.0, [], Fleet(1, 0), 8)) == 7


def test_a_second_s_need_is_its_load_over_the_target_and_at_least_one() -> None:
    assert needed([1000.0, 0.0, 28.0], 0.2, 5.6) == [36, 1, 1]  # 200 / 5.6 = 35.7; none; 5.6 / 5.6


@pytest.mark.parametrize(
    ("from_s", "to_s", "expected"),
    [(0.0, 2.0, 3), (1.5, 4.0, 9), (4.0, 9.0, 2), (40.0, 50.0, 2)],  # [1, 3]; [3, 2, 9]; [2] to the end; past it
)
def test_the_largest_need_of_the_time_ahead(from_s, to_s, expected) -> None:
    assert ahead([1, 3, 2, 9, 2], from_s, to_s) == expected


def test_it_asks_one_start_up_early() -> None:
    policy = Clairvoyant([1] * 100 + [8] * 100, start_up_s=30.0)
    assert policy.decide(Seen(67.0, [], Fleet(1, 0), 8)) == 1
    assert policy.decide(Seen(69.0, [], Fleet(1, 0), 8)) == 8


def test_the_prompt_one_asks_in_the_second_of_the_need_and_holds_it() -> None:
    policy = Prompt([1] * 100 + [8] + [1] * 100, hold_s=50.0)
    assert [policy.decide(Seen(now_s, [], Fleet(1, 0), 8)) for now_s in (98.0, 100.0, 150.0, 151.0)] == [1, 8, 8, 1]
