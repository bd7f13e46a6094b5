"""A person's hold: how it is written, when it ends, and what binds it all the same."""

import json
from dataclasses import replace

import pytest

from controllers.autoscaler.control import Control, Mode, control_text, controlled, in_force, parse_control
from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.demand import Demand
from controllers.autoscaler.observation import Observation, Role
from controllers.autoscaler.rules import Reason

OBSERVED = Observation(None, None, None, 16, 80, ())  # floor 2, ceiling 10 at target 8


def decision(role: Role = Role.TRAFFIC, issued: int = 4, desired: int = 6, target: float = 8.0) -> Decision:
    return Decision(f"iris-{role}", role, 10, target, issued, desired, Reason.LOAD, (("raw", desired),), True)


def held(control: Control | None, *decisions: Decision, observed: Observation = OBSERVED) -> list[tuple[int, str]]:
    verdict = Verdict(decisions or (decision(),), Demand(40.0, True, False), 40.0, 0.0)
    return [(d.desired, str(d.reason)) for d in controlled(verdict, observed, control).decisions]


def scale(replicas: int) -> Control:
    return Control(Mode.SCALE, replicas, 1_000.0)


@pytest.mark.parametrize("control", [Control(Mode.PAUSE), Control(Mode.DRY_RUN, None, 5.0), scale(7)])
def test_what_is_written_is_read_as_the_same_hold(control: Control) -> None:
    assert parse_control(control_text(control)) == control


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no", "'no' is no JSON"),
        ("[]", "no JSON object"),
        ("{}", "mode None is none of pause, dry-run, scale"),
        ('{"mode": "stop"}', "mode 'stop'"),
        ('{"mode": "scale", "until": "2026-01-01T00:00:00Z"}', "replicas None is no whole number"),
        ('{"mode": "scale", "replicas": 0, "until": "2026-01-01T00:00:00Z"}', "replicas 0"),
        ('{"mode": "scale", "replicas": true, "until": "2026-01-01T00:00:00Z"}', "replicas True"),
        ('{"mode": "scale", "replicas": 10000000, "until": "2026-01-01T00:00:00Z"}', "replicas 10000000"),
        ('{"mode": "scale", "replicas": 3}', "scale needs until"),
        ('{"mode": "pause", "until": "soon"}', "until 'soon' is no time"),
    ],
)
def test_what_cannot_be_read_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("[", r"\[")):
        parse_control(text)


def test_a_hold_ends_at_its_time_and_one_without_a_time_does_not() -> None:
    assert in_force(scale(3), 999.0) == scale(3)
    assert in_force(scale(3), 1_000.0) is None
    assert in_force(Control(Mode.PAUSE), 1e12) == Control(Mode.PAUSE)
    assert in_force(None, 0.0) is None


@pytest.mark.parametrize(
    ("control", "outcome"),
    [
        (None, (6, "Load")),
        (Control(Mode.PAUSE), (4, "Paused")),
        (Control(Mode.DRY_RUN), (4, "DryRun")),
        (scale(7), (7, "Overridden")),
        (scale(1), (2, "Overridden")),
        (scale(99), (10, "Overridden")),
    ],
    ids=["none", "pause", "dry run", "scale", "floor binds", "ceiling binds"],
)
def test_a_hold_sets_the_replicas_within_the_range(control: Control | None, outcome: tuple[int, str]) -> None:
    assert held(control) == [outcome]


def test_the_budget_binds_last() -> None:
    assert held(scale(9), observed=replace(OBSERVED, budget=3)) == [(3, "Overridden")]
    assert held(Control(Mode.PAUSE), decision(issued=1), observed=replace(OBSERVED, budget=1)) == [(1, "Paused")]


def test_the_trace_tells_the_hold_and_what_bound_it() -> None:
    verdict = Verdict((decision(),), Demand(40.0, True, False), 40.0, 0.0)
    (found,) = controlled(verdict, OBSERVED, scale(99)).decisions
    assert found.trace == (("raw", 6), ("Overridden", 99), ("ceiling", 10))


@pytest.mark.case("autoscaler-D3")
def test_a_successor_gets_what_the_held_revision_has_over_its_own_target() -> None:
    both = (decision(), decision(Role.SUCCESSOR, issued=1, desired=12, target=4.0))
    assert held(Control(Mode.PAUSE), *both) == [(4, "Paused"), (8, "Load")]
    assert held(scale(7), *both) == [(7, "Overridden"), (14, "Load")]


@pytest.mark.case("autoscaler-D6")
def test_a_hold_lowers_no_successor_and_touches_none_that_is_parked() -> None:
    both = (decision(), decision(Role.SUCCESSOR, issued=9, desired=9), decision(Role.PARKED, issued=5, desired=5))
    assert held(scale(2), *both)[1:] == [(9, "Load"), (5, "Load")]


def test_a_first_revision_without_traffic_is_held_too() -> None:
    assert held(scale(7), decision(Role.SUCCESSOR, issued=1)) == [(7, "Overridden")]


def test_the_annotation_is_plain_json_that_a_person_can_write_too() -> None:
    assert json.loads(control_text(Control(Mode.SCALE, 5, 0.0))) == {
        "mode": "scale",
        "replicas": 5,
        "until": "1970-01-01T00:00:00Z",
    }
