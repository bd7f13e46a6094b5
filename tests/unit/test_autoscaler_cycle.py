"""One whole cycle: the parts in their order, what is remembered, who holds, and a record that replays bit for bit."""

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from controllers.autoscaler.circuit import Circuit, Phase
from controllers.autoscaler.control import Control, Mode
from controllers.autoscaler.cycle import Inputs, Remembered, Turn, cycle
from controllers.autoscaler.holds import Hold, holds
from controllers.autoscaler.learning import Lesson
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Revision, Role, observation_of
from controllers.autoscaler.plain import Unreadable
from controllers.autoscaler.record import Kind, LimitRecord, Record, difference, line_of, parse_line
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.vertical.baseline import Baseline
from controllers.autoscaler.vertical.evidence import Evidence, Point
from controllers.autoscaler.vertical.knowledge import Knowledge
from controllers.autoscaler.vertical.learner import learn
from controllers.autoscaler.vertical.settings import Settings as Learner
from controllers.autoscaler.vertical.signals import Signals

SETTINGS = Settings()


def revision(**changes: object) -> Revision:
    return replace(Revision("iris-a", Role.TRAFFIC, 10, 8.0, live=2, ready=2, asked=2), **changes)  # type: ignore[arg-type]


def inputs(
    in_flight: float | None, now_s: float = 100.0, control: Control | None = None, revisions: Iterable[Revision] = ()
) -> Inputs:
    load = None if in_flight is None else Load(in_flight, 0.0, in_flight / 0.3, in_flight / 0.3, 0.0)
    samples = [LoadSample(now_s - age_s, load, load is not None) for age_s in range(70)]
    observed = observation_of(samples, tuple(revisions) or (revision(),), (1, 800), SETTINGS, now_s)
    return Inputs(observed, SETTINGS, now_s, control)


def turn(given: Inputs, remembered: Remembered | None = None) -> Turn:
    return cycle(remembered or Remembered(), given)[1]


def wanted(given: Inputs, remembered: Remembered | None = None) -> tuple[int, str]:
    (decision,) = turn(given, remembered).verdict.decisions
    return decision.desired, str(decision.reason)


def test_without_a_hold_and_with_pods_that_start_the_load_decides() -> None:
    assert wanted(inputs(40.0)) == (5, "Load")


@pytest.mark.case("autoscaler-C8")
def test_an_open_circuit_asks_for_no_more_and_one_that_is_half_open_for_one_more() -> None:
    failing = (revision(failing=2, ready=0),)
    first, opened = cycle(Remembered(), inputs(40.0, revisions=failing))
    assert [(d.desired, str(d.reason)) for d in opened.verdict.decisions] == [(2, "CircuitOpen")]
    assert opened.proposed.decisions[0].desired == 5, "what the load asks for is told"
    assert wanted(inputs(40.0, 140.0, revisions=failing), first) == (3, "CircuitOpen")


def test_the_circuit_binds_a_persons_number_too() -> None:
    shut = Remembered(circuits={"iris-a": Circuit(Phase.OPEN, 99.0, 30.0, ready=2, most=2)})
    assert wanted(inputs(40.0, control=Control(Mode.SCALE, 9, 1e9), revisions=(revision(failing=2),)), shut)[0] == 2


def test_a_circuit_lowers_nothing() -> None:
    shut = Remembered(circuits={"iris-a": Circuit(Phase.OPEN, 99.0, 30.0, ready=4, most=2)})
    assert wanted(inputs(40.0, revisions=(revision(failing=2, asked=4, live=4),)), shut)[0] == 4


def test_the_last_service_time_and_time_to_ready_are_remembered_while_they_are_unknown() -> None:
    seen, _ = cycle(Remembered(), inputs(40.0, revisions=(revision(start_s=12.0),)))
    assert seen.service_time_s == pytest.approx(0.3)
    blind, _ = cycle(seen, inputs(None, 200.0))
    assert (blind.service_time_s, blind.start_s) == (seen.service_time_s, 12.0)


def test_a_closed_circuit_that_never_opened_takes_no_room() -> None:
    assert cycle(Remembered(), inputs(40.0, revisions=(revision(ready=0),)))[0].circuits == {}


def told(given: Inputs, remembered: Remembered | None = None, ignored: str | None = None) -> list[Hold]:
    after, made = cycle(remembered or Remembered(), given)
    return list(holds(made, after.circuits, given.control, ignored, SETTINGS))


