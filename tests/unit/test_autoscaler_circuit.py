"""The circuit of a revision: opens when starts fail again and again, tries one, closes when one succeeds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.autoscaler.circuit import PAUSE_FIRST_S, PAUSE_MAX_S, TABLE, Circuit, Event, Phase, advance, most
from controllers.autoscaler.observation import Revision, Role


def revision(ready: int = 0, failing: int = 0, issued: int = 4) -> Revision:
    return Revision("iris-a", Role.TRAFFIC, 10, 8.0, issued, ready, issued, failing=failing)


def after(circuit: Circuit, *steps: tuple[float, Revision]) -> Circuit:
    for now_s, seen in steps:
        circuit = advance(circuit, seen, now_s)
    return circuit


OPEN = after(Circuit(), (100.0, revision(ready=2, failing=2)))


def test_pods_that_start_leave_it_closed() -> None:
    assert most(after(Circuit(), (1.0, revision(ready=0)), (2.0, revision(ready=4)))) is None


@pytest.mark.parametrize(("ready", "failing", "phase"), [(3, 1, Phase.CLOSED), (0, 1, Phase.OPEN), (2, 2, Phase.OPEN)])
def test_one_pod_of_many_may_fail_and_two_or_the_only_one_open_it(ready: int, failing: int, phase: Phase) -> None:
    assert after(Circuit(ready=ready), (1.0, revision(ready, failing))).phase is phase


@pytest.mark.case("autoscaler-C8")
def test_while_open_no_more_are_asked_for_and_none_is_taken_away() -> None:
    assert (OPEN.phase, most(OPEN)) == (Phase.OPEN, 4)


def test_after_a_pause_one_more_is_tried() -> None:
    early = advance(OPEN, revision(2, 2), 100.0 + PAUSE_FIRST_S - 1)
    assert early.phase is Phase.OPEN
    tried = advance(OPEN, revision(2, 2), 100.0 + PAUSE_FIRST_S)
    assert (tried.phase, most(tried)) == (Phase.HALF_OPEN, 5)


def test_a_trial_that_fails_opens_it_for_twice_as_long() -> None:
    tried = advance(OPEN, revision(2, 2), 130.0)
    again = advance(tried, revision(2, 3, issued=5), 150.0)
    assert (again.phase, again.pause_s, most(again)) == (Phase.OPEN, 2 * PAUSE_FIRST_S, 5)


def test_a_trial_that_starts_closes_it_and_the_failing_ones_are_tolerated() -> None:
    tried = advance(OPEN, revision(2, 2), 130.0)
    closed = advance(tried, revision(3, 2, issued=5), 150.0)
    assert closed.phase is Phase.CLOSED
    assert after(closed, (160.0, revision(3, 2)), (170.0, revision(3, 3))).phase is Phase.CLOSED
    assert after(closed, (160.0, revision(3, 4))).phase is Phase.OPEN


def test_it_closes_when_nothing_fails_any_more() -> None:
    assert advance(OPEN, revision(2, 0), 101.0).phase is Phase.CLOSED


def test_a_pod_that_went_and_came_back_is_a_start_that_succeeded() -> None:
    lost = advance(OPEN, revision(1, 2), 101.0)
    assert advance(lost, revision(2, 2), 102.0).phase is Phase.CLOSED


def test_the_pause_grows_to_ten_minutes_and_no_further() -> None:
    circuit, now_s, failing = OPEN, 100.0, 2
    for _ in range(8):
        now_s += circuit.pause_s
        circuit = advance(circuit, revision(2, failing), now_s)
        failing += 1
        circuit = advance(circuit, revision(2, failing), now_s)
    assert (circuit.phase, circuit.pause_s) == (Phase.OPEN, PAUSE_MAX_S)


def test_the_table_says_nothing_twice_and_only_a_failure_opens() -> None:
    assert {event for (_, event), phase in TABLE.items() if phase is Phase.OPEN} == {Event.FAILED}
    assert all(before is not phase for (before, _), phase in TABLE.items())


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(0, 60)), max_size=20))
def test_it_is_total_and_never_allows_less_than_was_asked_for_when_it_opened(seen: list[tuple[int, int, int]]) -> None:
    circuit = Circuit()
    for turn, (ready, failing, issued) in enumerate(seen):
        before = circuit
        circuit = advance(circuit, revision(ready, failing, issued), turn * 40.0)
        if before.phase is Phase.CLOSED and circuit.phase is Phase.OPEN:
            assert most(circuit) == issued
        assert replace(circuit) == circuit
