"""Windows: means over what is known, service time, and what past demand allows."""

import math
import random

import pytest

from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.window import (
    Demands,
    Means,
    early_growth_rps,
    growth_rps,
    means,
    noise_rps,
    onset,
    surely_first_rps,
)


def samples(*in_flight: float | None, complete: bool = True) -> list[LoadSample]:
    """One a second, the last at second len - 1; None is unknown."""
    return [
        LoadSample(float(at), None if n is None else Load(n, 0.0, n * 5, n * 5, 0.0), complete and n is not None)
        for at, n in enumerate(in_flight)
    ]


def mean_of(given: list[LoadSample], now_s: float, window_s: float) -> float | None:
    found = means(given, now_s, window_s)
    return found.in_flight if found else None


def test_a_mean_is_over_the_window_alone() -> None:
    assert mean_of(samples(100, 100, 1, 2, 3), 4.0, 3.0) == 2.0


@pytest.mark.case("autoscaler-G9")
def test_the_order_of_samples_inside_a_window_does_not_matter() -> None:
    given = samples(1, 2, 3, 4)
    assert means(given, 3.0, 5.0) == means(list(reversed(given)), 3.0, 5.0)


def test_unknown_seconds_are_no_zeros() -> None:
    assert mean_of(samples(10, None, None, 10), 3.0, 5.0) == 10.0


@pytest.mark.case("autoscaler-A6")
def test_a_sample_older_than_the_window_is_no_answer() -> None:
    assert mean_of(samples(10), 6.0, 5.0) is None


def test_nothing_known_is_none() -> None:
    assert means(samples(None, None), 1.0, 5.0) is None


@pytest.mark.case("autoscaler-A7")
def test_an_absurd_sample_is_left_out() -> None:
    given = [*samples(10, 10), LoadSample(2.0, Load(float("nan"), 0.0)), LoadSample(3.0, Load(-5.0, 0.0))]
    assert mean_of(given, 3.0, 5.0) == 10.0


@pytest.mark.parametrize(("least", "expected"), [(2.0, 10.0), (40.0, 25.0)])
def test_an_incomplete_sample_raises_the_mean_and_never_lowers_it(least: float, expected: float) -> None:
    partial = LoadSample(1.0, Load(least, 0.0), complete=False)
    assert mean_of([*samples(10.0), partial], 1.0, 5.0) == expected


def test_means_of_incomplete_samples_alone_are_not_complete() -> None:
    found = means(samples(10, 10, complete=False), 1.0, 5.0)
    assert found is not None
    assert not found.complete


def remembered(*demands: float | None, every_s: float = 5.0, window_s: float = 60.0) -> Demands:
    past = Demands()
    for turn, demand in enumerate(demands):
        if demand is not None:
            past = past.add(turn * every_s, demand, True, window_s, 20.0)
    return past


@pytest.mark.parametrize(
    ("demands", "now_s", "expected"),
    [
        ((10.0, 50.0, 20.0), 10.0, 50.0),
        ((50.0, 10.0, 10.0), 64.0, 10.0),
        ((), 0.0, None),
        ((10.0,), 500.0, None),
        ((1.0, 2.0, 3.0), 10.0, 3.0),
    ],
)
def test_the_peak_is_that_of_the_window(demands: tuple[float, ...], now_s: float, expected: float | None) -> None:
    assert remembered(*demands).maximum(now_s, 60.0) == expected


def test_the_memory_holds_peaks_alone() -> None:
    assert len(remembered(*[float(n % 7) for n in range(1000)]).peaks) <= 7


@pytest.mark.parametrize(
    ("demands", "now_s", "covered"),
    [
        ([1.0] * 13, 60.0, True),
        ([1.0] * 12, 55.0, False),
        ([1.0] * 13, 90.0, False),
        ([1.0, None, None, *[1.0] * 10], 60.0, True),
        ([*[1.0] * 6, *[None] * 5, *[1.0] * 2], 60.0, False),
    ],
    ids=["whole", "too young", "nothing of late", "a short hole", "a long hole"],
)
@pytest.mark.case("autoscaler-G2")
def test_a_window_is_covered_only_if_it_is_known_end_to_end(
    demands: list[float | None], now_s: float, covered: bool
) -> None:
    assert remembered(*demands).covers(now_s, 60.0, 20.0) is covered


def test_an_incomplete_demand_is_a_peak_but_no_knowledge() -> None:
    past = Demands().add(0.0, 50.0, False, 60.0, 20.0)
    assert past.maximum(1.0, 60.0) == 50.0
    assert not past.covers(100.0, 60.0, 20.0)


def arriving(*rps: float, refused: float = 0.0) -> list[LoadSample]:
    return [LoadSample(float(at), Load(1.0, 0.0, each, each - refused, refused)) for at, each in enumerate(rps)]


