"""Demand: from windows to requests that should be in flight, row by row as the formula's text says."""

from dataclasses import replace

import pytest

from controllers.autoscaler.demand import Demand, Surge, demand_of, presses, surge_of
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Observation, Prior, observation_of
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Means

SETTINGS = Settings()


def load(in_flight: float, queued: float = 0.0, arrived: float | None = None, refused: float = 0.0) -> Means:
    return Means(in_flight, queued, arrived, arrived, refused, True)


def seen(fast: Means | None, slow: Means | None = None, service_s: float | None = 0.2, **more: object) -> Observation:
    made = Observation(fast, slow, service_s, 1, 10_000, ())
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fast", "slow", "service_s", "expected"),
    [
        (load(30.0), load(30.0), 0.2, Demand(30.0, True, False)),
        (load(80.0), load(30.0), 0.2, Demand(72.0, True, False)),
        (load(10.0), load(30.0), 0.2, Demand(30.0, True, False)),
        (load(40.0, refused=5.0, arrived=1000.0), None, 0.2, Demand(200.0, True, True)),
        (load(40.0, queued=70.0, arrived=1000.0), None, 0.2, Demand(204.0, True, True)),
        (load(40.0, queued=100.0, arrived=2.0), None, 20.0, Demand(80.0, True, True)),
        (load(40.0, queued=100.0, arrived=1000.0), None, None, Demand(140.0, True, True)),
        (load(40.0, queued=70.0, arrived=None), None, 0.2, Demand(44.0, True, True)),
        (load(40.0, arrived=1000.0), None, 0.2, Demand(200.0, True, False)),
        (load(40.0, arrived=0.0), None, 60.0, Demand(40.0 - 2 * 40**0.5, True, False)),
        (None, load(30.0), 0.2, Demand(None, False, False)),
        (None, None, None, Demand(None, False, False)),
    ],
    ids=[
        "without arrivals in flight",
        "a step shows in the fast window, less 2 x sqrt(80 / 5)",
        "the slow window holds",
        "arrivals times service time",
        "a backlog is to be gone in 3.5 s",
        "a backlog of long requests in 2.5 of them",
        "without a service time in flight and queued",
        "without arrivals in flight and the backlog's share",
        "arrivals lead what is in flight",
        "what is in flight beyond its noise still runs when nothing arrives any more",
        "nothing of late is unknown",
        "nothing at all is unknown",
    ],
)
@pytest.mark.case("autoscaler-F5")
def test_demand(fast: Means | None, slow: Means | None, service_s: float | None, expected: Demand) -> None:
    found = demand_of(seen(fast, slow, service_s), None, SETTINGS)
    assert found.requests == (None if expected.requests is None else pytest.approx(expected.requests))
    assert (found.complete, found.overloaded) == (expected.complete, expected.overloaded)


@pytest.mark.parametrize(
    ("fast_rps", "expected"), [(1000.0, 200.0), (1100.0, 200.0), (1300.0, 240.0)], ids=["equal", "noise", "a step"]
)
def test_a_short_mean_counts_for_what_it_is_above_two_of_its_standard_deviations(
    fast_rps: float, expected: float
) -> None:
    """A second's arrivals vary by 112 = 50 x sqrt(5), the mean of 5 s by 50, so demand by 10: 260 - 20 = 240."""
    found = demand_of(seen(load(0.0, arrived=fast_rps), load(0.0, arrived=1000.0), noise_rps=111.803), None, SETTINGS)
    assert found.requests == pytest.approx(expected, rel=1e-4)
    assert found.noise == pytest.approx(111.803 * 0.2 / 20**0.5)
    assert found.dispersion == pytest.approx(12.5, rel=1e-4)


@pytest.mark.parametrize(
    ("now", "likely_s", "expected"),
    [
        (load(8.0, queued=50.0, arrived=100.0), None, 58.0),
        (load(8.0, queued=50.0, arrived=100.0), 0.2, 58.0),
        (load(8.0, queued=50.0, arrived=100.0), 2.0, 200.0),
        (load(8.0, queued=50.0, arrived=None), 2.0, 58.0),
        (replace(load(8.0, arrived=100.0, refused=50.0), retried_rps=60.0), 2.0, 80.0),
    ],
    ids=["nothing likely", "short requests", "long requests", "no arrivals known", "marked retries"],
)
def test_a_service_time_that_is_only_likely_asks_for_more_and_never_for_less(
    now: Means, likely_s: float | None, expected: float
) -> None:
    found = demand_of(seen(now, now, None, likely_time_s=likely_s), None, SETTINGS)
    assert found.requests == pytest.approx(expected)
    assert found.complete is not bool(now.refused_rps), "a load that is only likely lowers nothing"


