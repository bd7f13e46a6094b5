"""Cases of the autoscaler that ask for a day, a night or another platform, as far as they are ours.

Not ours, or not yet: J1 (a schedule in Git: an endpoint file states one range and no times; a change of it is a commit)
and J3 (no warm pool: what is kept ready is ready replicas, and nodes are the cluster's own). Of F8 what steps a floor
is a commit; of F9 the least is one replica, since `min: 0` is refused; of J2, J4 and J5 the forecast is what the last
half hour says of a start-up time.
"""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.autoscaler.control import Control, Mode
from controllers.autoscaler.core import State
from controllers.autoscaler.cycle import Inputs, Remembered, cycle
from controllers.autoscaler.demand import Demand, demand_of
from controllers.autoscaler.observation import Observation, Revision, Role
from controllers.autoscaler.recent import Recent
from controllers.autoscaler.rules import ORDER, Reason, Situation, merge
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Means
from spec.endpoint import load_endpoint
from spec.problems import SpecError
from spec.sizing import floor_replicas, target_of

SETTINGS = Settings()
CYCLE_S = SETTINGS.cycle_s
RANGE = (8, 8_000)  # at target 8: 1 to 1,000 replicas


class Day:
    """One endpoint, cycle by cycle: limit 10, target 8, W = 0.2 s, and no memory of what was before."""

    def __init__(self, replicas: int = 1) -> None:
        self.now_s = 0.0
        self.remembered = Remembered()
        self.path = [replicas]
        self.reason = Reason.STEADY

    def after(self, seconds: float, in_flight: float | None, concurrency: tuple[int, int] = RANGE) -> int:
        """The replicas after so long of this load; None: nothing is known of it."""
        for _ in range(round(seconds / CYCLE_S)):
            self.now_s += CYCLE_S
            self._decide(in_flight, concurrency)
        return self.path[-1]

    def _decide(self, in_flight: float | None, concurrency: tuple[int, int]) -> None:
        rps = None if in_flight is None else in_flight / 0.2
        seen = None if in_flight is None else Means(in_flight, 0.0, rps, rps, 0.0, True)
        revision = Revision("a", Role.TRAFFIC, 10, 8.0, self.path[-1], self.path[-1], self.path[-1])
        observation = Observation(seen, seen, 0.2, *concurrency, (revision,), sharp=seen)
        self.remembered, turn = cycle(self.remembered, Inputs(observation, SETTINGS, self.now_s))
        self.path.append(turn.verdict.decisions[0].desired)
        self.reason = turn.verdict.decisions[0].reason

    @property
    def changes(self) -> int:
        return sum(before != after for before, after in pairwise(self.path))


@pytest.mark.case("autoscaler-F8")
def test_a_floor_that_steps_up_and_down_moves_the_replicas_once_for_each_edge() -> None:
    day, night = (400, 8_000), (80, 8_000)
    one = Day(10)
    one.after(300, 40.0, night)
    assert one.after(600, 40.0, day) == 50
    assert one.after(600, 40.0, night) == 10
    assert (one.changes, one.reason) == (2, Reason.FLOOR)


@pytest.mark.case("autoscaler-F8")
def test_a_load_that_wavers_around_the_floor_does_not_make_it_flap() -> None:
    one = Day(10)
    for _ in range(60):
        one.after(10, 76.0, (80, 8_000))
        one.after(10, 84.0, (80, 8_000))
    assert one.path[-1] == 11
    assert one.changes == 1


@pytest.mark.case("autoscaler-F9")
def test_no_load_at_all_waits_for_the_same_window_as_any_other_decrease() -> None:
    def falls_after_s(to: float) -> float:
        one = Day(10)
        one.after(SETTINGS.down_window_s, 75.0)
        began_s = one.now_s
        while one.path[-1] == 10 and one.now_s - began_s < 1_000:
            one.after(CYCLE_S, to)
        return one.now_s - began_s

    assert falls_after_s(0.0) == falls_after_s(20.0) == SETTINGS.down_window_s


@pytest.mark.case("autoscaler-F9")
def test_the_least_is_one_replica_in_a_decision_and_in_a_file() -> None:
    one = Day(10)
    assert one.after(600, 0.0, (1, 8_000)) == 1
    text = "endpoint: wine\nmodel: models:/wine/1\nconcurrency: {min: 0, max: 64}\n"
    with pytest.raises(SpecError, match="not yet possible"):
        load_endpoint(text, "alpha/wine.yaml", "alpha")


BURSTS = ([10.0] * 27 + [80.0] * 3) * 6  # every 10 s: 30 s of 80 in every five minutes, for half an hour


def remembered(demands: list[float | None], step_s: float = 10.0) -> Recent:
    """None: nothing was known, so nothing was added."""
    recent = Recent()
    for turn, demand in enumerate(demands):
        if demand is not None:
            recent = recent.add(turn * step_s, demand, 10, SETTINGS.recent_s)
    return recent


@pytest.mark.case("autoscaler-J4")
def test_what_was_unknown_is_not_remembered_as_no_load() -> None:
    """Of ten minutes without an answer a forecast that reads them as zero would say 10 instead of 80."""
    silent: list[float | None] = [None] * 60
    assert remembered([*BURSTS, *silent]).expected(10.0, 30.0, SETTINGS) == 80.0
    assert remembered([*silent, *[None] * 120]).expected(10.0, 30.0, SETTINGS) is None


