"""What rests is left alone for a minute, is looked at at once when something happens, and its past has no hole."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controllers.autoscaler.circuit import Circuit, Phase
from controllers.autoscaler.control import Control, Mode
from controllers.autoscaler.core import State, decide
from controllers.autoscaler.cycle import Remembered
from controllers.autoscaler.load import ZERO, Load, LoadSample
from controllers.autoscaler.observation import Observation, Revision, Role, observation_of
from controllers.autoscaler.rest import DOUBT_S, REST_S, is_filled, rest_s, rested
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.view import Endpoint, endpoint_of

SETTINGS = Settings()
BUSY = Load(3.0, 0.0, 10.0, 10.0, 0.0, 0.0)
ENDPOINT: Endpoint = endpoint_of(
    {
        "metadata": {"namespace": "team-alpha", "name": "iris", "uid": "u"},
        "spec": {"concurrency": {"min": 1, "max": 100}, "runtime": {"initialLimit": 10}},
    }
)


def samples(load: Callable[[float], Load | None], now_s: float) -> list[LoadSample]:
    """Of the last minute, as the sampler keeps them."""
    seconds = [now_s - age_s for age_s in range(62) if now_s - age_s >= 0]
    return [LoadSample(at_s, load(at_s), load(at_s) is not None) for at_s in seconds[::-1]]


def observation(load: Callable[[float], Load | None], now_s: float, asked: int = 1) -> Observation:
    revision = Revision("iris-a", Role.TRAFFIC, 10, 8.0, live=1, ready=1, asked=asked)
    return observation_of(samples(load, now_s), [revision], (1, 100), SETTINGS, now_s)


def quiet(now_s: float) -> Load | None:
    return ZERO


def looked_at(load: Callable[[float], Load | None], until_s: int) -> Remembered:
    """Every five seconds."""
    state = State()
    for now_s in range(5, until_s + 1, 5):
        state, _ = decide(state, observation(load, now_s), SETTINGS, now_s)
    return Remembered(state)


@pytest.mark.parametrize(
    ("load", "expected_s"),
    [(quiet, REST_S), (lambda now_s: BUSY, 0.0), (lambda now_s: None if now_s > 180 else ZERO, DOUBT_S)],
    ids=["no load", "load", "unknown"],
)
def test_an_endpoint_rests_while_no_load_comes_and_less_while_it_is_unknown(
    load: Callable[[float], Load | None], expected_s: float
) -> None:
    _, verdict = decide(looked_at(load, 200).state, observation(load, 205.0), SETTINGS, 205.0)
    assert rest_s(ENDPOINT, verdict, {}) == expected_s


def test_it_does_not_rest_while_a_peak_is_remembered_or_replicas_are_to_be_changed() -> None:
    remembered = looked_at(lambda now_s: BUSY if now_s < 100 else ZERO, 200)
    _, verdict = decide(remembered.state, observation(quiet, 205.0), SETTINGS, 205.0)
    assert rest_s(ENDPOINT, verdict, {}) == 0
    _, verdict = decide(looked_at(quiet, 200).state, observation(quiet, 205.0, asked=3), SETTINGS, 205.0)
    assert verdict.decisions[0].desired != 3
    assert rest_s(ENDPOINT, verdict, {}) == 0


@pytest.mark.parametrize(("asked", "expected_s"), [(1, REST_S), (3, 0.0)])
def test_a_decrease_that_waits_for_its_window_is_not_slept_over(asked: int, expected_s: float) -> None:
    _, verdict = decide(looked_at(quiet, 60).state, observation(quiet, 65.0, asked), SETTINGS, 65.0)
    assert (verdict.decisions[0].desired, verdict.decisions[0].reason) == (asked, Reason.HISTORY)
    assert rest_s(ENDPOINT, verdict, {}) == expected_s


def test_what_ends_by_itself_is_not_slept_over() -> None:
    _, verdict = decide(looked_at(quiet, 200).state, observation(quiet, 205.0), SETTINGS, 205.0)
    held = replace(ENDPOINT, control=Control(Mode.PAUSE))
    assert rest_s(held, verdict, {}) == 0
    assert rest_s(ENDPOINT, verdict, {"iris-a": Circuit(Phase.OPEN)}) == 0


def test_after_a_rest_the_windows_are_as_if_it_had_been_looked_at() -> None:
    found = rested(looked_at(quiet, 200), samples(quiet, 260.0), SETTINGS, 260.0)
    always = looked_at(quiet, 260)
    for state in (found.state, always.state):
        assert state.demands.covers(260.0, SETTINGS.down_window_s, SETTINGS.gap_s)
        assert state.demands.maximum(260.0, SETTINGS.down_window_s) == 0
    assert len(found.state.recent.highs) == pytest.approx(len(always.state.recent.highs), abs=1)
    assert found.state.known_at_s == 260.0
    assert is_filled(found, 265.0)


def test_a_rest_that_load_ended_is_known_up_to_the_load() -> None:
    def load(now_s: float) -> Load:
        return BUSY if now_s >= 238 else ZERO

    found = rested(looked_at(quiet, 200), samples(load, 240.0), SETTINGS, 240.0).state
    assert found.demands.known_at_s == 230.0
    assert found.demands.maximum(240.0, SETTINGS.down_window_s) == 0


@pytest.mark.parametrize("missing", [Load(0.0, 0.0), None], ids=["a lower bound", "unknown"])
def test_a_span_of_which_nothing_is_known_in_full_leaves_its_hole_and_a_second_does_not(missing: Load | None) -> None:
    def torn(since_s: float, until_s: float) -> list[LoadSample]:
        every = samples(quiet, 260.0)
        return [replace(s, load=missing, complete=False) if since_s < s.at_s <= until_s else s for s in every]

    found = rested(looked_at(quiet, 200), torn(210.0, 220.0), SETTINGS, 260.0)
    assert found.state.demands.known_at_s == found.state.known_at_s == 210.0
    assert not is_filled(found, 260.0)
    assert is_filled(rested(looked_at(quiet, 200), torn(210.0, 211.0), SETTINGS, 260.0), 260.0)
    assert rested(looked_at(quiet, 200), [], SETTINGS, 260.0) == looked_at(quiet, 200)


def test_between_two_usual_cycles_there_is_nothing_to_fill() -> None:
    remembered = looked_at(quiet, 200)
    assert rested(remembered, samples(quiet, 205.0), SETTINGS, 205.0) is remembered
    assert rested(Remembered(), samples(quiet, 205.0), SETTINGS, 205.0) == Remembered()
