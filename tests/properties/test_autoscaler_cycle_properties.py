"""Whole cycles under any load, any pods and any hold: total, within bounds, and the same again from a record."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.autoscaler.checkpoint import Checkpoint, entry_of, parse_entry
from controllers.autoscaler.circuit import Phase
from controllers.autoscaler.control import Control, Mode
from controllers.autoscaler.cycle import Inputs, Remembered, cycle
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Revision, Role, observation_of
from controllers.autoscaler.record import Kind, Record, difference, line_of, parse_line
from controllers.autoscaler.settings import Settings
from spec.sizing import ceiling_replicas, floor_replicas

SETTINGS = Settings()
BOUNDS = (16, 800)
TARGET = 8.0

amounts = st.one_of(st.none(), st.floats(0, 1e6))
controls = st.one_of(
    st.none(),
    st.builds(Control, st.sampled_from([Mode.PAUSE, Mode.DRY_RUN])),
    st.builds(Control, st.just(Mode.SCALE), st.integers(1, 100_000), st.just(1e12)),
)
moments = st.tuples(
    amounts, st.integers(0, 50), st.integers(0, 50), controls, st.one_of(st.none(), st.integers(0, 200))
)


def inputs(seen: tuple[float | None, int, int, Control | None, int | None], asked: int, now_s: float) -> Inputs:
    in_flight, ready, failing, control, budget = seen
    load = None if in_flight is None else Load(in_flight, 0.0, in_flight / 0.2, in_flight / 0.2, 0.0)
    samples = [LoadSample(now_s - age_s, load, load is not None) for age_s in range(5)]
    revision = Revision("iris-a", Role.TRAFFIC, 10, TARGET, asked, ready, asked, failing=failing)
    observation = observation_of(samples, (revision,), BOUNDS, SETTINGS, now_s)
    return Inputs(replace(observation, budget=budget), SETTINGS, now_s, control)


@settings(deadline=None, max_examples=60)
@given(st.lists(moments, min_size=1, max_size=12))
def test_any_run_of_cycles_is_bounded_and_its_records_decide_the_same(
    seen: list[tuple[float | None, int, int, Control | None, int | None]],
) -> None:
    remembered, asked = Remembered(), 2
    for turn_number, each in enumerate(seen):
        given_now = inputs(each, asked, 1000.0 + 7.0 * turn_number)
        before = remembered
        remembered, turn = cycle(before, given_now)
        (decision,) = turn.verdict.decisions
        assert decision.desired <= ceiling_replicas(BOUNDS[1], TARGET) or decision.desired == asked
        circuit = remembered.circuits.get("iris-a")
        is_open = circuit is not None and circuit.phase is not Phase.CLOSED
        if is_open:
            assert circuit is not None and decision.desired <= max(circuit.most, asked)
        if not is_open and each[4] is None:
            assert decision.desired >= floor_replicas(BOUNDS[0], TARGET)
        record = Record(1.0, "t", "iris", "u", Kind.CHANGE, before, given_now, turn)
        assert difference(parse_line(line_of(record))) is None
        asked = decision.desired


@settings(deadline=None, max_examples=60)
@given(st.lists(moments, min_size=1, max_size=8), st.integers(-(10**6), 10**6))
def test_what_is_remembered_survives_a_checkpoint_up_to_the_clocks_rounding(
    seen: list[tuple[float | None, int, int, Control | None, int | None]], offset_s: int
) -> None:
    remembered = Remembered()
    for turn_number, each in enumerate(seen):
        remembered, _ = cycle(remembered, inputs(each, 2, 1000.0 + 7.0 * turn_number))
    kept = Checkpoint("u", 1.0, remembered)
    assert parse_entry(entry_of(kept, float(offset_s)), float(offset_s)) == kept
