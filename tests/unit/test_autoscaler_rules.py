"""The rules one by one, and their order."""

from dataclasses import replace

import pytest

from controllers.autoscaler.demand import Demand
from controllers.autoscaler.rules import (
    ORDER,
    Outcome,
    Reason,
    Situation,
    budget,
    bursts,
    ceiling,
    floor,
    growth_cap,
    merge,
    n_minus_1,
    numbers,
    raw,
    stabilise,
)
from controllers.autoscaler.settings import Settings, settings_from
from spec.sizing import REPLICAS_MAX, ceiling_replicas, floor_replicas, replicas_for, target_of

SITUATION = Situation(
    issued=4,
    limit=12,
    target=10.0,
    declared=10.0,
    eased=10.0,
    demand=Demand(35.0, True, False),
    peak=35.0,
    covered=True,
    expected=None,
    concurrency_min=1,
    concurrency_max=10_000,
    budget=None,
    settings=Settings(),
)


def at(**changes: object) -> Situation:
    return replace(SITUATION, **changes)  # type: ignore[arg-type]


def known(requests: float, *, complete: bool = True, overloaded: bool = False) -> Demand:
    return Demand(requests, complete, overloaded)


UNKNOWN = Demand(None, False, False)


def decided(**changes: object) -> Outcome:
    situation = at(**changes)
    return merge(situation, ORDER, situation.issued, Reason.STEADY)


@pytest.mark.parametrize(
    ("requests", "target", "expected"),
    [
        (0.0, 51.2, 0),
        (0.001, 51.2, 1),
        (51.2, 51.2, 1),
        (51.3, 51.2, 2),
        (96.0, 51.2, 2),
        (0.3, 0.1, 3),
        (7.0, 1.0, 7),
        (-5.0, 1.0, 0),
        (float("inf"), 1.0, REPLICAS_MAX),
        (float("nan"), 1.0, REPLICAS_MAX),
        (1e300, 1e-300, REPLICAS_MAX),
        (214_748_364.0, 0.1, REPLICAS_MAX),
        (5.0, 0.0, REPLICAS_MAX),
    ],
)
@pytest.mark.case("autoscaler-A9")
@pytest.mark.case("autoscaler-B1")
@pytest.mark.case("autoscaler-B2")
@pytest.mark.case("autoscaler-B6")
@pytest.mark.case("autoscaler-F12")
def test_replicas_are_the_demand_over_the_target_saturating(requests: float, target: float, expected: int) -> None:
    assert replicas_for(requests, target) == expected


@pytest.mark.parametrize(
    ("limit", "utilization", "expected"), [(64, 0.8, 51.2), (1, 0.8, 0.8), (64, 1.0, 60.8), (0, 0.8, 0.8)]
)
@pytest.mark.case("autoscaler-F4")
def test_a_target_is_always_below_the_limit_and_above_zero(limit: int, utilization: float, expected: float) -> None:
    assert target_of(limit, utilization) == pytest.approx(expected)
    assert 0 < target_of(limit, utilization) < max(limit, 1)


@pytest.mark.parametrize(("low", "high", "expected"), [(1, 64, (1, 2)), (100, 100, (2, 2)), (0, 1, (1, 1))])
def test_floor_and_ceiling_are_in_requests_and_at_least_one_replica(
    low: int, high: int, expected: tuple[int, int]
) -> None:
    assert (floor_replicas(low, 51.2), ceiling_replicas(high, 51.2)) == expected


@pytest.mark.parametrize(
    ("demand", "issued", "replicas", "reason"),
    [
        (known(35.0), 4, 4, Reason.STEADY),
        (known(41.0), 4, 5, Reason.LOAD),
        (known(41.0, overloaded=True), 4, 5, Reason.OVERLOAD),
        (known(10.0), 4, 1, Reason.LOAD_FELL),
        (UNKNOWN, 4, 4, Reason.UNKNOWN),
    ],
)
def test_raw_is_the_formula_or_what_was_asked_for(demand: Demand, issued: int, replicas: int, reason: Reason) -> None:
    bound = raw(at(demand=demand, issued=issued), issued)
    assert bound is not None
    assert (bound.replicas, bound.reason) == (replicas, reason)