@pytest.mark.case("autoscaler-J4")
@pytest.mark.parametrize("missed", [1, 2, 3, 7])
def test_memory_goes_by_the_time_and_not_by_the_number_of_cycles(missed: int) -> None:
    """Every second a decision, or one in several lost: the same half hour has passed."""
    often = remembered([demand for demand in BURSTS for _ in range(10)], step_s=1.0)
    seldom = remembered([d if turn % (missed + 1) else None for turn, d in enumerate(BURSTS)])
    assert often.expected(10.0, 30.0, SETTINGS) == 80.0
    assert seldom.expected(10.0, 30.0, SETTINGS) == 80.0
    late = often
    for second in range(1_800, 1_800 + 1_800, 600):
        late = late.add(float(second), 10.0, 10, SETTINGS.recent_s)
    assert all(at_s > 3_000 - SETTINGS.recent_s for at_s, _ in late.highs), "what is older than half an hour is gone"


@pytest.mark.case("autoscaler-J4")
def test_while_the_present_is_unknown_the_past_alone_moves_nothing() -> None:
    one = Day(2)
    one.remembered = Remembered(state=State(recent=remembered(list(BURSTS))))
    one.now_s = 1_800.0
    assert (one.after(60, None), one.reason) == (2, Reason.UNKNOWN)
    assert (one.after(5, 10.0), one.reason) == (9, Reason.BURSTS), "80 expected at 0.95 of a limit of 10"


def situation(issued: int, demand: float, expected: float | None, concurrency: tuple[int, int] = RANGE) -> Situation:
    return Situation(
        issued=issued,
        limit=10,
        target=8.0,
        declared=8.0,
        eased=8.0,
        demand=Demand(demand, True, False),
        peak=demand,
        covered=True,
        expected=expected,
        concurrency_min=concurrency[0],
        concurrency_max=concurrency[1],
        budget=None,
        settings=SETTINGS,
    )


def wanted(one: Situation) -> int:
    return merge(one, ORDER, one.issued, Reason.STEADY).replicas


amounts = st.floats(0, 5_000)


@given(st.integers(1, 1_000), amounts, amounts, st.integers(1, 500))
@pytest.mark.case("autoscaler-J2")
@pytest.mark.case("autoscaler-J5")
def test_a_forecast_only_raises_and_the_larger_of_it_and_the_minimum_holds(
    issued: int, demand: float, expected: float, least: int
) -> None:
    concurrency = (least * 8, 8_000)
    without = wanted(situation(issued, demand, None, concurrency))
    with_it = wanted(situation(issued, demand, expected, concurrency))
    assert with_it >= max(without, floor_replicas(concurrency[0], 8.0))
    if issued * 10 >= expected:  # no growth cap in the way
        assert with_it * 10 * SETTINGS.burst_share >= min(expected, 8_000) * (1 - 1e-9)


@pytest.mark.case("autoscaler-J2")
@pytest.mark.parametrize(("least", "expected", "replicas"), [(160, 95.0, 20), (8, 95.0, 10), (8, None, 2)])
def test_the_floor_at_a_moment_is_the_larger_of_minimum_and_forecast(
    least: int, expected: float | None, replicas: int
) -> None:
    assert wanted(situation(2, 12.0, expected, (least, 8_000))) == replicas


@pytest.mark.parametrize("mode", [Mode.PAUSE, Mode.SCALE])
def test_a_hold_keeps_to_the_range_as_the_load_does_where_a_large_pool_runs_fuller(mode: Mode) -> None:
    """max 800 at the declared 8 are 100 replicas; by the pool's own 9 a pause would take eleven of them away."""
    seen = Means(850.0, 0.0, 4_250.0, 4_250.0, 0.0, True)
    revision = Revision("a", Role.TRAFFIC, 10, 8.0, 100, 100, 100, learnt=True)
    observation = Observation(seen, seen, 0.2, 8, 800, (revision,), sharp=seen)
    hold = Control(mode, 100 if mode is Mode.SCALE else None, 1e9)
    _, turn = cycle(Remembered(), Inputs(observation, SETTINGS, 0.0, hold))
    (decision,) = turn.verdict.decisions
    assert (decision.target, decision.desired) == (9.0, 100)


@pytest.mark.case("autoscaler-F12")
def test_the_example_of_the_page_is_what_is_decided() -> None:
    """docs/autoscaling.md: 900/s x 0.2 s and 12.5 queued at limit 64; 201 at most of late, 290 expected."""
    seen = Means(90.0, 12.5, 900.0, 900.0, 0.0, True)
    demand = demand_of(Observation(seen, seen, 0.2, 1, 640, ()), None, SETTINGS)
    assert demand.requests == pytest.approx(180.714, abs=1e-3)
    target = target_of(64, SETTINGS.utilization)
    there = replace(situation(8, 180.5, 290.0, (1, 640)), demand=demand, peak=201.0, limit=64)
    found = merge(replace(there, target=target, declared=target, eased=target), ORDER, 8, Reason.STEADY)
    assert found.trace == (("raw", 4), ("n_minus_1", 5), ("bursts", 6))
    assert (found.replicas, found.reason) == (6, Reason.BURSTS)


def test_a_pool_of_201_requests_at_limit_64_is_carried_at_57_6() -> None:
    one = Revision("a", Role.TRAFFIC, 64, 51.2, 4, 4, 4, learnt=True)
    seen = Means(201.0, 0.0, None, None, None, True)
    _, turn = cycle(Remembered(), Inputs(Observation(seen, seen, None, 1, 640, (one,)), SETTINGS, 0.0))
    assert turn.verdict.decisions[0].target == pytest.approx(57.6)
