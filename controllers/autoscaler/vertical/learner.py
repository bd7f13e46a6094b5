"""Learns how many requests one replica takes: what was known, what one epoch showed, the time -> what is known, advice.

Owns what an epoch teaches. Leaves its reading to `diagnosis`, the step to `rules`, the questions to `probing`. Its one
idea: knee, limit and target are three numbers. The knee is found by comparison, the limit follows it in bounded steps,
the target is a share of the limit and belongs to the horizontal axis.
"""

from dataclasses import dataclass, replace

from controllers.autoscaler.vertical.baseline import is_faster, moved, taken
from controllers.autoscaler.vertical.diagnosis import Cause, Finding, View, diagnose
from controllers.autoscaler.vertical.evidence import Evidence, Point
from controllers.autoscaler.vertical.knowledge import Knowledge, Probe
from controllers.autoscaler.vertical.probing import plan, retest_s
from controllers.autoscaler.vertical.rules import Reason, Situation, merge, shortage
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.thresholds import sane

# So much of an epoch is all of it.
_THROUGHOUT = 0.9
# So well must a latency below the baseline be known that moves it.
_SURE = 0.05
# Latency beside the knee is taken for no lower than this share of the known floor: what is less is noise.
_NO_FASTER = 0.9


@dataclass(frozen=True)
class Advice:
    """limit: of every pod but a probed one; the target is a share of it, so no probe moves replicas.

    knee: None while none was met. ratio: latency over its floor.
    """

    limit: int
    knee: float | None
    reason: Reason
    probe: Probe | None = None
    ratio: float | None = None
    baseline_s: float | None = None
    trace: tuple[tuple[str, int], ...] = ()
    signals: tuple[str, ...] = ()


def learn(knowledge: Knowledge, evidence: Evidence, settings: Settings, now_s: float) -> tuple[Knowledge, Advice]:
    """Total; inside [minimum, maximum]; without evidence nothing moves. `now_s` in Unix seconds."""
    knowledge = _self_tested(replace(knowledge, learnt_at_s=now_s), evidence, now_s)
    finding = diagnose(knowledge, evidence, settings, now_s)
    taught, anew = _taught(knowledge, evidence, finding, settings, now_s)
    situation = Situation(taught, evidence, finding, settings, now_s)
    outcome = merge(situation)
    probe = plan(situation, outcome.limit)
    asked = probe is not None and outcome.limit == knowledge.limit
    reason = Reason.REBASELINED if anew else (Reason.PROBING if asked else outcome.reason)
    knowledge = _stepped(situation, outcome.limit, probe)
    advice = Advice(
        limit=outcome.limit,
        knee=knowledge.knee,
        reason=reason,
        probe=probe,
        ratio=finding.ratio,
        baseline_s=knowledge.floor_s,
        trace=outcome.trace,
        signals=finding.hot or finding.busy,
    )
    return knowledge, advice


def _self_tested(knowledge: Knowledge, evidence: Evidence, now_s: float) -> Knowledge:
    tested_ms = sane(evidence.signals.self_test_ms)
    if knowledge.baseline is not None or not tested_ms:
        return knowledge
    return replace(knowledge, baseline=taken(tested_ms / 1000, now_s))


def _taught(
    knowledge: Knowledge, evidence: Evidence, finding: Finding, settings: Settings, now_s: float
) -> tuple[Knowledge, bool]:
    """What the epoch taught, and whether the baseline was taken anew."""
    if finding.view is View.UNSETTLED:
        return _crested(_unsettled(knowledge, now_s), evidence, finding, settings), False
    if evidence.unsettled is None:
        knowledge = replace(knowledge, unsettled_since_s=None)
    few = finding.view is View.FEW
    if finding.point is None or finding.view is View.UNKNOWN or (few and finding.probed is None):
        return knowledge, False
    answered = finding.view in (View.HOLDS, View.IDLE)
    knowledge = replace(knowledge, evidence_at_s=now_s, crest=None if answered else knowledge.crest)
    knowledge = knowledge if few else _based(knowledge, evidence, finding.point, settings, now_s)
    knowledge = _caused(knowledge, finding, finding.point, settings, now_s)
    knowledge = _proven(knowledge, finding, finding.point, settings, now_s)
    return _at_floor(knowledge, finding, finding.point, settings, now_s)


def _unsettled(knowledge: Knowledge, now_s: float) -> Knowledge:
    since_s = knowledge.unsettled_since_s
    return replace(knowledge, probe=None, unsettled_since_s=now_s if since_s is None else since_s)


def _crested(knowledge: Knowledge, evidence: Evidence, finding: Finding, settings: Settings) -> Knowledge:
    """Warm pods' worst point while others start: those come to help, and then there are two points to compare. It must
    have been bad throughout: a mean of overload and relief is neither."""
    point, crest = finding.point, knowledge.crest
    full = evidence.loaded_s >= _THROUGHOUT * settings.epoch_s
    slow = (finding.ratio or 0.0) >= settings.tolerance
    if point is None or point.completed < settings.completions or not full or not slow:
        return knowledge
    worse = crest is None or point.service_s > crest.service_s
    return replace(knowledge, crest=point) if worse else knowledge


def _based(knowledge: Knowledge, evidence: Evidence, point: Point, settings: Settings, now_s: float) -> Knowledge:
    """The baseline, by requests that were nearly alone or that were faster than it."""
    base, knee = knowledge.baseline, knowledge.knee
    alone = point.in_flight <= max(settings.low_load, knee / 2 if knee is not None else 0.0) and evidence.queued < 1
    if alone or (base is not None and is_faster(base, point.service_s) and point.error < _SURE):
        p95_ms = sane(evidence.signals.p95_ms)
        base = moved(base, point.service_s, p95_ms / 1000 if p95_ms else None, settings, now_s)
    accepted_s = knowledge.accepted_s
    if accepted_s is not None and base is not None and point.service_s < 0.8 * accepted_s:
        accepted_s = point.service_s if point.service_s > settings.suspect * base.service_s else None
    return replace(knowledge, baseline=base, accepted_s=accepted_s)


