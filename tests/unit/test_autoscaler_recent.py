"""What is expected of the next start-up time, from the last half hour."""

import pytest

from controllers.autoscaler.recent import Recent, quantile
from controllers.autoscaler.settings import Settings

SETTINGS = Settings()


def after(demands: list[float], step_s: float = 10.0) -> Recent:
    recent = Recent()
    for turn, demand in enumerate(demands):
        recent = recent.add(turn * step_s, demand, 10, SETTINGS.recent_s)
    return recent


def test_ten_seconds_are_one_entry_with_their_largest_demand_and_the_oldest_go() -> None:
    assert after([1.0, 3.0, 2.0, 4.0], step_s=5.0).highs == ((0.0, 3.0), (10.0, 4.0))
    kept = after([float(turn) for turn in range(200)]).highs
    assert (kept[0], kept[-1], len(kept)) == ((200.0, 20.0), (1990.0, 199.0), 180)


def test_under_quite_another_limit_memory_begins_anew() -> None:
    history = after([40.0] * 30)
    assert len(history.add(300.0, 40.0, 12, 1800.0).highs) == 31
    assert history.add(300.0, 10.0, 13, 1800.0) == Recent(((300.0, 10.0),), 13)


def test_bursts_that_come_again_are_kept_ready() -> None:
    """30 s of 80 in every five minutes over a base of 10: a tenth of all half minutes."""
    history = after(([10.0] * 27 + [80.0] * 3) * 6)
    assert history.expected(10.0, 30.0, SETTINGS) == 80.0
    assert history.expected(95.0, 30.0, SETTINGS) == 95.0, "never less than the present"


def test_a_step_that_came_once_is_not_expected_again() -> None:
    history = after([10.0] * 100 + [80.0] * 80)
    assert history.expected(80.0, 30.0, SETTINGS) == 80.0
    gone = after([10.0] * 60 + [80.0] * 60 + [10.0] * 60)
    assert gone.expected(10.0, 30.0, SETTINGS) == 10.0


def test_a_burst_that_was_over_within_a_start_up_time_is_expected_again_after_one() -> None:
    """Of 20 half minutes the largest is among the 5 %, of 60 it is not any more."""
    once = [10.0] * 30 + [80.0] * 3 + [10.0] * 24
    assert after(once).expected(10.0, 30.0, SETTINGS) == 80.0
    assert after(once + [10.0] * 123).expected(10.0, 30.0, SETTINGS) == 10.0


def test_a_single_burst_that_does_not_double_what_is_there_may_be_chance() -> None:
    assert after([60.0] * 30 + [100.0] * 3 + [60.0] * 24).expected(60.0, 30.0, SETTINGS) == 60.0


def test_a_crowd_that_leaves_slowly_is_not_expected_again() -> None:
    crowd = [10.0] * 30 + [10.0 + 70.0 * 0.9**turn for turn in range(27)]
    assert after(crowd).expected(15.0, 30.0, SETTINGS) == 15.0


def test_a_slow_wave_is_followed_and_not_held_at_its_crest() -> None:
    """From 100 down by 0.4 every 10 s: nothing rose lately, so nothing above the present is expected."""
    assert after([100.0 - 0.4 * turn for turn in range(180)]).expected(28.4, 30.0, SETTINGS) == 28.4


def test_a_steady_rise_is_met_a_start_up_time_ahead_but_not_beyond_what_was_seen() -> None:
    rising = after([10.0 + turn for turn in range(180)])
    assert rising.expected(150.0, 30.0, SETTINGS) == 154.0
    assert rising.expected(189.0, 30.0, SETTINGS) == 189.0


@pytest.mark.parametrize("demands", [[], [0.0] * 180, [10.0] * 15], ids=["nothing", "idle", "too little"])
def test_without_enough_of_a_past_nothing_is_expected(demands: list[float]) -> None:
    assert after(demands).expected(5.0, 30.0, SETTINGS) is None


@pytest.mark.parametrize(("share", "expected"), [(0.95, 19), (0.951, 20), (1.0, 20), (0.0, 1), (0.05, 1)])
def test_a_quantile_is_the_smallest_value_that_the_share_does_not_exceed(share: float, expected: int) -> None:
    assert quantile(list(range(20, 0, -1)), share) == expected
