"""The supervisor's decisions as scenarios: what ended, what answered, what is held, and when."""

from __future__ import annotations

import pytest

from embedded.specification import Component
from embedded.supervision import (
    TABLE,
    Decision,
    Event,
    Member,
    Observation,
    Phase,
    advance,
    backoff_s,
    decide,
)

STORE = Component("store", ("store",), {}, probe="tcp:127.0.0.1:1")
API = Component("api", ("api",), {}, after=("store",), probe="tcp:127.0.0.1:2", stop_grace_s=5.0)
COMPONENTS = (STORE, API)
NOTHING = Observation({}, frozenset(), frozenset())


def answered(*names: str) -> Observation:
    return Observation({}, frozenset(names), frozenset())


def ended(**how: str) -> Observation:
    return Observation(how, frozenset(), frozenset())


def held(*names: str, **how: str) -> Observation:
    return Observation(how, frozenset(), frozenset(names))


def members(store: Phase, api: Phase, since_s: float = 0.0, failures: int = 0) -> dict[str, Member]:
    return {
        "store": Member(store, since_s, failures, launched_s=0.0),
        "api": Member(api, since_s, failures, launched_s=0.0),
    }


def test_a_component_starts_only_when_those_before_it_are_ready() -> None:
    state, decision = decide(COMPONENTS, {"store": Member(), "api": Member()}, NOTHING, 0.0)
    assert decision == Decision(launch=("store",))
    state, decision = decide(COMPONENTS, state, NOTHING, 1.0)
    assert decision == Decision()
    state, decision = decide(COMPONENTS, state, answered("store"), 2.0)
    assert decision == Decision(launch=("api",))
    assert {name: member.phase for name, member in state.items()} == {"store": "ready", "api": "starting"}


def test_a_component_without_a_probe_is_ready_once_started() -> None:
    alone = Component("alone", ("alone",), {})
    state, _ = decide((alone,), {"alone": Member()}, NOTHING, 0.0)
    state, _ = decide((alone,), state, NOTHING, 0.1)
    assert state["alone"].phase is Phase.READY


def test_a_component_that_ended_starts_again_after_its_back_off() -> None:
    state, decision = decide(COMPONENTS, members(Phase.READY, Phase.READY), ended(api="SIGKILL"), 10.0)
    assert (state["api"].phase, state["api"].last_end, decision) == (Phase.BACKOFF, "SIGKILL", Decision())
    state, decision = decide(COMPONENTS, state, NOTHING, 10.4)
    assert decision == Decision()
    state, decision = decide(COMPONENTS, state, NOTHING, 10.5)
    assert decision == Decision(launch=("api",))


@pytest.mark.parametrize(("failures", "delay_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (6, 15.0), (40, 15.0)])
def test_the_back_off_doubles_up_to_fifteen_seconds(failures: int, delay_s: float) -> None:
    assert backoff_s(failures) == delay_s


def test_a_minute_of_running_clears_earlier_failures() -> None:
    before = members(Phase.READY, Phase.READY, failures=4)
    short, _ = decide(COMPONENTS, before, ended(api="exit code 1"), 59.0)
    long, _ = decide(COMPONENTS, before, ended(api="exit code 1"), 60.0)
    assert (short["api"].failures, long["api"].failures) == (5, 1)


def test_a_held_component_is_asked_then_killed_and_stays_ended() -> None:
    state, decision = decide(COMPONENTS, members(Phase.READY, Phase.READY), held("api"), 10.0)
    assert decision == Decision(terminate=("api",))
    state, decision = decide(COMPONENTS, state, held("api"), 14.9)
    assert decision == Decision()
    state, decision = decide(COMPONENTS, state, held("api"), 15.0)
    assert decision == Decision(kill=("api",))
    state, decision = decide(COMPONENTS, state, held("api", api="SIGKILL"), 15.1)
    assert (state["api"].phase, decision) == (Phase.STOPPED, Decision())
    state, decision = decide(COMPONENTS, state, held("api"), 1000.0)
    assert decision == Decision()


def test_a_component_without_grace_is_killed_at_once() -> None:
    _, decision = decide(COMPONENTS, members(Phase.READY, Phase.READY), held("store"), 10.0)
    assert decision == Decision(kill=("store",))


def test_a_released_component_starts_at_once_and_without_its_failures() -> None:
    state, decision = decide(COMPONENTS, members(Phase.READY, Phase.STOPPED, failures=5), NOTHING, 20.0)
    assert decision == Decision(launch=("api",))
    assert state["api"].failures == 0


def test_a_component_held_while_it_backs_off_does_not_start() -> None:
    state, decision = decide(COMPONENTS, members(Phase.READY, Phase.BACKOFF, failures=1), held("api"), 20.0)
    assert (state["api"].phase, decision) == (Phase.STOPPED, Decision())


def test_a_component_waits_where_the_one_before_it_is_down() -> None:
    _, decision = decide(COMPONENTS, members(Phase.STOPPED, Phase.WAITING), held("store"), 20.0)
    assert decision == Decision()


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_an_edge_that_is_not_in_the_table_raises(phase: Phase, event: Event) -> None:
    member = Member(phase)
    if (phase, event) in TABLE:
        assert advance(member, event, 1.0).phase is TABLE[phase, event]
    else:
        with pytest.raises(ValueError, match=str(phase)):
            advance(member, event, 1.0)


def test_deciding_changes_no_argument() -> None:
    before = members(Phase.READY, Phase.READY)
    copy = dict(before)
    decide(COMPONENTS, before, ended(api="SIGKILL"), 10.0)
    assert before == copy
