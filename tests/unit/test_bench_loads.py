"""The benchmark's traffic: what kind each is, and that all of it is of a size that tells policies apart."""

import pytest

from simulator.loads import Rates
from tests.bench.autoscaler.loads import NAMES, Kind, Traffic, traffic


def rates(*minutes: float) -> Traffic:
    return Traffic("made", Rates(list(minutes), 60.0), service_s=0.5)


CALM = [40.0] * 20


@pytest.mark.parametrize(
    ("minutes", "kind"),
    [
        (CALM, Kind.SMOOTH),
        ([*CALM, 52.0, *CALM], Kind.SMOOTH),  # 1.3 in a minute
        ([*CALM, 160.0, *CALM], Kind.SURGE),  # fourfold, as never before
        ([160.0, *CALM, 160.0, *CALM], Kind.BURSTY),  # as 20 minutes ago
        ([160.0, *CALM, *CALM, 160.0], Kind.SURGE),  # as 40 minutes ago: nobody remembers
        ([0.1] * 15 + [11.0] + [0.1] * 5, Kind.SMOOTH),  # a hundredfold, and one replica carries it: 11 x 0.5 < 5.6
    ],
)
def test_a_kind_is_told_by_the_largest_growth_in_a_minute_and_by_what_came_before(minutes, kind) -> None:
    assert rates(*minutes).kind is kind


@pytest.mark.parametrize("name", NAMES)
def test_every_traffic_needs_8_to_30_replicas_at_its_peak(name: str) -> None:
    assert 8 <= max(traffic(name).needed) <= 30
    assert traffic(name).load.duration_s >= 3500