@pytest.mark.parametrize(
    ("now", "likely_s", "expected"),
    [
        (load(2.0, queued=8.0), 0.2, 2.0 + 8 * 0.2 / 3.5),
        (load(2.0, queued=8.0, arrived=24.0), 0.2, 24 * 0.2 + 8 * 0.2 / 3.5),
        (load(2.0, queued=8.0, arrived=0.0), 7.0, 2.0 + 8 / 2.5),
    ],
    ids=["no arrivals known", "arrivals known", "they have been here for long"],
)
def test_what_was_measured_before_tells_how_fast_a_backlog_drains(now: Means, likely_s: float, expected: float) -> None:
    found = demand_of(seen(now, now, None, likely_time_s=likely_s, measured_before=True), None, SETTINGS)
    assert found.requests == pytest.approx(expected)


@pytest.mark.case("autoscaler-G1")
@pytest.mark.parametrize(("measured", "expected"), [(True, 2.0 + 8 * 0.205 / 3.5), (False, 10.0)])
def test_the_first_reading_after_a_restart_under_load_counts_a_backlog_as_the_one_before_it_would(
    measured: bool, expected: float
) -> None:
    first = LoadSample(1.0, Load(2, 8, None, None, None), True)
    found = observation_of([first], (), (1, 10), SETTINGS, 1.0, Prior(0.205, measured))
    assert demand_of(found, None, SETTINGS).requests == pytest.approx(expected)


@pytest.mark.parametrize("samples", [5, 1])
def test_what_is_in_flight_counts_beyond_the_noise_of_so_many_readings(samples: int) -> None:
    """120 in flight, 20/s of noise at W = 0.5 s: a reading varies by 20 x sqrt(0.5) = 14.1, five by 6.3."""
    fast = replace(load(120.0, arrived=150.0), samples=samples)
    found = demand_of(seen(fast, load(60.0, arrived=120.0), 0.5, noise_rps=20.0), None, SETTINGS)
    assert found.requests == pytest.approx(120.0 - 2 * 20.0 * (0.5 / samples) ** 0.5)


def test_what_retries_hold_in_flight_is_no_demand() -> None:
    """300 in flight while two of three that arrive are retries: at most 100 of them, and 1,000 x 0.2 s are due."""
    storm = replace(load(300.0, arrived=3000.0, refused=1500.0), retried_rps=2000.0)
    assert demand_of(seen(storm), None, SETTINGS).requests == pytest.approx(200.0)
    unmarked = load(300.0, arrived=3000.0, refused=2500.0)
    assert demand_of(seen(unmarked), Surge(0.0, 1000.0), SETTINGS).requests == pytest.approx(200.0)


def test_in_overload_the_newest_seconds_count_and_otherwise_not() -> None:
    """Of 1,000/s in 2 s two deviations, 2 x 0.2 x sqrt(1,000 / 2), may be noise."""
    calm, steep = load(40.0, arrived=200.0), load(40.0, queued=9.0, arrived=1000.0)
    expected = 200.0 - 0.4 * 500**0.5 + 9 * 0.2 / 3.5
    assert demand_of(seen(calm, calm, sharp=steep), None, SETTINGS).requests == pytest.approx(expected)
    steep = replace(steep, queued=0.0)
    assert demand_of(seen(calm, calm, sharp=steep), None, SETTINGS).requests == pytest.approx(40.0)
    partial = replace(steep, queued=9.0, complete=False)
    assert demand_of(seen(calm, calm, sharp=partial), None, SETTINGS).requests == pytest.approx(40.0)


def test_marked_retries_are_no_demand() -> None:
    overload = replace(load(40.0, arrived=3000.0, refused=2800.0), retried_rps=2000.0)
    assert demand_of(seen(overload, overload), None, SETTINGS).requests == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("arrived", "refused", "expected"),
    [(1900.0, 960.0, 200.0), (1900.0, 500.0, 280.0), (800.0, 500.0, 160.0), (1900.0, 0.0, 380.0)],
    ids=["all of the excess was refused", "more than was refused", "less than at first", "no refusal"],
)
def test_unmarked_retries_are_what_exceeds_the_overloads_first_seconds_and_was_refused(
    arrived: float, refused: float, expected: float
) -> None:
    now = load(40.0, arrived=arrived, refused=refused)
    assert demand_of(seen(now, now), Surge(0.0, 1000.0), SETTINGS).requests == pytest.approx(expected)


def second(arrived: float, refused: float) -> Load:
    return Load(40.0, 0.0, arrived, arrived - refused, refused)


@pytest.mark.parametrize(
    ("onset", "expected"),
    [
        ((), 777.0),
        ((second(400.0, 360.0),), 400.0),
        ((second(400.0, 360.0), second(1360.0, 1320.0)), 1000.0),
        ((second(400.0, 360.0), second(1360.0, 1320.0), second(2320.0, 2280.0)), 1000.0),
        ((second(400.0, 360.0), second(1000.0, 960.0), second(1000.0, 960.0)), 1000.0),
        ((second(1000.0, 100.0), second(1100.0, 1060.0), second(2060.0, 2020.0)), 1000.0),
        ((second(1000.0, 960.0), second(1000.0, 500.0), second(900.0, 100.0)), 1000.0),
    ],
    ids=[
        "forgotten",
        "one second",
        "two seconds",
        "all come again",
        "none comes again",
        "a queue took the first",
        "fewer",
    ],
)
def test_first_attempts_are_told_from_retries_by_an_overloads_first_seconds(
    onset: tuple[Load, ...], expected: float
) -> None:
    now = load(40.0, arrived=777.0, refused=700.0)
    surge = surge_of(None, seen(now, onset=onset), SETTINGS, 100.0)
    assert surge == Surge(100.0, pytest.approx(expected))


