"""The production learner, and both axes together, against replicas with a knee, on a fake clock."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest

from controllers.autoscaler.plain import from_plain, to_plain
from controllers.autoscaler.vertical.knowledge import Knowledge, settled
from controllers.autoscaler.vertical.rules import Reason
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from tests.scenarios.lab.replicas import Fleet
from tests.scenarios.lab.two_axes import HORIZONTAL, Epoch, TwoAxes

SERVICE_S = 1.0


def slower(factor: float, from_s: float, to_s: float = 1e9) -> Callable[[float], float]:
    return lambda t: factor if from_s <= t < to_s else 1.0


def world(knee: int, limit: int, replicas: int, load: float = 3.2, **more: object) -> TwoAxes:
    """`load`: requests in flight that are offered, in knees of one replica."""
    rate_rps = load * knee / SERVICE_S
    seed, slow = more.pop("seed", 1), more.pop("slow", lambda t: 1.0)
    fleet = Fleet(knee, SERVICE_S, lambda t: rate_rps, seed=seed, slow=slow)  # type: ignore[arg-type]
    return TwoAxes(fleet, limit, replicas, **more)  # type: ignore[arg-type]


def estimate(epoch: Epoch) -> float:
    """The knee, or what stands for it while it was not met."""
    return epoch.knee if epoch.knee is not None else epoch.limit


def steps(axes: TwoAxes, from_s: float, to_s: float) -> int:
    limits = [epoch.limit for epoch in axes.history if from_s <= epoch.at_s <= to_s]
    return sum(before != after for before, after in pairwise(limits))


@pytest.mark.case("autoscaler-I8")
@pytest.mark.parametrize("factor", [4.0, 0.25])
@pytest.mark.parametrize("knee", [8, 16, 32])
def test_a_limit_mis_set_four_times_is_within_a_fifth_in_ten_minutes_and_stays_there(knee: int, factor: float) -> None:
    axes = world(knee, int(knee * factor), max(int(4 / factor), 1))
    axes.run(1500)
    settled = [epoch for epoch in axes.history if epoch.at_s >= 600]
    assert all(abs(estimate(epoch) / knee - 1) <= 0.2 for epoch in settled), [estimate(e) / knee for e in settled]
    assert all(abs(epoch.limit / knee - 1) <= 0.25 for epoch in settled), "and the limit follows"


@pytest.mark.case("autoscaler-I8")
@pytest.mark.parametrize(("knee", "limit"), [(16, 64), (16, 4), (2, 64)])
def test_one_replica_alone_is_learnt_too(knee: int, limit: int) -> None:
    axes = world(knee, limit, 1, load=1.2, scale=False)
    axes.run(900)
    settled = [epoch for epoch in axes.history if epoch.at_s >= 600]
    assert all(abs(epoch.limit - knee) <= max(0.2 * knee, 1) for epoch in settled)


def test_the_balancers_means_alone_are_enough() -> None:
    """No self-test, no signal, nothing by pod: in flight and completions."""
    axes = world(16, 64, 3, scale=False, signals=UNKNOWN, by_pod=False)
    axes.run(900)
    assert all(abs(estimate(epoch) / 16 - 1) <= 0.2 for epoch in axes.history if epoch.at_s >= 600)


@pytest.mark.case("autoscaler-I6")
@pytest.mark.parametrize("scale", [True, False])
def test_a_dependency_twice_as_slow_moves_the_limit_by_at_most_one_step_in_ten_minutes(scale: bool) -> None:
    axes = world(16, 16, 5, slow=slower(2.0, 900), scale=scale)
    axes.run(3000)
    at_onset = next(epoch.limit for epoch in axes.history if epoch.at_s >= 900)
    assert abs(at_onset - 16) <= 3
    for from_s in range(900, 2400, 30):
        assert steps(axes, from_s, from_s + 600) <= 1
    assert abs(axes.history[-1].limit / at_onset - 1) <= 0.25
    assert any(epoch.reason == Reason.ELSEWHERE for epoch in axes.history)


def test_after_a_slow_dependency_the_knee_is_what_it_was() -> None:
    axes = world(16, 16, 5, slow=slower(2.0, 900, 1500))
    axes.run(2700)
    assert all(abs(estimate(epoch) / 16 - 1) <= 0.2 for epoch in axes.history if epoch.at_s >= 2400)


@pytest.mark.case("autoscaler-I13")
@pytest.mark.parametrize(("limit", "replicas"), [(64, 2), (4, 16)])
def test_two_axes_together_neither_run_away_nor_swing(limit: int, replicas: int) -> None:
    """What the load needs is 3.2 knees over a target of 0.8: 4 replicas; with N-1 room, 5."""
    axes = world(16, limit, replicas)
    axes.run(2700)
    growths = [after / before for before, after in pairwise(axes.asked)]
    assert max(growths) <= HORIZONTAL.growth
    settled = axes.asked[len(axes.asked) // 2 :]
    assert max(axes.asked) <= max(16 / limit, 1) * 4 * 2, "a falling target multiplies no pods"
    assert 4 <= min(settled) <= max(settled) <= 6
    turns = sum(a != b for a, b in pairwise(settled))
    assert turns <= 2
    assert steps(axes, 1350, 2700) <= 3


def test_a_full_cpu_tells_the_knee_without_a_question() -> None:
    axes = world(4, 64, 2, load=2.4, scale=False)
    axes.signals = Signals(self_test_ms=1000 * SERVICE_S, cpu=0.99)
    axes.run(300)
    assert axes.history[-1].limit == pytest.approx(4, abs=1)
    assert all(epoch.reason != Reason.PROBING for epoch in axes.history if epoch.at_s < 240)


def test_a_probe_touches_one_pod_and_the_others_keep_their_limit() -> None:
    axes = world(16, 16, 4, scale=False)
    for _ in range(300):
        axes.run(1)
        limits = Counter(pod.limit for pod in axes.fleet.pods.values())
        assert limits.most_common(1)[0][1] >= len(axes.fleet.pods) - 1


def test_a_process_that_takes_over_knows_the_knee_at_once() -> None:
    axes = world(16, 64, 2)
    axes.run(900)
    known = from_plain(Knowledge, to_plain(settled(axes.knowledge)))
    again = world(16, 64, 5, seed=2, knowledge=known)
    again.run(600)
    assert all(abs(estimate(epoch) / 16 - 1) <= 0.2 for epoch in again.history)
