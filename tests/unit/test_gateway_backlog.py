"""The wait that a refusal names: what stands before it over the rate at which requests finish."""

from __future__ import annotations

from itertools import pairwise

import pytest

from controllers.gateway.backlog import JITTER_S, WAIT_MAX_S, Backlog, PodCount, Reading, expected_wait_s, observe

pytestmark = pytest.mark.case("gateway-D2")


def reading(at_s: float, queued: int, in_flight: int, sent: int, slots: int = 2) -> Reading:
    return Reading(at_s, queued, slots, {"p": PodCount(in_flight, sent)})


def wait(*readings: Reading) -> int | None:
    backlog: Backlog | None = None
    for each in readings:
        backlog = observe(backlog, each)
    assert backlog is not None
    return expected_wait_s(backlog)


@pytest.mark.parametrize(
    ("finished", "queued", "slots", "expected"),
    [
        (10, 7, 2, 4),  # the docstring's example
        (10, 0, 2, 1),
        (5000, 100, 2, 1),
        (10, 39, 2, 20),
        (1, 0, 1, 5),
        (0, 0, 1, 5),  # nothing finished in 5 s: at least that long
        (0, 3, 1, 20),
        (1, 100, 1, WAIT_MAX_S),
    ],
)
def test_the_wait_is_what_must_finish_first_over_the_rate_at_which_it_does(
    finished: int, queued: int, slots: int, expected: int
) -> None:
    assert wait(reading(0, queued, slots, 100, slots), reading(5, queued, slots, 100 + finished, slots)) == expected


def test_requests_over_a_lowered_limit_must_finish_first_too() -> None:
    assert wait(reading(0, 0, 6, 100), reading(5, 0, 6, 110)) == 3


def test_more_slots_drain_faster_though_the_past_had_fewer() -> None:
    few = (reading(0, 40, 2, 0), reading(5, 40, 2, 10))
    assert wait(*few) == 21
    assert wait(*few, reading(10, 40, 8, 26, slots=8)) == 6


@pytest.mark.parametrize(
    "readings",
    [
        (reading(0, 5, 2, 100),),  # no rate yet
        (reading(0, 0, 1, 100), reading(5, 5, 2, 101)),  # it had room: what finished says nothing
        (reading(0, 5, 2, 100), reading(5, 0, 1, 110)),  # there is room
        (reading(0, 5, 2, 100), reading(5, 5, 0, 110, slots=0)),  # no pod takes requests
        (reading(0, 5, 2, 100), reading(5, 0, 1, 110), reading(10, 5, 2, 120)),
    ],
)
def test_without_two_full_readings_in_a_row_the_wait_is_unknown(readings: tuple[Reading, ...]) -> None:
    assert wait(*readings) is None


def test_a_counter_that_fell_or_a_pod_that_left_takes_nothing_from_what_others_finished() -> None:
    before = Reading(0, 9, 2, {"p": PodCount(1, 1000), "q": PodCount(1, 500), "r": PodCount(0, 70)})
    now = Reading(5, 9, 2, {"p": PodCount(1, 0), "q": PodCount(1, 510)})
    assert wait(before, now) == 5


def test_what_a_new_pod_holds_is_not_finished() -> None:
    before = Reading(0, 9, 1, {"p": PodCount(1, 100)})
    now = Reading(5, 9, 2, {"p": PodCount(1, 104), "q": PodCount(1, 2)})
    assert wait(before, now) == 5


def test_only_the_last_half_minute_counts() -> None:
    slow = [reading(at_s, 9, 2, 10) for at_s in range(0, 60, 5)]
    quick = [reading(at_s, 9, 2, 10 + at_s * 4) for at_s in range(60, 95, 5)]
    assert wait(*slow, *quick) == 3
    assert all(later.at_s > sooner.at_s for sooner, later in pairwise([*slow, *quick]))


def test_an_answer_names_a_minute_at_most() -> None:
    assert WAIT_MAX_S + JITTER_S - 1 == 60
