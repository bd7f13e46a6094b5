"""What one epoch teaches, row by row."""

import json
from dataclasses import replace

import pytest

from controllers.autoscaler.plain import from_plain, to_plain
from controllers.autoscaler.vertical.baseline import Baseline, taken
from controllers.autoscaler.vertical.diagnosis import Cause, cause_of
from controllers.autoscaler.vertical.evidence import Evidence, Point
from controllers.autoscaler.vertical.knowledge import Knowledge, Probe, settled
from controllers.autoscaler.vertical.learner import Advice, learn
from controllers.autoscaler.vertical.rules import ORDER, Reason
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals

SETTINGS = Settings()
NOW_S = 1_700_000_000.0
BASE_S = 0.2
KNOWN = Knowledge(limit=20, baseline=Baseline(BASE_S, 10, BASE_S, NOW_S))


def at(in_flight: float, service_s: float = BASE_S, completed: float = 3000.0) -> Point:
    return Point(in_flight, service_s, completed)


def seen(
    point: Point | None,
    *,
    limit: int = 20,
    pods: dict[str, Point] | None = None,
    signals: Signals = UNKNOWN,
    queued: float = 0.0,
    **more: object,
) -> Evidence:
    loaded = point is not None and point.in_flight >= limit / 2
    found = Evidence(limit, 3, 30.0, 30.0 if loaded else 0.0, queued, point, pods or {}, signals)
    return replace(found, **more)  # type: ignore[arg-type]


def epochs(knowledge: Knowledge, evidence: Evidence, times: int) -> tuple[Knowledge, list[Advice]]:
    said = []
    for turn in range(times):
        knowledge, advice = learn(knowledge, evidence, SETTINGS, NOW_S + 30.0 * turn)
        said.append(advice)
    return knowledge, said


def fleet(each: Point, probed: Point | None = None) -> dict[str, Point]:
    return {"a": each, "b": each, "c": probed or each}


# What is no evidence moves nothing.


@pytest.mark.case("autoscaler-I9")
@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (seen(at(16.0, 0.9, completed=19.0)), Reason.FEW),
        (seen(None), Reason.UNKNOWN),
        (seen(at(16.0, 0.9), known_s=14.0), Reason.UNKNOWN),
        (seen(at(16.0, 0.9), unsettled="pods start"), Reason.UNSETTLED),
        (seen(at(3.0)), Reason.IDLE),
    ],
    ids=["few requests", "nothing", "half the seconds lost", "pods start", "not half full"],
)
def test_without_evidence_the_limit_rests_and_says_why(evidence: Evidence, reason: Reason) -> None:
    knowledge, advice = learn(KNOWN, evidence, SETTINGS, NOW_S)
    assert (advice.limit, advice.reason, knowledge.knee) == (20, reason, None)
    assert knowledge.baseline == KNOWN.baseline


@pytest.mark.case("autoscaler-D10")
def test_while_pods_start_or_roll_nothing_is_learnt_from_them() -> None:
    bad = seen(at(20.0, 2.0), unsettled="a rollout", pods=fleet(at(20.0, 2.0)))
    knowledge, said = epochs(replace(KNOWN, probe=Probe("a", 25, NOW_S + 60, at(16.0))), bad, 10)
    assert {(advice.limit, advice.reason, advice.probe) for advice in said} == {(20, Reason.UNSETTLED, None)}
    assert (knowledge.knee, knowledge.baseline) == (None, KNOWN.baseline)


@pytest.mark.case("autoscaler-D10")
def test_pods_that_never_finish_starting_freeze_it_for_ten_minutes_and_no_longer() -> None:
    stuck = seen(at(16.0), unsettled="pods start", pods=fleet(at(16.0)))
    _, said = epochs(KNOWN, stuck, 23)
    assert said[19].reason is Reason.UNSETTLED
    assert said[20].reason is not Reason.UNSETTLED


