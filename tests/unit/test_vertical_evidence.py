"""From readings and samples to an epoch's evidence."""

import pytest

from controllers.autoscaler.load import Counters, Load, LoadSample
from controllers.autoscaler.vertical.evidence import (
    Evidence,
    Point,
    Tallies,
    Tally,
    evidence_of,
    joined,
    next_epoch,
    others,
    tally,
)
from controllers.autoscaler.vertical.settings import Settings

SETTINGS = Settings()
NOW_S = 1000.0


def samples(
    in_flight: float, served_rps: float | None, *, seconds: int = 30, complete: bool = True
) -> list[LoadSample]:
    load = Load(in_flight, 0.0, served_rps, served_rps, 0.0)
    return [LoadSample(NOW_S - second, load, complete) for second in range(seconds)]


def evidence(given: list[LoadSample], replicas: int = 2, limit: int = 10, tallies: Tallies | None = None) -> Evidence:
    return evidence_of(given, limit, replicas, SETTINGS, NOW_S, tallies=tallies)


def warm(in_flight: float, service_s: float, seconds: float = 30.0) -> Tally:
    busy_s = in_flight * seconds
    return Tally(NOW_S - 3600, seconds, busy_s, busy_s / service_s)


def test_service_time_is_busy_time_over_completions_and_is_split_over_replicas() -> None:
    found = evidence(samples(12.0, 60.0))
    assert found.point == Point(6.0, pytest.approx(0.2), 1800.0)
    assert found.known_s == 30
    assert found.loaded_s == 30


def test_half_full_counts_seconds_of_the_mean_replica() -> None:
    assert evidence(samples(9.9, 60.0)).loaded_s == 0
    assert evidence(samples(10.0, 60.0)).loaded_s == 30


@pytest.mark.parametrize(
    "given",
    [
        [],
        samples(12.0, None),
        samples(12.0, 60.0, complete=False),
        samples(float("nan"), 60.0),
        [LoadSample(NOW_S - second, None, complete=False) for second in range(30)],
    ],
    ids=["none", "no rates", "incomplete", "not a number", "unknown"],
)
def test_what_is_not_known_is_no_point(given: list[LoadSample]) -> None:
    assert evidence(given).point is None


def test_older_samples_belong_to_another_epoch() -> None:
    assert evidence([LoadSample(NOW_S - 30.0, Load(12.0, 0.0, 1.0, 1.0, 0.0))]).known_s == 0


def test_a_tally_counts_busy_time_and_completions_between_two_readings() -> None:
    before = Counters(0, 0, {"a": (4, 100)})
    now = Counters(0, 0, {"a": (6, 110), "b": (1, 1)})
    found = tally({"a": Tally(1.0)}, before, now, 1.0, 9.0)
    assert found["a"] == Tally(1.0, 1.0, 5.0, 9.0)
    assert found["b"] == Tally(9.0)


def test_a_pod_that_empties_does_not_look_fast() -> None:
    """20 in flight become 0 with nothing sent: 20 answers, half of whose time belongs to the epoch before."""
    found = tally({}, Counters(0, 0, {"a": (20, 50)}), Counters(0, 0, {"a": (0, 50)}), 1.0, 9.0)
    assert found["a"].point == Point(10.0, 1.0, 10.0)


def test_a_pod_whose_counts_begin_anew_is_not_counted_backwards() -> None:
    found = tally({}, Counters(0, 0, {"a": (4, 100)}), Counters(0, 0, {"a": (0, 3)}), 1.0, 9.0)
    assert found["a"].point is None


def test_a_pod_that_is_gone_is_forgotten_and_an_epoch_keeps_who_is_there() -> None:
    assert tally({"a": Tally(1.0)}, None, Counters(0, 0, {}), 1.0, 9.0) == {}
    assert next_epoch({"a": warm(5, 0.2)}) == {"a": Tally(NOW_S - 3600)}


@pytest.mark.case("autoscaler-D10")
def test_pods_that_warm_up_are_no_evidence_and_make_the_epoch_unsettled() -> None:
    cold = Tally(NOW_S - 20, 20.0, 200.0, 10.0)
    found = evidence(samples(12.0, 60.0), tallies={"cold": cold, "warm": warm(6.0, 0.2)})
    assert set(found.pods) == {"warm"}
    assert found.unsettled == "pods warm up"
    assert found.point == warm(6.0, 0.2).point


@pytest.mark.case("autoscaler-D10")
def test_cold_pods_alone_are_no_point_at_all() -> None:
    assert evidence(samples(12.0, 60.0), tallies={"cold": Tally(NOW_S - 20, 20.0, 200.0, 10.0)}).point is None


def test_the_mean_replica_weighs_service_times_by_completions() -> None:
    found = evidence([], tallies={"a": warm(4.0, 0.2), "b": warm(8.0, 0.4), "idle": Tally(NOW_S - 3600, 30.0)})
    assert found.point is not None
    assert found.point.in_flight == pytest.approx(6.0)
    assert found.point.service_s == pytest.approx(0.3)
    beside = others(found, "a")
    assert beside is not None
    assert beside.in_flight == pytest.approx(8.0)
    assert others(evidence([], tallies={"a": warm(4.0, 0.2)}), "a") is None


def test_two_stretches_of_a_pod_join_to_one() -> None:
    one, two = warm(4.0, 0.2).point, warm(8.0, 0.4, seconds=60).point
    assert one is not None and two is not None
    whole = joined(one, two)
    assert (whole.in_flight, whole.busy_s) == (pytest.approx(600 / 90), pytest.approx(600.0))
    assert joined(None, one) == one


def test_the_error_of_a_mean_is_that_of_its_answers_and_of_looking_once_a_second() -> None:
    assert Point(2.0, 0.2, 300.0).error == pytest.approx((1 / 300 + 1 / 60) ** 0.5)