def test_an_endpoint_that_follows_its_load_is_held_by_nobody() -> None:
    assert told(inputs(40.0)) == []


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        (inputs(9e9, revisions=(revision(asked=90),)), "AtCeiling", "concurrency.max"),
        (inputs(40.0, control=Control(Mode.PAUSE)), "Paused", "until `knobless resume`"),
        (inputs(40.0, control=Control(Mode.PAUSE, None, 0.0)), "Paused", "until 1970-01-01T00:00:00Z"),
        (inputs(40.0, control=Control(Mode.DRY_RUN)), "DryRun", "the load asks for 5"),
        (inputs(40.0, control=Control(Mode.SCALE, 9, 0.0)), "Overridden", "9 replicas until 1970-01-01T00:00:00Z"),
        (inputs(40.0, revisions=(revision(failing=2),)), "CircuitOpen", "iris-a gets no more than 2 replicas for 30 s"),
    ],
)
def test_who_holds_is_told(given: Inputs, kind: str, says: str) -> None:
    found = told(given)
    assert [hold.kind for hold in found] == [kind]
    assert says in found[0].message


@pytest.mark.case("autoscaler-A3")
def test_a_load_that_has_been_unknown_for_a_minute_holds() -> None:
    after, _ = cycle(Remembered(), inputs(40.0))
    assert [hold.kind for hold in told(inputs(None, 130.0), after)] == []
    assert [hold.kind for hold in told(inputs(None, 161.0), after)] == ["MetricsUnavailable"]


def test_the_budget_is_told_as_a_hold() -> None:
    given = inputs(40.0)
    short = replace(given, observation=replace(given.observation, budget=3))
    assert [hold.kind for hold in told(short)] == ["AtBudget"]


def test_a_hold_that_cannot_be_read_is_ignored_and_told() -> None:
    assert told(inputs(40.0), ignored="'x' is no JSON") == [
        Hold("ControlIgnored", "the annotation of a hold is ignored: 'x' is no JSON")
    ]


def lesson() -> LimitRecord:
    """A replica under stress: its limit is cut."""
    learner = Learner()
    before = Knowledge(limit=20, baseline=Baseline(0.1, 10, 0.1, 1.7e9))
    evidence = Evidence(20, 3, 30.0, 30.0, 1 / 3, Point(19.0, 0.4, 3000.0), signals=Signals(cpu=1.0, memory=0.99))
    after, advice = learn(before, evidence, learner, 1.7e9 + 0.1)
    taught = Lesson("iris-a", before, evidence, learner, 1.7e9 + 0.1, after, advice)
    return LimitRecord(1.7e9, "team-alpha", "iris", "u1", Kind.LIMIT, taught)


def test_a_lesson_that_moves_the_limit_is_a_change() -> None:
    assert lesson().lesson.is_change
    assert not replace(lesson().lesson, after=lesson().lesson.before).is_change


def test_a_lesson_that_would_come_out_otherwise_tells_where() -> None:
    plain = json.loads(line_of(lesson()))
    plain["lesson"]["advice"]["limit"] = 99
    assert str(difference(parse_line(json.dumps(plain)))).startswith("advice.limit: ")


def record(given: Inputs, remembered: Remembered | None = None) -> Record:
    before = remembered or Remembered()
    _, made = cycle(before, given)
    return Record(1_700_000_000.123, "team-alpha", "iris", "u1", Kind.CHANGE, before, given, made)


EVERY_KIND = [
    record(inputs(40.0)),
    record(inputs(None)),
    record(inputs(1 / 3, 1e9 / 7, Control(Mode.SCALE, 9, 0.1))),
    record(
        inputs(40.0, revisions=(revision(failing=2, start_s=0.1 + 0.2),)), cycle(Remembered(), inputs(90.0, 95.0))[0]
    ),
]


@pytest.mark.parametrize("made", [*EVERY_KIND, lesson()])
def test_a_record_is_one_line_that_is_read_as_the_same_and_decides_the_same(made: Record | LimitRecord) -> None:
    line = line_of(made)
    assert "\n" not in line
    assert parse_line(line) == made
    assert difference(parse_line(line)) is None


def test_a_record_of_other_decisions_tells_the_first_difference() -> None:
    plain = json.loads(line_of(record(inputs(40.0))))
    plain["turn"]["verdict"]["decisions"][0]["desired"] = 4
    assert difference(parse_line(json.dumps(plain))) == "verdict.decisions.0.desired: 5, was 4"


@pytest.mark.parametrize(
    ("line", "says"), [("", "Expecting value"), ("[1]", "schema None"), ('{"schema": 2}', "schema 2; this program")]
)
def test_a_line_that_is_no_record_says_so(line: str, says: str) -> None:
    with pytest.raises(Unreadable, match=says):
        parse_line(line)