# Raises: bounded, and beyond what was seen on one pod only.


def test_beyond_what_was_seen_the_limit_rises_only_after_one_pod_held_it() -> None:
    knowledge, first = learn(KNOWN, seen(at(16.0), pods=fleet(at(16.0))), SETTINGS, NOW_S)
    assert first.limit == 20
    assert first.probe is not None
    assert (first.probe.pod, first.probe.limit, first.probe.up) == ("c", 25, True)
    answer = seen(at(16.0), pods=fleet(at(16.0), at(24.0)))
    _, second = learn(knowledge, answer, SETTINGS, NOW_S + 30)
    assert (second.limit, second.reason) == (25, Reason.RAISED)


def test_a_probed_pod_that_did_not_hold_more_proves_nothing() -> None:
    knowledge, _ = learn(replace(KNOWN, proven=20), seen(at(10.0), pods=fleet(at(10.0))), SETTINGS, NOW_S)
    idle = seen(at(10.0), pods=fleet(at(10.0), at(9.0)))
    knowledge, advice = learn(knowledge, idle, SETTINGS, NOW_S + 30)
    assert (advice.limit, knowledge.proven) == (20, 20)


def test_a_raise_is_a_quarter_at_most_and_one_where_that_is_less() -> None:
    for limit, most in ((20, 25), (3, 4), (1, 2)):
        known = replace(KNOWN, limit=limit, proven=1000)
        _, advice = learn(known, seen(at(limit * 0.8), limit=limit), SETTINGS, NOW_S)
        assert advice.limit == most


@pytest.mark.parametrize("name", ["cpu", "cpu_pressure", "memory", "io_wait", "kv_cache", "waiting", "tensor_activity"])
def test_a_busy_resource_holds_a_raise_back(name: str) -> None:
    known = replace(KNOWN, proven=1000)
    busy = Signals(**{name: 0.9 if name != "waiting" else 1.0})
    _, advice = learn(known, seen(at(16.0), signals=busy), SETTINGS, NOW_S)
    assert (advice.limit, advice.reason, advice.signals) == (20, Reason.BUSY, (name,))


@pytest.mark.case("autoscaler-I10")
@pytest.mark.case("autoscaler-I11")
@pytest.mark.parametrize("use", [0.05, 0.56, 0.94, 1.0])
def test_gpu_utilisation_changes_no_advice(use: float) -> None:
    for point in (at(16.0), at(16.0, 0.9), at(3.0)):
        evidence = seen(point, pods=fleet(point))
        told = replace(evidence, signals=Signals(gpu_utilization=use))
        assert learn(KNOWN, told, SETTINGS, NOW_S) == learn(KNOWN, evidence, SETTINGS, NOW_S)


@pytest.mark.case("autoscaler-I12")
def test_a_queue_at_idle_resources_raises_and_constant_full_cpu_alone_cuts_nothing() -> None:
    known = replace(KNOWN, proven=25)
    _, queued = learn(known, seen(at(20.0), queued=200.0, signals=Signals(cpu=0.10)), SETTINGS, NOW_S)
    assert (queued.limit, queued.reason) == (25, Reason.RAISED)
    _, said = epochs(KNOWN, seen(at(16.0), queued=200.0, signals=Signals(cpu=0.93)), 20)
    assert {advice.limit for advice in said} == {20}


# Cuts: by comparison.


def test_own_overload_is_told_from_a_slow_dependency_by_two_points() -> None:
    assert cause_of(at(20.0, 0.4), at(12.0, 0.24), 0.2, 0.5) is Cause.OWN
    assert cause_of(at(20.0, 0.4), at(12.0, 0.40), 0.2, 0.5) is Cause.ELSEWHERE
    assert cause_of(at(20.0, 0.4), at(19.0, 0.38), 0.2, 0.5) is None
    assert cause_of(at(20.0, 0.21), at(12.0, 0.20), 0.2, 0.5) is None
    few = 20.0
    assert cause_of(at(20.0, 0.4, few), at(12.0, 0.3, few), 0.2, 0.35) is None, "noise is no answer"