def _caused(knowledge: Knowledge, finding: Finding, point: Point, settings: Settings, now_s: float) -> Knowledge:
    """Past the knee throughput is all the replica has: times the latency of the lesser load that is the knee.

    20 in flight at 16 answers a second, and 1 s each at 8 in flight: 16 is the knee, whatever the baseline says. An
    objective may ask for less: 20 in flight at 1.6 times the objective become 12.5.
    """
    high, low_s = finding.shown_at, finding.beside_s
    if finding.cause is Cause.OWN and high is not None:
        floor_s = max(low_s or knowledge.floor_s or 0.0, _NO_FASTER * (knowledge.floor_s or 0.0))
        knee = high.served_rps * min(floor_s, high.service_s)
        within = high.in_flight / finding.excess if finding.objective and finding.excess > 1 else knee
        return _kneed(knowledge, max(min(knee, within), 1.0), settings, now_s)
    if finding.cause is not Cause.ELSEWHERE or low_s is None:
        return knowledge
    # Latency that does not follow load is a baseline, where there is none, or the dependency's.
    if knowledge.baseline is None:
        return replace(knowledge, baseline=taken(low_s, now_s))
    slow = finding.view in (View.SUSPECT, View.OVERLOADED)
    return replace(knowledge, accepted_s=low_s, held_until_s=now_s + settings.hold_s) if slow else knowledge


def _kneed(knowledge: Knowledge, knee: float, settings: Settings, now_s: float) -> Knowledge:
    """A knee was shown. The same one again is asked about less and less often."""
    same = knowledge.knee is not None and abs(knee / knowledge.knee - 1) <= 0.2
    retests = knowledge.retests + 1 if same else 0
    knee = (knee + knowledge.knee) / 2 if same and knowledge.knee is not None else knee
    return replace(
        knowledge, knee=knee, proven=0, retests=retests, retest_at_s=now_s + retest_s(settings, retests), crest=None
    )


def _proven(knowledge: Knowledge, finding: Finding, point: Point, settings: Settings, now_s: float) -> Knowledge:
    """How far latency was seen to hold: a limit that was at least half full. A knee is outgrown by work."""
    probe = knowledge.probe
    if probe is not None and now_s >= probe.until_s - settings.epoch_s / 2:
        knowledge = _answered(knowledge, probe, finding, settings, now_s)
    calm = finding.view in (View.HOLDS, View.IDLE) and finding.ratio is not None
    if not calm or (finding.ratio or 0.0) >= settings.suspect or finding.cause is Cause.OWN:
        return knowledge
    worked, knee = point.in_flight / max(finding.ratio or 1.0, 1.0), knowledge.knee
    if knee is not None and worked > settings.outgrown * knee:
        knee = worked
    proven = min(knowledge.limit, int(point.in_flight / settings.half_full))
    return replace(knowledge, knee=knee, proven=max(knowledge.proven, proven))


def _answered(knowledge: Knowledge, probe: Probe, finding: Finding, settings: Settings, now_s: float) -> Knowledge:
    """A probe that is over: what it showed, or when to ask again. One without a clear answer goes on."""
    if not finding.judged and finding.probed is not None:
        longer = replace(probe, mine=finding.probed, asked=probe.asked + 1, until_s=now_s + settings.epoch_s)
        return replace(knowledge, probe=longer)
    knowledge = replace(knowledge, probe=None)
    if finding.probed is None:
        return knowledge  # the pod is gone: the question was none
    if finding.passed:
        proven, knee = max(knowledge.proven, probe.limit), knowledge.knee
        if knee is not None:
            knee = finding.probed.served_rps * (knowledge.floor_s or 0.0)
        return replace(knowledge, knee=knee, proven=proven, retests=0, retest_at_s=0.0)
    if finding.cause is not None:
        return knowledge
    if probe.up:
        later_s = now_s + retest_s(settings, knowledge.retests)
        return replace(knowledge, retests=knowledge.retests + 1, retest_at_s=later_s)
    return replace(knowledge, held_until_s=max(knowledge.held_until_s, now_s + 2 * settings.epoch_s))


def _at_floor(
    knowledge: Knowledge, finding: Finding, point: Point, settings: Settings, now_s: float
) -> tuple[Knowledge, bool]:
    """At the smallest limit load can't be the reason: after some epochs there, what is seen is the baseline."""
    slow = finding.view is View.OVERLOADED and (finding.ratio or 0.0) >= settings.tolerance
    if knowledge.limit > settings.limit_min or not slow:
        return replace(knowledge, floor_epochs=0), False
    epochs = knowledge.floor_epochs + 1
    if epochs < settings.floor_epochs:
        return replace(knowledge, floor_epochs=epochs), False
    base = taken(point.service_s, now_s)
    return replace(knowledge, baseline=base, accepted_s=None, knee=None, proven=0, floor_epochs=0), True


def _stepped(situation: Situation, limit: int, probe: Probe | None) -> Knowledge:
    knowledge, settings = situation.knowledge, situation.settings
    use = shortage(situation.finding, situation.evidence)
    relief = use if limit < knowledge.limit and use is not None else (knowledge.relief if use is not None else None)
    held_s = knowledge.held_until_s
    if limit != knowledge.limit and knowledge.accepted_s is not None:
        held_s = situation.now_s + settings.hold_s  # while a dependency is slow one step is enough
    return replace(knowledge, limit=limit, probe=probe, relief=relief, held_until_s=held_s)
