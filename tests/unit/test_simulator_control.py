"""What reaches a policy: samples with their delay, their losses and their faults, and when it is asked."""

import math

import numpy as np

from simulator.control import Control
from simulator.loads import Rates
from simulator.policy import Fleet, Plain, Sample, Seen
from simulator.scenario import Metrics, Restart, Scenario, Span

FLEET = Fleet(ready=2, starting=0)


class Recorder(Plain):
    name = "recorder"
    period_s = 1.0
    window_s = 3.0

    def __init__(self, wanted: int | None = None, delay_s: float = 0.0) -> None:
        self.metric_delay_s = delay_s
        self.wanted = wanted
        self.seen: list[Seen] = []

    def decide(self, seen: Seen) -> int | None:
        self.seen.append(seen)
        return self.wanted


def sample(at_s: float, arrived: float = 1.0) -> Sample:
    return Sample(at_s, arrived, 0, 0, arrived, in_flight=1, queued=0, in_flight_now=1, queued_now=0)


def run(scenario: Scenario, policy: Recorder, seconds: int) -> Control:
    control = Control(scenario, lambda: policy, np.random.default_rng(1))
    for second in range(1, seconds + 1):
        control.observe(sample(float(second), arrived=float(second)))
        control.wanted(float(second), FLEET)
    return control


def scenario(metrics: Metrics | None = None, restarts: tuple[Restart, ...] = (), most: int = 10) -> Scenario:
    load = Rates([1.0] * 100)
    return Scenario(load, metrics=metrics or Metrics(), restarts=restarts, min_replicas=2, max_replicas=most)


def test_a_policy_sees_its_window_as_old_as_its_delay_makes_it() -> None:
    policy = Recorder(delay_s=2.0)
    run(scenario(), policy, 8)
    assert [s.at_s for s in policy.seen[-1].samples] == [4.0, 5.0, 6.0]


def test_late_metrics_add_to_the_delay() -> None:
    policy = Recorder(delay_s=1.0)
    run(scenario(Metrics(late_s=3.0)), policy, 8)
    assert [s.at_s for s in policy.seen[-1].samples] == [2.0, 3.0, 4.0]


def test_counts_of_lost_seconds_are_in_the_next_sample_since_counters_only_grow() -> None:
    """Seconds 2 and 3 are lost; the fourth tells of all three: (2 + 3 + 4) / 3 a second."""
    policy = Recorder()
    run(scenario(Metrics(silent=(Span(2.0, 4.0),))), policy, 4)
    assert [s.known for s in policy.seen[-1].samples] == [False, False, True]
    assert (policy.seen[-1].samples[-1].arrived, policy.seen[-1].samples[-1].span_s) == (3.0, 3.0)


def test_an_absurd_sample_is_known_and_wrong() -> None:
    policy = Recorder()
    run(scenario(Metrics(absurd=1.0)), policy, 30)
    wrong = [s.in_flight for seen in policy.seen for s in seen.samples]
    assert all(not math.isfinite(n) or n < 0 or n >= 1e9 for n in wrong)


def test_what_is_asked_for_stays_inside_the_scenarios_bounds() -> None:
    control = Control(scenario(most=10), lambda: Recorder(wanted=99), np.random.default_rng(1))
    assert control.wanted(1.0, FLEET) == 10
    control = Control(scenario(), lambda: Recorder(wanted=0), np.random.default_rng(1))
    assert control.wanted(1.0, Fleet(ready=5, starting=0)) == 2


def test_a_controller_that_comes_back_knows_nothing_of_before() -> None:
    policy = Recorder()
    run(scenario(restarts=(Restart(5.0, down_s=3.0),)), policy, 10)
    assert [seen.now_s for seen in policy.seen] == [1.0, 2.0, 3.0, 4.0, 8.0, 9.0, 10.0]
    assert [[s.at_s for s in seen.samples] for seen in policy.seen[4:]] == [[], [9.0], [9.0, 10.0]]


def test_a_policy_is_asked_once_a_period() -> None:
    class Slow(Recorder):
        period_s = 15.0

    policy = Slow()
    run(scenario(), policy, 100)
    times = [seen.now_s for seen in policy.seen]
    assert set(np.diff(times)) == {15.0}
    assert times[0] <= 15.0