def test_latency_beyond_its_bound_is_asked_about_on_one_pod_and_then_cut_to_the_knee() -> None:
    """64 in flight at 0.8 s are 80 answers a second: at 0.2 s each that is 16."""
    known, full = replace(KNOWN, limit=64), at(64.0, 0.8)
    knowledge, asked = learn(known, seen(full, limit=64, pods=fleet(full)), SETTINGS, NOW_S)
    assert asked.limit == 64
    assert asked.probe is not None
    assert (asked.probe.limit, asked.probe.up) == (16, False)
    answer = seen(full, limit=64, pods=fleet(full, at(16.0)))
    knowledge, cut = learn(knowledge, answer, SETTINGS, NOW_S + 30)
    assert (cut.limit, cut.reason) == (32, Reason.CUT)
    assert cut.knee == pytest.approx(16.0)
    _, again = learn(knowledge, seen(at(32.0, 0.4), limit=32, pods=fleet(at(32.0, 0.4))), SETTINGS, NOW_S + 60)
    assert again.limit == 16


def test_the_same_latency_on_the_pod_with_less_is_a_dependency_and_is_held_for_ten_minutes() -> None:
    slow = at(16.0, 0.4)
    knowledge, asked = learn(KNOWN, seen(slow, pods=fleet(slow)), SETTINGS, NOW_S)
    assert asked.probe is not None
    answer = seen(slow, pods=fleet(slow, at(8.0, 0.4)))
    knowledge, held = learn(knowledge, answer, SETTINGS, NOW_S + 30)
    assert (held.limit, held.reason, held.baseline_s) == (20, Reason.ELSEWHERE, pytest.approx(0.4))
    knowledge, said = epochs(knowledge, seen(slow, pods=fleet(slow)), 20)
    assert {advice.limit for advice in said} == {20}
    assert all(advice.probe is None for advice in said)


def test_a_short_resource_tells_whose_the_latency_is_without_asking() -> None:
    _, advice = learn(KNOWN, seen(at(20.0, 0.5), signals=Signals(cpu=0.99)), SETTINGS, NOW_S)
    assert advice.reason is Reason.CUT
    assert advice.knee == pytest.approx(8.0)


def test_memory_about_to_run_out_cuts_where_latency_holds_and_stops_where_cutting_does_not_help() -> None:
    full = seen(at(16.0), signals=Signals(memory=0.97))
    knowledge, said = epochs(KNOWN, full, 5)
    assert [advice.limit for advice in said] == [16, 16, 16, 16, 16]
    assert said[0].reason is Reason.SHORTAGE
    _, helped = learn(knowledge, replace(full, signals=Signals(memory=0.955)), SETTINGS, NOW_S + 150)
    assert helped.limit == 12


def test_a_step_of_the_horizontal_axis_is_an_answer_too() -> None:
    """Full while pods started; with those there latency is at its floor: it was load."""
    knowledge, _ = learn(KNOWN, seen(at(20.0, 0.8), unsettled="pods start"), SETTINGS, NOW_S)
    assert knowledge.crest == at(20.0, 0.8)
    _, advice = learn(knowledge, seen(at(4.0)), SETTINGS, NOW_S + 30)
    assert advice.knee == pytest.approx(5.0)
    assert advice.reason is Reason.CUT


# Objectives.


def test_a_declared_objective_takes_the_place_of_the_multiple_of_the_baseline() -> None:
    tail = Signals(p95_ms=500.0)
    loose = seen(at(16.0, 0.35), objective_ms=900.0, signals=tail)
    assert learn(replace(KNOWN, knee=20.0), loose, SETTINGS, NOW_S)[1].reason is Reason.AT_KNEE
    tight = seen(at(16.0, 0.35), pods=fleet(at(16.0, 0.35)), objective_ms=400.0, signals=tail)
    assert learn(replace(KNOWN, knee=20.0), tight, SETTINGS, NOW_S)[1].reason is Reason.PROBING


