"""What holds of every decision, whatever is seen."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controllers.autoscaler.core import Eased, State, decide
from controllers.autoscaler.demand import Surge
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Observation, Revision, Role, observation_of
from controllers.autoscaler.recent import Recent
from controllers.autoscaler.service_time import likely_time_s, service_time_s
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Demands, Means, means
from spec.sizing import ceiling_replicas, floor_replicas, replicas_for, target_of

NOW_S = 1000.0
numbers = st.floats(0, 1e12, allow_nan=False)
anything = st.floats(allow_nan=True, allow_infinity=True)


@st.composite
def loads(draw: st.DrawFn) -> Means:
    rates = st.none() | numbers
    return Means(draw(numbers), draw(numbers), draw(rates), draw(rates), draw(rates), draw(st.booleans()), draw(rates))


@st.composite
def revisions(draw: st.DrawFn, role: Role) -> Revision:
    limit = draw(st.integers(1, 5000))
    live = draw(st.integers(0, 5000))
    asked = draw(st.none() | st.integers(0, 5000))
    target = target_of(limit, draw(st.floats(0.1, 1.0)))
    return Revision(str(role), role, limit, target, live, draw(st.integers(0, live)), asked, learnt=draw(st.booleans()))


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    low, span = draw(st.integers(1, 5000)), draw(st.integers(0, 50_000))
    roles = draw(st.lists(st.sampled_from(list(Role)), unique=True, max_size=4))
    return Observation(
        fast=draw(st.none() | loads()),
        slow=draw(st.none() | loads()),
        service_time_s=draw(st.none() | st.floats(0, 1000)),
        concurrency_min=low,
        concurrency_max=low + span,
        revisions=tuple(draw(revisions(role)) for role in roles),
        sharp=draw(st.none() | loads()),
        noise_rps=draw(st.none() | numbers),
        likely_time_s=draw(st.none() | st.floats(0, 1000)),
        measured_before=draw(st.booleans()),
    )


@st.composite
def states(draw: st.DrawFn) -> State:
    past, recent = Demands(), Recent()
    for turn, demand in enumerate(draw(st.lists(st.none() | numbers, max_size=70))):
        if demand is not None:
            past = past.add(NOW_S - 350 + 5.0 * turn, demand, draw(st.booleans()), 300.0, 20.0)
            recent = recent.add(NOW_S - 350 + 5.0 * turn, demand, 10, 300.0)
    surge = draw(st.none() | st.builds(Surge, st.floats(0, NOW_S), numbers))
    eased = draw(st.none() | st.builds(Eased, st.floats(0, NOW_S), st.floats(0.01, 5000)))
    return State(past, draw(st.none() | st.floats(0, NOW_S)), recent, surge, eased)


settings = st.builds(
    Settings,
    down_window_s=st.floats(5, 600),
    growth=st.floats(1.01, 100),
    headroom=st.floats(0.5, 1.0),
)


def bounds(observation: Observation, target: float) -> tuple[int, int]:
    return (
        floor_replicas(observation.concurrency_min, target),
        ceiling_replicas(observation.concurrency_max, target),
    )


@given(states(), observations(), settings)
@pytest.mark.case("autoscaler-B1")
@pytest.mark.case("autoscaler-B3")
def test_every_scaled_revision_is_inside_floor_and_ceiling(
    state: State, observation: Observation, chosen: Settings
) -> None:
    _, verdict = decide(state, observation, chosen, NOW_S)
    assert len(verdict.decisions) == len(observation.revisions)
    declared = {revision.name: revision.target for revision in observation.revisions}
    for decision in verdict.decisions:
        if decision.role in (Role.TRAFFIC, Role.SUCCESSOR):
            low, high = bounds(observation, declared[decision.revision])
            assert low <= decision.desired <= high


@given(states(), observations(), settings, st.integers(0, 100))
@pytest.mark.case("autoscaler-C9")
def test_the_budget_has_the_last_word_and_only_lowers(
    state: State, observation: Observation, chosen: Settings, budget: int
) -> None:
    _, free = decide(state, observation, chosen, NOW_S)
    _, bound = decide(state, replace(observation, budget=budget), chosen, NOW_S)
    for wide, narrow in zip(free.decisions, bound.decisions, strict=True):
        if narrow.role in (Role.TRAFFIC, Role.SUCCESSOR):
            assert narrow.desired <= budget
        assert narrow.desired <= max(wide.desired, narrow.issued)


@given(states(), observations(), settings)
@pytest.mark.case("autoscaler-A1")
def test_unknown_never_lowers_below_what_the_ceiling_allows(
    state: State, observation: Observation, chosen: Settings
) -> None:
    _, verdict = decide(state, replace(observation, fast=None), chosen, NOW_S)
    declared = {revision.name: revision.target for revision in observation.revisions}
    for decision in verdict.decisions:
        _, high = bounds(observation, declared[decision.revision])
        assert decision.desired >= min(decision.issued, high)


@given(states(), observations(), settings, loads())
@pytest.mark.case("autoscaler-A4")
def test_an_incomplete_load_never_lowers(state: State, observation: Observation, chosen: Settings, load: Means) -> None:
    partial = replace(observation, fast=replace(load, complete=False), slow=None)
    declared = {revision.name: revision.target for revision in observation.revisions}
    for decision in decide(state, partial, chosen, NOW_S)[1].decisions:
        _, high = bounds(observation, declared[decision.revision])
        assert decision.desired >= min(decision.issued, high)


@given(states(), observations(), settings, numbers, numbers)
@pytest.mark.case("autoscaler-B2")
def test_more_demand_never_gives_fewer_replicas(
    state: State, observation: Observation, chosen: Settings, one: float, two: float
) -> None:
    low, high = sorted((one, two))
    desired = []
    for in_flight in (low, high):
        load = Means(in_flight, 0.0, None, None, None, True)
        _, verdict = decide(state, replace(observation, fast=load, slow=load), chosen, NOW_S)
        desired.append([d.desired for d in verdict.decisions])
    assert all(less <= more for less, more in zip(*desired, strict=True))


@given(st.data(), states(), settings, st.booleans())
@pytest.mark.case("autoscaler-B2")
def test_more_demand_never_gives_fewer_replicas_beside_an_overload_of_the_newest_seconds(
    data: st.DataObject, state: State, chosen: Settings, learnt: bool
) -> None:
    """The two windows meet where either may say more: there the larger demand must not end up with the larger pool's
    fuller target, which overload forbids."""
    pressed = data.draw(st.integers(1, 2000), "in flight in the newest seconds")
    sharp = Means(float(pressed), 1.0, None, None, None, True)
    revision = Revision("a", Role.TRAFFIC, 10, 8.0, 5, 5, data.draw(st.integers(1, 300)), learnt=learnt)
    desired = []
    for in_flight in sorted(pressed + data.draw(st.integers(-pressed, 300)) for _ in range(2)):
        load = Means(float(in_flight), 0.0, None, None, None, True)
        seen = Observation(load, load, 1.0, 1, 100_000, (revision,), sharp=sharp)
        desired.append(decide(state, seen, chosen, NOW_S)[1].decisions[0].desired)
    assert desired == sorted(desired)


@given(states(), observations(), settings, numbers, numbers)
@pytest.mark.case("autoscaler-B2")
@pytest.mark.case("autoscaler-F5")
def test_more_arrivals_never_give_fewer_replicas(
    state: State, observation: Observation, chosen: Settings, one: float, two: float
) -> None:
    desired = []
    for arrived in sorted((one, two)):
        load = Means(10.0, 0.0, arrived, None, 0.0, True)
        seen = replace(observation, fast=load, slow=load, sharp=load, service_time_s=0.2, noise_rps=None)
        desired.append([d.desired for d in decide(state, seen, chosen, NOW_S)[1].decisions])
    assert all(less <= more for less, more in zip(*desired, strict=True))


@given(states(), observations(), settings)
def test_deciding_twice_at_one_moment_gives_the_same_as_once(
    state: State, observation: Observation, chosen: Settings
) -> None:
    """What a decision remembers of its moment changes nothing when the same moment is decided on again."""
    once, first = decide(state, observation, chosen, NOW_S)
    twice, second = decide(once, observation, chosen, NOW_S)
    assert second == first
    assert twice == once


@given(states(), observations(), settings)
def test_following_a_decision_and_deciding_again_settles_without_turning_back(
    state: State, observation: Observation, chosen: Settings
) -> None:
    """Growth may take several cycles (the cap); it ends, and no step goes the other way."""
    path: list[tuple[int, ...]] = []
    for _ in range(2000):
        state, verdict = decide(state, observation, chosen, NOW_S)
        wanted = {d.revision: d.desired for d in verdict.decisions}
        path.append(tuple(wanted[r.name] for r in observation.revisions))
        observation = replace(
            observation,
            revisions=tuple(replace(r, asked=wanted[r.name], live=wanted[r.name]) for r in observation.revisions),
        )
        if len(path) > 1 and path[-1] == path[-2]:
            break
    assert path[-1] == path[-2]
    for steps in zip(*path, strict=True):
        assert list(steps) in (sorted(steps), sorted(steps, reverse=True))


@given(states(), observations(), settings)
def test_deciding_has_no_memory_but_the_state(state: State, observation: Observation, chosen: Settings) -> None:
    assert decide(state, observation, chosen, NOW_S) == decide(state, observation, chosen, NOW_S)


@given(
    st.lists(st.tuples(st.floats(0, 100), anything, anything, st.booleans(), st.booleans()), max_size=40),
    st.randoms(use_true_random=False),
)
@pytest.mark.case("autoscaler-A7")
@pytest.mark.case("autoscaler-G9")
def test_windows_are_finite_and_blind_to_order_whatever_the_samples(
    given_samples: list[tuple[float, float, float, bool, bool]], random: object
) -> None:
    samples = [
        LoadSample(at_s, Load(n, q, n, n, 0.0) if known else None, complete)
        for at_s, n, q, known, complete in given_samples
    ]
    found = means(samples, 100.0, 60.0)
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = means(shuffled, 100.0, 60.0)
    assert (found is None) == (again is None)
    if found is not None and again is not None:
        assert found.in_flight >= 0
        assert not math.isnan(found.in_flight)
        assert found.in_flight == pytest.approx(again.in_flight)
        assert found.complete == again.complete
    service_s = service_time_s(samples, 100.0, 60.0, 1.0)
    assert service_s is None or service_s >= 0
    likely_s = likely_time_s(samples, 100.0, 60.0, 10.0, 0.2)
    assert likely_s is not None
    assert likely_s >= 0


sampled = st.tuples(st.floats(NOW_S - 90, NOW_S + 10), anything, anything, anything, st.booleans(), st.booleans())


@given(st.lists(sampled, max_size=40), states(), settings)
@pytest.mark.case("autoscaler-A7")
@pytest.mark.case("autoscaler-A8")
@pytest.mark.case("autoscaler-A9")
@pytest.mark.case("autoscaler-B1")
def test_whatever_a_gateway_says_there_is_a_decision_inside_floor_and_ceiling(
    given_samples: list[tuple[float, float, float, float, bool, bool]], state: State, chosen: Settings
) -> None:
    """NaN, infinity, below zero, absurd, in the future: a sample is used or unknown, and never an error."""
    samples = [
        LoadSample(at_s, Load(n, q, rps, n, q) if known else None, complete)
        for at_s, n, q, rps, known, complete in given_samples
    ]
    revision = Revision("a", Role.TRAFFIC, 10, 8.0, 5, 5, 5, learnt=True)
    seen = observation_of(samples, (revision,), (16, 800), chosen, NOW_S)
    after, verdict = decide(state, seen, chosen, NOW_S)
    assert 2 <= verdict.decisions[0].desired <= 100
    assert all(math.isfinite(demand) and demand >= 0 for _, demand in after.demands.peaks)
    if not any(known for _, _, _, _, known, _ in given_samples):
        assert verdict.decisions[0].desired >= 5


counted = st.tuples(
    st.integers(0, 89), st.integers(0, 500), st.integers(0, 50), st.integers(0, 2000), st.integers(0, 2000)
)


@given(st.lists(counted, unique_by=lambda sample: sample[0]), st.permutations(range(90)), states(), settings)
@pytest.mark.case("autoscaler-G9")
def test_the_order_in_which_samples_come_changes_no_decision(
    given_samples: list[tuple[int, int, int, int, int]], order: list[int], state: State, chosen: Settings
) -> None:
    """Whole numbers, so that sums do not depend on the order by their rounding."""
    samples = [
        LoadSample(NOW_S - age_s, Load(float(n), float(q), float(arrived), float(served), float(q)))
        for age_s, n, q, arrived, served in given_samples
    ]
    shuffled = [samples[i] for i in order if i < len(samples)]
    revision = Revision("a", Role.TRAFFIC, 10, 8.0, 5, 5, 5, learnt=True)
    first, second = (
        decide(state, observation_of(them, (revision,), (16, 800), chosen, NOW_S), chosen, NOW_S)
        for them in (samples, shuffled)
    )
    assert first == second


@hypothesis_settings(deadline=None, max_examples=50)
@given(st.integers(0, 900), st.integers(1, 100), st.integers(0, 2**32), st.floats(0, 0.3), st.booleans())
@pytest.mark.case("autoscaler-F2")
@pytest.mark.case("autoscaler-A2")
def test_constant_load_settles_whatever_was_there_before_and_whatever_is_lost(
    in_flight: int, issued: int, seed: int, lost: float, learnt: bool
) -> None:
    """Ten minutes from any number of replicas: at most one way up and one down, and none in the last five."""
    load = Load(float(in_flight), 0.0, in_flight / 0.2, in_flight / 0.2, 0.0)
    state, path, dice = State(), [issued], random.Random(seed)
    samples: list[LoadSample] = []
    for second in range(1, 601):
        known = dice.random() >= lost
        samples = [*samples[-70:], LoadSample(float(second), load if known else None, known)]
        if second % 5:
            continue
        revision = Revision("a", Role.TRAFFIC, 10, 8.0, path[-1], path[-1], path[-1], learnt=learnt)
        seen = observation_of(samples, (revision,), (8, 800), Settings(), float(second))
        state, verdict = decide(state, seen, Settings(), float(second))
        path.append(verdict.decisions[0].desired)
    steps = [after - before for before, after in pairwise(path) if after != before]
    assert len(set(path[-60:])) == 1, "settled"
    assert sum(earlier * later < 0 for earlier, later in pairwise(steps)) <= 1
    assert path[-1] * (9.0 if learnt else 8.0) >= min(in_flight, 800)
    assert path[-1] <= max(math.ceil(in_flight / (8.0 * 0.9)), 1), "no more than the headroom leaves"


@given(anything, st.floats(0.01, 1e6))
def test_replicas_are_a_whole_number_in_range_for_any_demand(requests: float, target: float) -> None:
    assert 0 <= replicas_for(requests, target) <= 100_000


@given(st.floats(0, 1e6), st.floats(0.5, 1e4))
@pytest.mark.case("autoscaler-B5")
def test_replicas_carry_the_demand_and_one_fewer_would_not(requests: float, target: float) -> None:
    replicas = replicas_for(requests, target)
    if replicas < 100_000:
        assert (replicas + 1e-8) * target >= requests * (1 - 1e-6)
        assert (replicas - 1) * target <= requests * (1 + 1e-6)
