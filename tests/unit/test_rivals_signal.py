"""Means of requests in flight and waiting, as rivals take them."""

import pytest

from simulator.policy import Sample
from simulator.rivals.signal import bucket_mean, mean_load

UNKNOWN = None


def seconds(*loads: float | None) -> list[Sample]:
    """One sample a second, the first ending at 1 s; half of each load waits."""
    return [
        Sample(at_s + 1.0, 0, 0, 0, 0, (load or 0.0) / 2, (load or 0.0) / 2, 0, 0, known=load is not None)
        for at_s, load in enumerate(loads)
    ]


@pytest.mark.parametrize(
    ("loads", "window_s", "expected"),
    [
        ((4, 8), 60, 6.0),  # in flight and waiting together
        ((100, 4, 8), 2, 6.0),  # the window is (1, 3]: the first second is outside
        ((6, UNKNOWN, 12), 60, 9.0),  # (6 + 12) / 2
        ((UNKNOWN, UNKNOWN), 60, None),
        ((), 60, None),
    ],
)
def test_the_mean_is_over_the_known_seconds_of_the_window(loads, window_s, expected) -> None:
    assert mean_load(seconds(*loads), float(len(loads)), window_s) == expected


def test_a_second_younger_than_the_window_s_end_is_not_seen() -> None:
    assert mean_load(seconds(4, 8, 100), 2.0, 60) == 6.0


@pytest.mark.parametrize(
    ("loads", "window_s", "expected"),
    [
        ((6, 12), 60, 9.0),  # not full yet: over what there is
        ((6, UNKNOWN, 12), 60, 6.0),  # a gap between two writes is zeros: 18 / 3
        ((6, UNKNOWN, 12, UNKNOWN, UNKNOWN), 60, 6.0),  # seconds since the last write leave sum and divisor
        ((100, UNKNOWN, 12, 6), 2, 9.0),  # the window is (2, 4]
        ((100, UNKNOWN, UNKNOWN), 2, None),  # no write in the window
    ],
)
def test_knatives_mean_takes_a_gap_for_idle_time_and_forgets_the_seconds_since_the_last_write(
    loads, window_s, expected
) -> None:
    assert bucket_mean(seconds(*loads), float(len(loads)), window_s) == expected
