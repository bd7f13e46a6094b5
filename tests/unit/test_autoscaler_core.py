"""Demand and the roles of revisions: what is wanted of each, given what is seen."""

from dataclasses import replace

import pytest

from controllers.autoscaler.core import Decision, State, Verdict, decide
from controllers.autoscaler.demand import Surge
from controllers.autoscaler.observation import Observation, Revision, Role
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Demands, Means

SETTINGS = Settings()
NOW_S = 1000.0


def load(in_flight: float, queued: float = 0.0, arrived: float | None = None, refused: float = 0.0) -> Means:
    return Means(in_flight, queued, arrived, arrived, refused, True)


def revision(name: str = "a", role: Role = Role.TRAFFIC, issued: int = 4, **changes: object) -> Revision:
    made = Revision(name, role, limit=11, target=10.0, live=issued, ready=issued, asked=issued)
    return replace(made, **changes)  # type: ignore[arg-type]


def seen(fast: Means | None, *revisions: Revision, **changes: object) -> Observation:
    made = Observation(fast, fast, 0.2, 1, 10_000, revisions or (revision(),))
    return replace(made, **changes)  # type: ignore[arg-type]


def past(*demands: float) -> State:
    """A demand every 5 s for as long as it takes to cover the window, the last ones as given."""
    window = [demands[0] if demands else 0.0] * (70 - len(demands)) + list(demands)
    memory = Demands()
    for turn, demand in enumerate(window):
        at_s = NOW_S - 5.0 * (len(window) - turn)
        memory = memory.add(at_s, demand, True, SETTINGS.down_window_s, SETTINGS.gap_s)
    return State(memory, NOW_S - 5.0)


def verdict(state: State, observation: Observation) -> Verdict:
    return decide(state, observation, SETTINGS, NOW_S)[1]


def of(found: Verdict, name: str = "a") -> Decision:
    return next(d for d in found.decisions if d.revision == name)


def test_a_load_within_what_is_there_changes_nothing() -> None:
    found = of(verdict(past(35.0), seen(load(35.0))))
    assert (found.desired, found.reason) == (4, Reason.STEADY)


@pytest.mark.case("autoscaler-C6")
@pytest.mark.case("autoscaler-C7")
def test_replicas_that_still_start_are_not_asked_for_twice() -> None:
    found = of(verdict(past(90.0), seen(load(90.0), revision(issued=9, ready=2))))
    assert found.desired == 9


@pytest.mark.case("autoscaler-G1")
@pytest.mark.case("autoscaler-F10")
def test_without_a_past_nothing_is_lowered() -> None:
    found = of(verdict(State(), seen(load(0.0), revision(issued=7))))
    assert (found.desired, found.reason) == (7, Reason.HISTORY)


def test_with_a_whole_window_of_little_load_it_is_lowered() -> None:
    found = of(verdict(past(5.0), seen(load(5.0), revision(issued=7))))
    assert (found.desired, found.reason) == (1, Reason.LOAD_FELL)


@pytest.mark.case("autoscaler-A3")
@pytest.mark.case("autoscaler-A5")
def test_unknown_holds_what_was_asked_for_and_says_for_how_long() -> None:
    silent = verdict(replace(past(5.0), known_at_s=NOW_S - 90.0), seen(None, revision(issued=7)))
    assert (of(silent).desired, of(silent).reason) == (7, Reason.UNKNOWN)
    assert silent.unknown_s == 90.0
    assert verdict(State(), seen(None)).unknown_s == 0.0


def test_a_load_that_is_only_at_least_known_counts_as_unknown_for_as_long_as_it_lasts() -> None:
    state = replace(past(5.0), known_at_s=NOW_S - 90.0)
    assert verdict(state, seen(replace(load(5.0), complete=False))).unknown_s == 90.0
    assert verdict(state, seen(load(5.0))).unknown_s == 0.0


@pytest.mark.case("autoscaler-H6")
def test_the_floor_raises_even_without_knowledge() -> None:
    assert of(verdict(State(), seen(None, revision(issued=0), concurrency_min=25))).desired == 3


@pytest.mark.case("autoscaler-C5")
def test_waking_from_zero_takes_what_is_needed_at_once() -> None:
    assert of(verdict(State(), seen(load(500.0), revision(issued=0)))).desired == 50


@pytest.mark.case("autoscaler-F7")
def test_a_burst_that_is_over_is_not_followed_upwards() -> None:
    """The peak of the window holds replicas; it never raises them."""
    found = of(verdict(past(20.0, 900.0, 20.0), seen(load(20.0), revision(issued=10))))
    assert found.desired == 10


@pytest.mark.case("autoscaler-E8")
def test_what_was_asked_for_counts_and_not_what_somebody_set() -> None:
    found = of(verdict(past(35.0), seen(load(35.0), revision(issued=4, live=1))))
    assert (found.issued, found.desired) == (4, 4)
    adopted = of(verdict(State(), seen(load(35.0), revision(live=6, asked=None))))
    assert (adopted.issued, adopted.desired) == (6, 6)


@pytest.mark.case("autoscaler-D1")
@pytest.mark.case("autoscaler-D3")
@pytest.mark.case("autoscaler-D6")
def test_a_successor_gets_the_capacity_of_the_one_that_serves_at_once() -> None:
    both = (revision("a", issued=8), revision("b", Role.SUCCESSOR, issued=1, asked=None))
    found = verdict(past(75.0), seen(load(75.0), *both))
    assert of(found, "a").desired == 8
    assert (of(found, "b").desired, of(found, "b").sized, of(found, "b").reason) == (8, True, Reason.SUCCESSOR)


