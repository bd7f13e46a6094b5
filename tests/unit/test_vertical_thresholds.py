"""What a signal's value means."""

import pytest

from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from controllers.autoscaler.vertical.thresholds import THRESHOLDS, busy, hot, mean_of


def test_unknown_is_neither_room_nor_shortage() -> None:
    assert hot(UNKNOWN) == busy(UNKNOWN) == ()


@pytest.mark.parametrize("name", THRESHOLDS)
def test_each_signal_has_two_thresholds_of_its_own(name: str) -> None:
    threshold = THRESHOLDS[name]
    assert 0 < threshold.free < threshold.hot
    assert busy(Signals(**{name: threshold.free})) == (name,)
    assert hot(Signals(**{name: threshold.free})) == ()
    assert hot(Signals(**{name: threshold.hot})) == (name,)


@pytest.mark.case("autoscaler-I10")
@pytest.mark.case("autoscaler-I11")
@pytest.mark.parametrize("value", [0.0, 0.56, 0.94, 1.0])
def test_gpu_utilisation_says_nothing_whatever_it_reads(value: float) -> None:
    assert hot(Signals(gpu_utilization=value)) == busy(Signals(gpu_utilization=value)) == ()


@pytest.mark.parametrize("absurd", [float("nan"), float("inf"), -1.0])
def test_an_absurd_value_is_unknown(absurd: float) -> None:
    assert hot(Signals(cpu=absurd)) == ()
    assert mean_of([Signals(cpu=absurd), Signals(cpu=0.5)]).cpu == 0.5


def test_of_several_pods_each_signal_is_the_mean_of_those_that_tell_it() -> None:
    found = mean_of([Signals(cpu=0.2, memory=0.5), Signals(cpu=0.6)])
    assert (found.cpu, found.memory, found.kv_cache) == (pytest.approx(0.4), 0.5, None)
    assert mean_of([]) == UNKNOWN