def test_a_surge_is_fixed_after_its_first_seconds_and_ends_with_the_last_refusal() -> None:
    surge, onset = Surge(100.0, 1000.0), (second(1100.0, 960.0),)
    now = replace(load(40.0, arrived=2000.0, refused=1800.0), served_rps=200.0)
    assert surge_of(surge, seen(now, onset=onset), SETTINGS, 102.0) == Surge(100.0, 1100.0)
    assert surge_of(surge, seen(now, onset=onset), SETTINGS, 104.0) == surge
    assert surge_of(surge, seen(None), SETTINGS, 105.0) == surge, "unknown is no end"
    calm = load(40.0, arrived=400.0)
    over = surge_of(surge, seen(calm, now), SETTINGS, 106.0)
    assert over == Surge(100.0, 1000.0, over=True), "the long window still has retries in it"
    assert demand_of(seen(calm, now), over, SETTINGS).requests == pytest.approx(200.0)
    assert surge_of(over, seen(calm, calm), SETTINGS, 126.0) is None
    assert surge_of(over, seen(now, now, onset=onset), SETTINGS, 110.0) == Surge(110.0, 1100.0), "another one"


def test_arrivals_beyond_what_was_refused_before_are_no_retries() -> None:
    now = replace(load(40.0, arrived=2000.0, refused=1800.0), served_rps=40.0)
    jumped = seen(now, surely_first_rps=3840.0, noise_rps=20.0)
    assert surge_of(Surge(100.0, 200.0), jumped, SETTINGS, 110.0) == Surge(100.0, 3800.0)
    assert surge_of(Surge(100.0, 200.0), replace(jumped, surely_first_rps=240.0), SETTINGS, 110.0) == Surge(
        100.0, 200.0
    )
    assert surge_of(Surge(100.0, 200.0), replace(jumped, surely_first_rps=None), SETTINGS, 110.0) == Surge(100.0, 200.0)


def test_arrivals_that_keep_growing_are_no_retries() -> None:
    now = replace(load(40.0, arrived=1400.0, refused=1200.0), served_rps=200.0)
    growing = seen(now, growth_rps=200.0, noise_rps=40.0)
    assert surge_of(Surge(100.0, 1000.0), growing, SETTINGS, 120.0) == Surge(100.0, 1400.0)
    assert surge_of(Surge(100.0, 1000.0), replace(growing, growth_rps=30.0), SETTINGS, 120.0) == Surge(100.0, 1000.0)


def test_a_rise_is_the_growth_beyond_its_noise_in_requests_per_second() -> None:
    """Windows of 4 s grow by 200/s each, 2 x 40 / sqrt(4) = 40 of it may be noise: 160 / 4 s x 0.2 s = 8 a second."""
    now = load(40.0, arrived=1000.0)
    assert demand_of(seen(now, growth_rps=200.0, noise_rps=40.0), None, SETTINGS).rise == pytest.approx(8.0)
    assert demand_of(seen(now, growth_rps=30.0, noise_rps=40.0), None, SETTINGS).rise == 0.0
    assert demand_of(seen(now, growth_rps=-50.0), None, SETTINGS).rise == 0.0
    assert demand_of(seen(now), None, SETTINGS).rise == 0.0
    early = seen(now, early_growth_rps=100.0, growth_rps=20.0, noise_rps=14.142)
    assert demand_of(early, None, SETTINGS).rise == pytest.approx((100.0 - 20.0) / 2 * 0.2, rel=1e-3), "over 2 s"


def test_refusals_that_go_on_once_the_first_attempts_are_served_are_more_demand() -> None:
    now = replace(load(200.0, arrived=1900.0, refused=940.0), served_rps=960.0)
    surge = surge_of(Surge(100.0, 1000.0), seen(now), SETTINGS, 150.0)
    assert surge == Surge(100.0, 1000.0, 150.0), "those who were refused may still come again"
    assert surge_of(surge, seen(now), SETTINGS, 169.0) == surge
    assert surge_of(surge, seen(now), SETTINGS, 170.0) == Surge(170.0, 1900.0)
    fewer = replace(now, served_rps=900.0)
    assert surge_of(surge, seen(fewer), SETTINGS, 170.0) == Surge(100.0, 1000.0)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (None, False),
        (LoadSample(0.0, None), False),
        (LoadSample(0.0, Load(9.0, 0.0)), False),
        (LoadSample(0.0, Load(9.0, 0.0, 5.0, 5.0, 0.0)), False),
        (LoadSample(0.0, Load(9.0, 1.0)), True),
        (LoadSample(0.0, Load(9.0, 0.0, 5.0, 4.0, 1.0)), True),
    ],
)
def test_a_queue_and_a_refusal_do_not_wait_for_the_cycle(sample: LoadSample | None, expected: bool) -> None:
    assert presses(sample) is expected
