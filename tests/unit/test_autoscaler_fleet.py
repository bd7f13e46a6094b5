"""Zeros of most busy endpoints in one moment are a fault of the reading; one endpoint's zero is its own."""

from collections.abc import Mapping

import pytest

from controllers.autoscaler.fleet import Fleet, Key, watch
from controllers.autoscaler.load import ZERO, Load

BUSY = Load(3.0, 0.0, 10.0, 10.0, 0.0)


def key(number: int) -> Key:
    return ("team-alpha", f"e{number}", "uid")


def fleet_of(count: int, seconds: int = 10) -> tuple[Fleet, float]:
    fleet, now_s = Fleet(), 0.0
    for _ in range(seconds):
        now_s += 1.0
        fleet, unknown = watch(fleet, {key(n): BUSY for n in range(count)}, now_s)
        assert not unknown
    return fleet, now_s


def zeros(count: int, of: int) -> dict[Key, Load | None]:
    return {key(n): ZERO if n < count else BUSY for n in range(of)}


@pytest.mark.parametrize(("silent", "of", "doubted"), [(6, 10, 6), (5, 10, 0), (10, 10, 10), (9, 9, 0), (51, 100, 51)])
def test_more_than_half_of_ten_or_more_at_once_are_unknown(silent: int, of: int, doubted: int) -> None:
    fleet, now_s = fleet_of(of)
    _, unknown = watch(fleet, zeros(silent, of), now_s + 1.0)
    assert unknown == {key(n) for n in range(silent)} if doubted else not unknown


def test_after_a_minute_they_are_believed() -> None:
    fleet, now_s = fleet_of(10)
    for second in range(1, 120):
        fleet, unknown = watch(fleet, zeros(10, 10), now_s + second)
        assert len(unknown) == (10 if second < 61 else 0), second


def test_one_that_shows_load_again_is_known_at_once() -> None:
    fleet, now_s = fleet_of(10)
    fleet, _ = watch(fleet, zeros(10, 10), now_s + 1.0)
    _, unknown = watch(fleet, zeros(9, 10), now_s + 2.0)
    assert len(unknown) == 9


def test_zeros_that_come_one_after_another_are_traffic_that_ends() -> None:
    fleet, now_s = fleet_of(20)
    for silent in range(1, 21):
        now_s += 10.0
        for _ in range(3):
            fleet, unknown = watch(fleet, zeros(silent, 20), now_s)
            assert not unknown
            now_s += 1.0


def test_idle_endpoints_and_unknown_samples_are_no_witnesses() -> None:
    fleet, now_s = fleet_of(9)
    seen: Mapping[Key, Load | None] = zeros(9, 9) | {key(n): ZERO for n in range(100, 190)} | {key(200): None}
    _, unknown = watch(fleet, seen, now_s + 1.0)
    assert not unknown
