"""What holds of every run, whatever the scenario."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.loads import Rates
from simulator.ours import ours
from simulator.policy import Plain, QueueRules, Seen, Waits
from simulator.result import Result
from simulator.scenario import Clients, Metrics, Restart, Scenario, Service, Slow, Span, StartUp
from simulator.simulate import Engine, simulate

few = settings(max_examples=40, deadline=None)


class Erratic(Plain):
    """Asks for another number each time, from zero up, and keeps another queue."""

    name = "erratic"
    period_s = 2.0

    def __init__(self, numbers: list[int], queue: QueueRules) -> None:
        self.queue = queue
        self._numbers = numbers
        self._turn = 0

    def decide(self, seen: Seen) -> int | None:
        self._turn += 1
        return self._numbers[self._turn % len(self._numbers)]


@st.composite
def queues(draw: st.DrawFn) -> QueueRules:
    return QueueRules(
        waits=draw(st.sampled_from(Waits)),
        total=draw(st.none() | st.integers(0, 30)),
        per_replica=draw(st.integers(0, 5)),
        timeout_s=draw(st.none() | st.floats(0.2, 5)),
        holds_at_zero=draw(st.booleans()),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    rates = draw(st.lists(st.floats(0, 60), min_size=5, max_size=25))
    spans = st.builds(lambda begin, length: Span(begin, begin + length), st.floats(0, 20), st.floats(0, 10))
    shares = st.sampled_from([0.0, 0.3])
    return Scenario(
        load=Rates(rates, cv=draw(st.sampled_from([0.0, 0.5, 1.0, 3.0]))),
        service=Service(
            draw(st.sampled_from([0.05, 0.2, 1.5])),
            draw(st.sampled_from([0.0, 0.5, 1.0])),
            draw(st.none() | st.floats(1, 8)),
        ),
        start_up=StartUp(draw(st.floats(0.5, 8)), failing=draw(shares)),
        slots=draw(st.integers(1, 8)),
        min_replicas=draw(st.integers(0, 2)),
        max_replicas=6,
        warm_up_s=draw(st.sampled_from([0.0, 3.0])),
        clients=Clients(draw(st.integers(1, 3)), draw(st.floats(0.1, 3)), draw(st.booleans())),
        metrics=Metrics(draw(shares), draw(shares), draw(st.sampled_from([0.0, 3.0]))),
        slow=tuple(Slow(span, 2.0) for span in draw(st.lists(spans, max_size=2))),
        rollouts_s=tuple(draw(st.lists(st.floats(0, 20), max_size=2))),
        restarts=tuple(Restart(at_s) for at_s in draw(st.lists(st.floats(0, 20), max_size=1))),
    )


numbers = st.lists(st.integers(0, 6), min_size=1, max_size=6)
engines = st.sampled_from(Engine)


@few
@given(scenarios(), numbers, queues(), engines)
def test_what_arrived_was_completed_refused_or_is_still_there(
    scenario: Scenario, wanted: list[int], queue: QueueRules, engine: Engine
) -> None:
    found = simulate(scenario, lambda: Erratic(wanted, queue), 1, engine)
    assert found.attempts == found.completed + found.turned_away + found.unfinished
    assert found.requests <= found.attempts
    assert found.bad <= found.requests
    assert found.lost <= found.turned_away
    assert min(found.refused, found.late, found.unfinished) >= 0


@few
@given(scenarios(), numbers, queues(), engines, st.integers(0, 5))
def test_a_seed_makes_a_run_exact(
    scenario: Scenario, wanted: list[int], queue: QueueRules, engine: Engine, seed: int
) -> None:
    one, other = (simulate(scenario, lambda: Erratic(wanted, queue), seed, engine) for _ in range(2))
    assert one == other


@few
@given(scenarios(), numbers, queues())
def test_both_engines_see_the_same_requests(scenario: Scenario, wanted: list[int], queue: QueueRules) -> None:
    exact, coarse = (simulate(scenario, lambda: Erratic(wanted, queue), 3, engine) for engine in Engine)
    assert exact.series.arrived == coarse.series.arrived


@few
@given(scenarios(), st.integers(1, 5), st.integers(1, 5), st.integers(0, 20))
def test_more_replicas_refuse_no_more_of_equal_requests(scenario: Scenario, size: int, more: int, waiting: int) -> None:
    """Of equal service times and without deadlines, so that a request let in keeps no second one out."""
    queue = QueueRules(total=waiting)
    calm = replace(scenario, service=Service(0.5, cv=0.0), min_replicas=0, max_replicas=20, slow=(), rollouts_s=(),
                   clients=Clients(), restarts=(), start_up=StartUp(), warm_up_s=0.0)  # fmt: skip
    small, large = (_refusing(replace(calm, initial_replicas=n), n, queue) for n in (size, size + more))
    assert large.refused <= small.refused
    assert large.late <= small.late + max(small.refused - large.refused, 0)


def _refusing(scenario: Scenario, replicas: int, queue: QueueRules) -> Result:
    return simulate(scenario, lambda: Erratic([replicas], queue), 1, Engine.EXACT)


@few
@given(scenarios(), engines, st.integers(0, 3))
def test_ours_survives_every_scenario_and_stays_inside_its_bounds(
    scenario: Scenario, engine: Engine, seed: int
) -> None:
    scenario = replace(scenario, min_replicas=max(scenario.min_replicas, 1), rollouts_s=())
    found = simulate(scenario, ours(scenario), seed, engine)
    assert all(scenario.min_replicas <= issued <= scenario.max_replicas for issued in found.series.issued)


@pytest.mark.parametrize("engine", list(Engine))
def test_a_fault_of_the_metrics_changes_neither_the_load_nor_the_starts(engine: Engine) -> None:
    scenario = Scenario(Rates([20.0] * 60, cv=2.0))
    well = simulate(scenario, lambda: Erratic([3, 5], QueueRules()), 1, engine)
    ill = simulate(replace(scenario, metrics=Metrics(lost=0.5)), lambda: Erratic([3, 5], QueueRules()), 1, engine)
    assert ill.series == well.series