@pytest.mark.parametrize(
    ("changes", "replicas", "expected"),
    [
        ({}, 5, None),
        ({"peak": 5.0}, 1, None),
        ({"peak": 25.0}, 1, (3, Reason.RECENT_PEAK)),
        ({"peak": 900.0}, 1, (4, Reason.RECENT_PEAK)),
        ({"covered": False}, 1, (4, Reason.HISTORY)),
        ({"peak": None}, 1, (4, Reason.HISTORY)),
        ({"demand": known(1.0, complete=False)}, 1, (4, Reason.UNKNOWN)),
    ],
    ids=["a rise", "nothing recent", "a peak", "a peak above all", "no history", "no peak", "incomplete"],
)
@pytest.mark.case("autoscaler-A4")
@pytest.mark.case("autoscaler-F1")
def test_a_decrease_stops_at_the_windows_peak_and_needs_a_known_window(
    changes: dict[str, object], replicas: int, expected: tuple[int, Reason] | None
) -> None:
    bound = stabilise(at(**changes), replicas)
    assert (None if bound is None else (bound.replicas, bound.reason)) == expected


@pytest.mark.parametrize(
    ("peak", "proposed", "expected"),
    [(27.0, 3, None), (27.1, 3, 4), (28.0, 3, 4), (45.0, 3, 4), (9.0, 1, None), (9.1, 1, 2)],
)
@pytest.mark.case("autoscaler-F14")
def test_the_replicas_left_carry_the_peak_within_the_headroom(peak: float, proposed: int, expected: int | None) -> None:
    bound = n_minus_1(at(peak=peak), proposed)
    assert (None if bound is None else bound.replicas) == expected


@pytest.mark.parametrize(
    ("noise", "requests", "expected"),
    [(0.0, 41.0, 5), (2.0, 41.0, 4), (2.0, 42.1, 5), (99.0, 44.0, 4), (99.0, 44.1, 5)],
)
@pytest.mark.case("autoscaler-F2")
def test_more_replicas_are_asked_for_only_beyond_the_noise_and_a_tenth_is_the_most_that_passes_for_it(
    noise: float, requests: float, expected: int
) -> None:
    """4 replicas at 10 carry 40."""
    bound = raw(at(demand=Demand(requests, True, False, noise)), 4)
    assert bound is not None
    assert bound.replicas == expected


@pytest.mark.parametrize(
    ("expected", "issued", "proposed", "least"),
    [
        (None, 4, 1, None),
        (45.0, 4, 4, None),
        (45.7, 4, 4, 5),
        (95.0, 4, 4, 9),
        (41.0, 4, 3, 4),
        (41.1, 5, 4, 5),
        (30.7, 4, 3, None),
        (30.8, 4, 3, 4),
        (5.0, 4, 1, None),
    ],
)
def test_what_is_expected_fits_under_the_limits_and_after_a_decrease_within_their_headroom(
    expected: float | None, issued: int, proposed: int, least: int | None
) -> None:
    """Limit 12 at 0.95: 11.4 a replica, 10.26 after a decrease: 4 replicas hold 45.6, and 41.04 with headroom."""
    bound = bursts(at(expected=expected, issued=issued), proposed)
    assert (None if bound is None else bound.replicas) == least


def test_a_decrease_rests_on_the_eased_target() -> None:
    """The target has doubled to 20; the peak of 35 keeps 4 replicas at 10 for now, and 2 later."""
    situation = at(target=20.0, issued=4, demand=known(35.0))
    assert (bound := stabilise(situation, 2)) is not None and bound.replicas == 4
    assert (bound := n_minus_1(replace(situation, eased=20.0), 2)) is None or bound.replicas == 2


@pytest.mark.parametrize(
    ("issued", "proposed", "expected"), [(1, 36, 10), (10, 36, None), (4, 41, 40), (0, 500, None), (1, 2, None)]
)
@pytest.mark.case("autoscaler-B4")
@pytest.mark.case("autoscaler-F3")
@pytest.mark.case("autoscaler-F11")
def test_growth_is_bounded_by_what_was_asked_for_and_waking_is_exempt(
    issued: int, proposed: int, expected: int | None
) -> None:
    bound = growth_cap(at(issued=issued), proposed)
    assert (None if bound is None else bound.replicas) == expected


