"""Every contender of the benchmark through a short run, with good metrics and with bad ones."""

import pytest

from simulator.loads import Rates
from simulator.scenario import Metrics, Scenario, Service, Span, StartUp
from simulator.simulate import simulate
from tests.bench.autoscaler.contenders import BY_NAME
from tests.bench.autoscaler.loads import Traffic

STEP = Traffic("step", Rates([20.0] * 120 + [120.0] * 280), service_s=0.5)
FEEDBACK = [name for name, contender in BY_NAME.items() if contender.family not in ("static", "prompt", "clairvoyant")]


def scenario(metrics: Metrics) -> Scenario:
    return Scenario(
        load=STEP.load,
        service=Service(0.5, 0.3),
        start_up=StartUp(10.0),
        slots=8,
        max_replicas=40,
        initial_replicas=2,
        objective_s=1.25,
        metrics=metrics,
    )


@pytest.mark.parametrize("name", BY_NAME)
def test_a_step_of_six_times_is_met_in_the_end(name: str) -> None:
    setting = 16 if name == "static" else 0.7
    result = simulate(scenario(Metrics()), BY_NAME[name].make(STEP, 10.0, setting), 0)
    needed = 120 * 0.5 / 8  # at full slots
    assert result.series.ready[-1] >= needed
    assert result.series.queued[-1] < 40


@pytest.mark.parametrize("name", FEEDBACK)
def test_lost_absurd_and_silent_metrics_end_no_run(name: str) -> None:
    bad = Metrics(lost=0.3, absurd=0.2, silent=(Span(200.0, 280.0),))
    result = simulate(scenario(bad), BY_NAME[name].make(STEP, 10.0, 0.7), 0)
    assert result.measured_s == 400.0