def test_the_noise_of_arrivals_is_taken_from_successive_differences_so_that_a_step_hardly_moves_it() -> None:
    """8 and 12 by turns: sqrt(4^2 / 2 / 0.623) = 3.58; a step of 100 is one of 59 differences."""
    by_turns = arriving(*([8.0, 12.0] * 30))
    assert noise_rps(by_turns, 59.0, 60.0) == pytest.approx((8 / 0.623) ** 0.5)
    assert noise_rps(arriving(*([0.0] * 30 + [100.0] * 30)), 59.0, 60.0) == 0.0
    assert noise_rps(by_turns[:10], 59.0, 60.0) is None


def test_the_noise_of_normal_arrivals_is_their_standard_deviation_whichever_samples_are_lost() -> None:
    chance = random.Random(1)
    counts = [chance.gauss(1000.0, 50.0) for _ in range(20_000)]
    whole = arriving(*counts)
    assert noise_rps(whole, 20_000.0, 20_001.0) == pytest.approx(50.0, rel=0.02)
    by_two = [LoadSample(at + 1.0, Load(1.0, 0.0, (counts[at] + counts[at + 1]) / 2)) for at in range(0, 20_000, 2)]
    assert noise_rps(by_two, 20_000.0, 20_001.0) == pytest.approx(50.0, rel=0.02)


def test_the_noise_of_arrivals_leaves_out_marked_retries() -> None:
    loads = [Load(1.0, 0.0, 100.0 + more, 0.0, 0.0, retried_rps=more) for more in [0.0, 900.0] * 30]
    given = [LoadSample(float(at), load) for at, load in enumerate(loads)]
    assert noise_rps(given, 59.0, 60.0) == 0.0


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([80.0] * 4 + [100.0] * 4 + [120.0] * 4 + [140.0] * 4 + [160.0] * 4, 20.0),
        ([100.0] * 8 + [150.0] * 4 + [200.0] * 4 + [250.0] * 4, 0.0),
        ([100.0] * 18 + [900.0] * 2, 0.0),
        ([90.0] * 4 + [100.0] * 4 + [120.0] * 4 + [110.0] * 4 + [160.0] * 4, 0.0),
        ([0.0] * 4 + [400.0] * 4 + [2100.0] * 4 + [5200.0] * 4 + [5900.0] * 4, 0.0),
        ([100.0] * 16, None),
    ],
    ids=["a ramp", "three windows of growth", "a step", "noise", "retries", "too little known"],
)
def test_what_keeps_growing_grew_from_each_of_five_windows_to_the_next(
    seconds: list[float], expected: float | None
) -> None:
    assert growth_rps(arriving(*seconds), len(seconds) - 1.0, 4.0) == expected


def test_growth_is_seen_early_only_while_nothing_is_refused() -> None:
    rising = [100.0 + 10.0 * at for at in range(10)]
    assert early_growth_rps(arriving(*rising), 9.0, 2.0) == pytest.approx(20.0)
    assert early_growth_rps(arriving(*rising, refused=1.0), 9.0, 2.0) is None
    assert early_growth_rps(arriving(*rising[:8]), 7.0, 2.0) is None


def test_an_overloads_first_seconds_are_told_while_their_beginning_is_remembered() -> None:
    given = arriving(100.0, 100.0) + [
        LoadSample(2.0 + turn, Load(1.0, 0.0, 500.0 + turn, 100.0, 400.0)) for turn in range(5)
    ]
    assert [load.arrived_rps for load in onset(given, 3)] == [500.0, 501.0, 502.0]
    assert onset(given[2:], 3) == ()
    assert onset(arriving(100.0), 3) == ()


def test_an_incomplete_sample_lowers_no_arrivals_where_it_holds_more() -> None:
    whole = LoadSample(0.0, Load(40.0, 0.0, 1000.0, 200.0, 800.0))
    part = LoadSample(1.0, Load(44.0, 0.0, 100.0, 90.0, 10.0), complete=False)
    found = means([whole, part], 1.0, 5.0)
    assert found == Means(42.0, 0.0, 1000.0, 200.0, 800.0, complete=True, samples=1)


def test_what_is_not_sane_is_no_beginning_of_an_overload() -> None:
    loads = (Load(4.0, 0.0, 9.0, 9.0, 0.0), Load(4.0, 0.0, math.nan, 9.0, 5.0), Load(4.0, 0.0, 14.0, 9.0, 5.0))
    given = [LoadSample(float(second), load) for second, load in enumerate(loads)]
    assert onset(given, 3) == (loads[2],)


def test_what_no_refused_client_can_have_sent_came_for_the_first_time() -> None:
    given = [
        LoadSample(float(at), Load(1.0, 0.0, arrived, 40.0, refused))
        for at, (arrived, refused) in enumerate([(40.0, 0.0), (200.0, 160.0), (360.0, 100.0), (4000.0, 3960.0)])
    ]
    assert surely_first_rps(given) == 3840.0
    assert surely_first_rps(list(reversed(given))) == 3840.0
    assert surely_first_rps(given[:1]) is None