def test_a_growth_factor_near_one_still_lets_one_more_through() -> None:
    bound = growth_cap(at(issued=3, settings=Settings(growth=1.1)), 9)
    assert bound is not None
    assert bound.replicas == 4


def test_the_bounds_hold_whatever_came_before() -> None:
    assert (bound := floor(at(concurrency_min=100), 4)) is not None and bound.replicas == 10
    assert (bound := ceiling(at(concurrency_max=25), 4)) is not None and bound.replicas == 3
    assert (bound := budget(at(budget=2), 4)) is not None and bound.replicas == 2
    assert floor(SITUATION, 4) is ceiling(SITUATION, 4) is budget(SITUATION, 4) is None


@pytest.mark.parametrize(
    ("ready", "replicas", "left"),
    [
        ((0, 1, 2, 3), 2, 2),
        ((1, 2, 3), 1, 2),
        ((3,), 1, 4),
        ((0, 3), 2, 4),
        ((1,), 2, 2),
        ((1,), 3, 3),
        ((), 1, 1),
        ((2,), 4, 4),
        ((5,), 1, 4),
    ],
)
def test_a_decrease_of_groups_leaves_as_many_that_are_ready(ready: tuple[int, ...], replicas: int, left: int) -> None:
    """Of four, by number; the highest go first. A fifth is on its way out, and more are never asked for."""
    bound = numbers(at(numbers=ready), replicas)
    assert (bound.replicas if bound is not None else replicas) == left


def test_the_order_is_fixed() -> None:
    names = [rule.__name__ for rule in ORDER]
    assert names == ["raw", "stabilise", "n_minus_1", "bursts", "growth_cap", "floor", "numbers", "ceiling", "budget"]


@pytest.mark.parametrize(
    ("changes", "replicas", "reason"),
    [
        ({}, 4, Reason.STEADY),
        ({"demand": known(95.0), "peak": 95.0}, 10, Reason.LOAD),
        ({"demand": known(9000.0), "peak": 9000.0}, 40, Reason.GROWTH_CAP),
        ({"demand": known(9000.0), "peak": 9000.0, "concurrency_max": 200}, 20, Reason.CEILING),
        ({"demand": known(9000.0), "peak": 9000.0, "budget": 6}, 6, Reason.BUDGET),
        ({"demand": known(1.0), "peak": 1.0}, 1, Reason.LOAD_FELL),
        ({"demand": known(1.0), "peak": 1.0, "concurrency_min": 25}, 3, Reason.FLOOR),
        ({"demand": UNKNOWN}, 4, Reason.UNKNOWN),
        ({"demand": UNKNOWN, "concurrency_min": 100}, 10, Reason.FLOOR),
        ({"demand": UNKNOWN, "concurrency_max": 20}, 2, Reason.CEILING),
        ({"demand": known(1.0), "peak": 1.0, "concurrency_min": 500, "budget": 5}, 5, Reason.BUDGET),
    ],
)
@pytest.mark.case("autoscaler-A14")
@pytest.mark.case("autoscaler-B3")
@pytest.mark.case("autoscaler-C9")
def test_the_merge_gives_the_last_rule_that_moved_the_number(
    changes: dict[str, object], replicas: int, reason: Reason
) -> None:
    outcome = decided(**changes)
    assert (outcome.replicas, outcome.reason) == (replicas, reason)


def test_each_rules_word_is_kept_in_order() -> None:
    outcome = decided(demand=known(9000.0), peak=9000.0, concurrency_max=200)
    assert outcome.trace == (("raw", 900), ("growth_cap", 40), ("ceiling", 20))


@pytest.mark.case("autoscaler-A20")
def test_a_setting_that_is_not_above_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="utilization must be above zero"):
        settings_from({"utilization": 0})
    with pytest.raises(ValueError, match="down_window_s"):
        settings_from({"down_window_s": float("nan")})


def test_settings_keep_their_defaults_and_ignore_what_is_not_theirs() -> None:
    found = settings_from({"down_window_s": 30, "growth": 4, "other": "x"})
    assert (found.down_window_s, found.growth, found.up_window_s) == (30.0, 4.0, 20.0)