def test_an_objective_that_a_lone_request_misses_cuts_nothing_and_says_so() -> None:
    missed = seen(at(16.0), pods=fleet(at(16.0)), objective_ms=100.0, signals=Signals(p95_ms=300.0))
    _, said = epochs(KNOWN, missed, 30)
    assert {(advice.limit, advice.reason) for advice in said} == {(20, Reason.OBJECTIVE)}


def test_an_objective_may_ask_for_less_than_the_knee() -> None:
    tail = Signals(p95_ms=800.0)
    probed = replace(KNOWN, probe=Probe("c", 8, NOW_S, at(16.0, 0.4)))
    answer = seen(at(16.0, 0.4), pods=fleet(at(16.0, 0.4), at(8.0, 0.2)), objective_ms=400.0, signals=tail)
    assert learn(probed, answer, SETTINGS, NOW_S)[1].knee == pytest.approx(8.0)


def test_a_p95_from_buckets_that_jumps_by_itself_is_no_overload() -> None:
    known = replace(KNOWN, baseline=replace(taken(BASE_S, NOW_S, 0.25), epochs=10))
    jumped = seen(at(16.0), pods=fleet(at(16.0)), signals=Signals(p95_ms=1000.0))
    assert learn(known, jumped, SETTINGS, NOW_S)[1].reason is not Reason.LATENCY
    moved = seen(at(16.0, 0.26), pods=fleet(at(16.0, 0.26)), signals=Signals(p95_ms=1000.0))
    _, advice = learn(known, moved, SETTINGS, NOW_S)
    assert advice.probe is not None
    assert not advice.probe.up


# Baselines.


def test_the_self_test_is_the_first_baseline_and_clients_outweigh_it() -> None:
    new = Knowledge(limit=20)
    knowledge, advice = learn(new, seen(at(0.2, 0.3), signals=Signals(self_test_ms=100.0)), SETTINGS, NOW_S)
    assert advice.baseline_s == pytest.approx(0.2)
    for turn in range(1, 10):
        knowledge, advice = learn(knowledge, seen(at(0.2, 0.3)), SETTINGS, NOW_S + 30 * turn)
    assert advice.baseline_s == pytest.approx(0.28, abs=0.01)


@pytest.mark.case("autoscaler-I1")
@pytest.mark.case("autoscaler-I7")
def test_load_never_moves_the_baseline_upwards() -> None:
    loaded = seen(at(18.0, 0.29), pods=fleet(at(18.0, 0.29)))
    knowledge, _ = epochs(KNOWN, loaded, 2880)
    assert knowledge.baseline is not None
    assert knowledge.baseline.service_s == BASE_S


@pytest.mark.case("autoscaler-I1")
@pytest.mark.case("autoscaler-I7")
def test_a_known_baseline_drifts_by_a_tenth_a_day_at_most() -> None:
    slower = seen(at(0.2, 0.4))
    knowledge, _ = epochs(KNOWN, slower, 2880)
    assert knowledge.baseline is not None
    assert knowledge.baseline.service_s == pytest.approx(BASE_S * 1.1)
    for turn in range(2):
        knowledge, _ = learn(knowledge, slower, SETTINGS, NOW_S + 86_400 + 30 * turn)
    assert knowledge.baseline is not None
    assert BASE_S * 1.1 < knowledge.baseline.service_s <= BASE_S * 1.2100001


def test_no_baseline_no_raise_and_the_question_goes_to_one_pod() -> None:
    new, full = Knowledge(limit=20), at(16.0)
    knowledge, asked = learn(new, seen(full, pods=fleet(full)), SETTINGS, NOW_S)
    assert asked.limit == 20
    assert asked.probe is not None
    assert asked.probe.limit == 9
    _, told = learn(knowledge, seen(full, pods=fleet(full, at(9.0))), SETTINGS, NOW_S + 30)
    assert told.baseline_s == pytest.approx(0.2), "latency that does not follow load is the baseline"


