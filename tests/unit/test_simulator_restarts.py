"""What a simulated restart of the controller loses, and what its checkpoint brings over."""

from dataclasses import replace

import pytest

from simulator.loads import Rates
from simulator.ours import Ours, ours
from simulator.policy import NewPolicy, Policy
from simulator.scenario import Restart, Scenario, StartUp
from simulator.simulate import Engine, simulate

# 400 requests a second at 0.2 s are 80 in flight, at a target of 8 ten replicas; 40 are one.
FALLEN = Scenario(Rates([400.0] * 200 + [40.0] * 300), initial_replicas=11, max_replicas=40, start_up=StartUp(10.0))


def lowered_at(scenario: Scenario) -> int:
    """The first second after the load fell in which fewer than half of the replicas are issued."""
    issued = simulate(scenario, ours(scenario, vertical=False), 1, Engine.COARSE).series.issued
    return next(second for second, count in enumerate(issued) if second > 200 and count < 6)


@pytest.mark.parametrize("at_s", [230.0, 262.0, 299.0])
def test_a_restart_takes_no_window_anew_where_a_checkpoint_and_the_balancers_count_tell_the_past(at_s: float) -> None:
    undisturbed, restarted = lowered_at(FALLEN), lowered_at(replace(FALLEN, restarts=(Restart(at_s),)))
    assert abs(restarted - undisturbed) <= 15
    assert restarted < at_s + 120


def test_a_restart_before_the_first_checkpoint_waits_for_a_whole_window() -> None:
    scenario = replace(FALLEN, load=Rates([400.0] * 20 + [40.0] * 300), restarts=(Restart(50.0, down_s=5.0),))
    issued = simulate(scenario, ours(scenario, vertical=False), 1, Engine.COARSE).series.issued
    assert min(issued[: 55 + 119]) >= 6


def test_a_learnt_limit_outlives_a_restart() -> None:
    scenario = Scenario(Rates([200.0] * 420), slots=40, initial_replicas=6, max_replicas=20, start_up=StartUp(10.0))
    scenario = replace(scenario, service=replace(scenario.service, knee=10.0), restarts=(Restart(400.0),))
    made: list[Policy] = []
    new_policy: NewPolicy = ours(scenario)

    def noted() -> Policy:
        made.append(new_policy())
        return made[-1]

    simulate(scenario, noted, 1, Engine.EXACT)
    first, second = made
    assert isinstance(first, Ours) and isinstance(second, Ours)
    assert first.knee is not None
    assert second.knee == pytest.approx(first.knee, rel=0.2)
