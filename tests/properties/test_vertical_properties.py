"""What holds of everything that is learnt, whatever is seen."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.autoscaler.load import Counters, Load, LoadSample
from controllers.autoscaler.plain import from_plain, to_plain
from controllers.autoscaler.vertical.baseline import Baseline
from controllers.autoscaler.vertical.evidence import Evidence, Point, Tally, evidence_of, tally
from controllers.autoscaler.vertical.knowledge import Knowledge, Probe
from controllers.autoscaler.vertical.learner import learn
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.signals import Signals

NOW_S = 1_700_000_000.0
SETTINGS = Settings()
POD_NAMES = ["a", "b", "c", "d"]
positive = st.floats(1e-4, 1e4)
anything = st.floats(allow_nan=True, allow_infinity=True)
points = st.builds(Point, positive, positive, positive)
shares = st.none() | anything
signals = st.builds(
    Signals, p95_ms=shares, cpu=shares, memory=shares, kv_cache=shares, waiting=shares, self_test_ms=shares
)
baselines = st.builds(Baseline, positive, st.integers(1, 20), positive, st.just(NOW_S), st.none() | positive)
probes = st.builds(
    Probe,
    st.none() | st.sampled_from(POD_NAMES),
    st.integers(1, 5000),
    st.floats(NOW_S - 100, NOW_S + 100),
    points,
    up=st.booleans(),
    enough=positive,
)


@st.composite
def knowledges(draw: st.DrawFn) -> Knowledge:
    return Knowledge(
        limit=draw(st.integers(1, 5000)),
        knee=draw(st.none() | st.floats(1, 5000)),
        proven=draw(st.integers(0, 5000)),
        baseline=draw(st.none() | baselines),
        accepted_s=draw(st.none() | positive),
        crest=draw(st.none() | points),
        probe=draw(st.none() | probes),
        relief=draw(st.none() | st.floats(0, 1)),
        held_until_s=draw(st.sampled_from([0.0, NOW_S + 300])),
        retest_at_s=draw(st.sampled_from([0.0, NOW_S + 300])),
        retests=draw(st.integers(0, 100)),
        floor_epochs=draw(st.integers(0, 10)),
        unsettled_since_s=draw(st.none() | st.floats(NOW_S - 2000, NOW_S)),
    )


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    return Evidence(
        limit=draw(st.integers(1, 5000)),
        replicas=draw(st.integers(0, 50)),
        known_s=draw(st.floats(0, 30)),
        loaded_s=draw(st.floats(0, 30)),
        queued=draw(st.floats(0, 1e6)),
        point=draw(st.none() | points),
        pods=draw(st.dictionaries(st.sampled_from(POD_NAMES), points)),
        signals=draw(signals),
        unsettled=draw(st.none() | st.just("pods start")),
        concurrency_max=draw(st.integers(1, 5000)),
        objective_ms=draw(st.none() | positive),
    )


@given(knowledges(), evidences(), st.integers(1, 50))
@pytest.mark.case("autoscaler-I2")
@pytest.mark.case("autoscaler-I4")
def test_limit_and_probe_are_inside_minimum_and_maximum(knowledge: Knowledge, evidence: Evidence, least: int) -> None:
    bounds = replace(SETTINGS, limit_min=least)
    most = max(evidence.concurrency_max, 1)
    _, advice = learn(knowledge, evidence, bounds, NOW_S)
    assert min(least, most) <= advice.limit <= most
    if advice.probe is not None:
        assert min(least, most) <= advice.probe.limit <= most


@given(knowledges(), evidences())
def test_a_step_is_a_quarter_up_or_half_down_but_for_minimum_and_maximum(
    knowledge: Knowledge, evidence: Evidence
) -> None:
    _, advice = learn(knowledge, evidence, SETTINGS, NOW_S)
    most = max(int(knowledge.limit * SETTINGS.raise_most), knowledge.limit + 1)
    assert advice.limit <= most
    assert advice.limit >= min(int(knowledge.limit * SETTINGS.cut_most), evidence.concurrency_max)


@given(knowledges(), evidences())
@pytest.mark.case("autoscaler-D10")
def test_what_is_unknown_or_unsettled_moves_nothing_that_was_learnt(knowledge: Knowledge, evidence: Evidence) -> None:
    recent = replace(knowledge, unsettled_since_s=None, baseline=knowledge.baseline or Baseline(1.0, 1, 1.0, NOW_S))
    within = replace(evidence, concurrency_max=10_000)
    for blind in (replace(within, point=None, pods={}, unsettled=None), replace(within, unsettled="a rollout")):
        after, advice = learn(recent, blind, SETTINGS, NOW_S)
        assert advice.limit == recent.limit
        assert (after.knee, after.baseline, after.proven) == (recent.knee, recent.baseline, recent.proven)


@given(knowledges(), evidences(), anything)
@pytest.mark.case("autoscaler-I10")
@pytest.mark.case("autoscaler-I11")
def test_gpu_utilisation_never_acts(knowledge: Knowledge, evidence: Evidence, use: float) -> None:
    told = replace(evidence, signals=replace(evidence.signals, gpu_utilization=use))
    assert learn(knowledge, told, SETTINGS, NOW_S) == learn(knowledge, evidence, SETTINGS, NOW_S)


@given(knowledges(), st.lists(evidences(), max_size=20))
def test_learning_is_total_and_what_is_learnt_is_finite_and_can_be_stored(
    knowledge: Knowledge, seen: list[Evidence]
) -> None:
    for turn, evidence in enumerate(seen):
        knowledge, _ = learn(knowledge, evidence, SETTINGS, NOW_S + 30.0 * turn)
        for value in (knowledge.knee, knowledge.accepted_s, knowledge.floor_s, knowledge.retest_at_s):
            assert value is None or math.isfinite(value)
        assert from_plain(Knowledge, json.loads(json.dumps(to_plain(knowledge)))) == knowledge


@given(
    st.lists(st.tuples(st.floats(0, 60), anything, anything, st.booleans(), st.booleans()), max_size=40),
    st.randoms(use_true_random=False),
)
def test_evidence_is_blind_to_the_order_of_samples_and_holds_no_absurd_number(
    given_samples: list[tuple[float, float, float, bool, bool]], random: object
) -> None:
    samples = [
        LoadSample(at_s, Load(n, q, n, n, 0.0) if known else None, complete)
        for at_s, n, q, known, complete in given_samples
    ]
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, two = (evidence_of(each, 10, 2, SETTINGS, 60.0) for each in (samples, shuffled))
    assert (one.known_s, one.loaded_s, one.point is None) == (two.known_s, two.loaded_s, two.point is None)
    if one.point is not None:
        assert math.isfinite(one.point.in_flight)
        assert one.point.service_s > 0


counts = st.integers(0, 10**9)
readings = st.dictionaries(st.sampled_from(POD_NAMES), st.tuples(counts, counts))


@given(st.lists(readings, max_size=20), st.floats(-1, 10))
def test_a_tally_never_counts_backwards(seen: list[dict[str, tuple[int, int]]], elapsed_s: float) -> None:
    tallies: dict[str, Tally] = {}
    before = None
    for servers in seen:
        now = Counters(0, 0, servers)
        after = dict(tally(tallies, before, now, elapsed_s, 1.0))
        for name, held in after.items():
            earlier = tallies.get(name, Tally(1.0))
            assert held.seen_s >= earlier.seen_s
            assert held.completed >= earlier.completed
            assert held.busy_s >= earlier.busy_s
        tallies, before = after, now