# Bounds.


@pytest.mark.case("autoscaler-I4")
def test_minimum_and_maximum_are_the_last_rules() -> None:
    assert [rule.__name__ for rule in ORDER[-2:]] == ["minimum", "maximum"]
    lowest = replace(SETTINGS, limit_min=4)
    overloaded = seen(at(8.0, 8.0), limit=8, signals=Signals(cpu=1.0))
    knowledge = replace(KNOWN, limit=8)
    for turn in range(5):
        knowledge, advice = learn(knowledge, overloaded, lowest, NOW_S + 30 * turn)
    assert (advice.limit, advice.reason) == (4, Reason.MINIMUM)
    _, high = learn(replace(KNOWN, proven=99), seen(at(16.0), concurrency_max=22), SETTINGS, NOW_S)
    assert (high.limit, high.reason) == (22, Reason.MAXIMUM)


@pytest.mark.case("autoscaler-I2")
def test_a_probe_stays_inside_minimum_and_maximum_and_never_becomes_the_limit() -> None:
    floor = replace(SETTINGS, limit_min=6, probe_min=3)
    slow = at(8.0, 1.6)
    _, down = learn(replace(KNOWN, limit=8), seen(slow, limit=8, pods=fleet(slow)), floor, NOW_S)
    assert down.probe is not None
    assert (down.probe.limit, down.limit) == (6, 8)
    _, up = learn(KNOWN, seen(at(16.0), pods=fleet(at(16.0)), concurrency_max=22), SETTINGS, NOW_S)
    assert up.probe is not None
    assert (up.probe.limit, up.limit) == (22, 20)


@pytest.mark.case("autoscaler-I3")
def test_after_some_bad_epochs_at_the_floor_the_baseline_is_taken_anew() -> None:
    at_floor, bad = replace(KNOWN, limit=1, knee=1.0), seen(at(0.9, 0.8), limit=1)
    knowledge, said = epochs(at_floor, bad, SETTINGS.floor_epochs)
    assert [advice.reason for advice in said].count(Reason.REBASELINED) == 1
    assert said[-1].baseline_s == pytest.approx(0.8)
    assert knowledge.knee is None
    _, advice = learn(replace(knowledge, proven=2), seen(at(0.9, 0.8), limit=1), SETTINGS, NOW_S + 600)
    assert advice.limit == 2, "from there it grows again"


@pytest.mark.case("autoscaler-I6")
def test_constant_degraded_latency_has_a_fixed_point() -> None:
    """Half as slow again, whatever is in flight: 200 epochs end where they are after 60, holds included."""
    knowledge, limits = KNOWN, []
    for turn in range(200):
        held = at(min(16.0, knowledge.limit), 0.3)
        mine = knowledge.probe
        pods = fleet(held, at(min(held.in_flight, mine.limit), 0.3) if mine is not None and not mine.up else held)
        knowledge, advice = learn(knowledge, seen(held, limit=knowledge.limit, pods=pods), SETTINGS, NOW_S + 30 * turn)
        limits.append(advice.limit)
    assert len(set(limits[60:])) == 1
    assert 16 <= limits[-1] <= 40


# What is kept.


def test_knowledge_is_small_where_it_is_kept_and_a_probe_ends_with_its_process() -> None:
    knowledge = replace(KNOWN, knee=12.5, crest=at(20.0, 0.8), accepted_s=0.4)
    kept = settled(replace(knowledge, probe=Probe("a", 25, NOW_S, at(16.0)), unsettled_since_s=NOW_S))
    assert kept == knowledge
    assert len(json.dumps(to_plain(kept))) < 700
    assert from_plain(Knowledge, to_plain(kept)) == knowledge