def test_a_successor_is_sized_over_its_own_target() -> None:
    both = (revision("a", issued=8), revision("b", Role.SUCCESSOR, issued=1, target=40.0))
    assert of(verdict(past(75.0), seen(load(75.0), *both)), "b").desired == 2


def test_a_successor_is_never_lowered_before_it_serves() -> None:
    both = (revision("a", issued=1), revision("b", Role.SUCCESSOR, issued=5))
    assert of(verdict(past(5.0), seen(load(5.0), *both)), "b").desired == 5


def test_the_first_revision_is_sized_by_demand_and_floor() -> None:
    first = revision("a", Role.SUCCESSOR, issued=1, asked=None)
    found = verdict(State(), seen(load(0.0), first, concurrency_min=45))
    assert (of(found).desired, of(found).sized) == (5, True)


@pytest.mark.parametrize(("role", "reason"), [(Role.PARKED, Reason.PARKED), (Role.FAILED, Reason.FAILED)])
@pytest.mark.parametrize(("issued", "sized"), [(8, True), (20, True), (3, False)])
def test_a_parked_or_failed_one_keeps_its_replicas_and_says_whether_they_would_do(
    role: Role, reason: Reason, issued: int, sized: bool
) -> None:
    found = of(verdict(past(75.0), seen(load(75.0), revision("a", issued=8), revision("b", role, issued))), "b")
    assert (found.desired, found.reason, found.sized) == (issued, reason, sized)


@pytest.mark.parametrize(("growth_rps", "replicas"), [(None, 5), (0.0, 5), (20.0, 8), (1000.0, 15)])
def test_a_growth_that_goes_on_is_met_a_start_up_time_ahead_to_thrice_what_there_is(
    growth_rps: float | None, replicas: int
) -> None:
    """250/s x 0.2 s = 50, and 5/s more every second: 1 request a second, 80 in 30 s, at 0.95 of a limit of 11."""
    growing = seen(load(50.0, arrived=250.0), revision(issued=5, start_s=30.0), growth_rps=growth_rps, noise_rps=0.0)
    assert of(verdict(past(50.0), growing)).desired == replicas


def test_while_requests_are_refused_nothing_is_lowered() -> None:
    """What was expected to grow on may be more than what is here already."""
    full = replace(load(40.0, arrived=250.0, refused=50.0), served_rps=200.0)
    found = of(verdict(past(50.0), seen(full, revision(issued=9))))
    assert (found.desired, found.reason) == (9, Reason.OVERLOAD)
    assert of(verdict(past(50.0), seen(load(40.0, arrived=200.0), revision(issued=9)))).desired == 6


def test_the_one_with_the_traffic_is_decided_first_whatever_the_order() -> None:
    two = (revision("b", Role.SUCCESSOR, issued=1), revision("a", issued=8))
    assert [d.revision for d in verdict(past(75.0), seen(load(75.0), *two)).decisions] == ["a", "b"]


def test_an_endpoint_without_revisions_has_no_decisions_and_still_a_past() -> None:
    state, found = decide(State(), replace(seen(load(5.0)), revisions=()), SETTINGS, NOW_S)
    assert found.decisions == ()
    assert state.demands.maximum(NOW_S, 60.0) == 5.0


def test_an_incomplete_load_may_raise_and_may_not_lower() -> None:
    partial = replace(load(95.0), complete=False)
    assert of(verdict(past(5.0), seen(partial))).desired == 10
    partial = replace(load(5.0), complete=False)
    assert of(verdict(past(5.0), seen(partial))).desired == 4


@pytest.mark.case("autoscaler-A1")
def test_while_no_replica_serves_and_all_is_refused_nothing_is_lowered() -> None:
    """All pods are down for minutes: nothing is in flight, no W can be measured, and whoever comes is refused."""
    down = Means(0.0, 40.0, 1000.0, 0.0, 1000.0, True)
    state, asked = past(200.0), 25
    for turn in range(120):
        observation = seen(down, revision(issued=asked, ready=0), service_time_s=None)
        state, found = decide(state, observation, SETTINGS, NOW_S + 5.0 * turn)
        asked = of(found).desired
    assert asked == 25


def test_a_lower_bound_is_no_high_of_the_past() -> None:
    state, _ = decide(State(), seen(replace(load(40.0), complete=False)), SETTINGS, NOW_S)
    assert state.recent.highs == ()
    assert state.demands.maximum(NOW_S, 60.0) == 40.0


@pytest.mark.parametrize(("known_s_ago", "replicas"), [(5.0, 4), (900.0, 20)])
def test_an_overload_is_the_same_one_only_where_the_time_between_is_known(known_s_ago: float, replicas: int) -> None:
    """It began with 10/s; after minutes without knowledge 1,000/s may be first attempts all the same."""
    state = State(known_at_s=NOW_S - known_s_ago, surge=Surge(NOW_S - 1000.0, 10.0))
    now = replace(load(40.0, arrived=1000.0, refused=960.0), served_rps=5.0)
    assert of(verdict(state, seen(now))).desired == replicas


def test_a_successor_whose_knee_is_not_learnt_has_its_declared_target_beside_a_large_pool() -> None:
    """12 replicas at 9 of 10 carry 100: 12 of one that is learnt too, 14 at 8 of one that is not."""
    one = Revision("a", Role.TRAFFIC, 10, 8.0, 12, 12, 12, learnt=True)
    for learnt, replicas in ((True, 12), (False, 14)):
        two = Revision("b", Role.SUCCESSOR, 10, 8.0, 0, 0, None, learnt=learnt)
        assert of(verdict(past(100.0), seen(load(100.0), one, two)), "b").desired == replicas
