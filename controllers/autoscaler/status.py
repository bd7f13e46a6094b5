"""What the autoscaler says in an endpoint's status: its own key, the condition Scaled, one more for each hold. Pure.

Owns when there is something to say: at once when a decision, a size or a condition changes, otherwise at most every
30 s for the live numbers, and never when nothing differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.holds import TYPES, Hold, main
from controllers.autoscaler.observation import Observation
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.vertical.learner import Advice
from controllers.kube.fields import condition, items, mapping, seconds, timestamp
from controllers.kube.resources import Object

CONDITION = "Scaled"
DECISIONS_MAX = 10
_LIVE = ("demand", "decidedAt", "load", "reason", "rules", "targetConcurrency")


@dataclass(frozen=True)
class Change:
    """A change of replicas that was made: the decision, and what it was made from (a foreign number perhaps)."""

    decision: Decision
    was: int
    foreign: str | None = None

    @property
    def reason(self) -> Reason:
        if self.foreign is not None:
            return Reason.FOREIGN
        return self.decision.reason if self.was == self.decision.issued else Reason.RESTORED


@dataclass(frozen=True)
class Report:
    """All that a cycle has to tell. `unwritten`: revisions whose replicas are not yet what was decided. `holds`: who or
    what holds the replicas. `observation`: what it rests on. `learnt`: the learner's word, by revision."""

    verdict: Verdict
    ready: dict[str, int]
    changes: tuple[Change, ...]
    unwritten: frozenset[str]
    foreign: str | None
    holds: tuple[Hold, ...] = ()
    observation: Observation | None = None
    learnt: Mapping[str, Advice] = field(default_factory=dict)


def detail(change: Change, verdict: Verdict) -> str:
    """`demand 180.3, peak 201.0, target 51.2 a replica; raw 4`: the numbers that led there."""
    foreign = f"; {change.was} had been set by {change.foreign}" if change.foreign else ""
    demand, peak = verdict.demand.requests, verdict.peak
    said = [
        f"demand {'unknown' if demand is None else f'{demand:.1f}'}",
        f"peak {'unknown' if peak is None else f'{peak:.1f}'}",
        f"target {change.decision.target:g} a replica",
    ]
    trace = _trace(change.decision)
    return ", ".join(said) + (f"; {trace}" if trace else "") + foreign


def _trace(decision: Decision) -> str:
    """`raw 4, floor 5`: each rule's word."""
    return ", ".join(f"{rule} {replicas}" for rule, replicas in decision.trace)


def status_object(endpoint: Object, report: Report, settings: Settings, now_s: float) -> Object | None:
    """The status to apply, or None where nothing is worth a write."""
    before = mapping(endpoint, "status", "autoscaler")
    now = timestamp(now_s)
    said = _autoscaler(before, report, now)
    conditions = _conditions(endpoint, report, settings, now)
    weighty = {key: value for key, value in said.items() if key not in _LIVE}
    written = [found for kind in (CONDITION, *TYPES) if (found := condition(endpoint, kind))]
    same = all(_weight(before.get(key)) == _weight(value) for key, value in weighty.items()) and written == conditions
    if same and (before.get("demand") == said.get("demand") or not _stale(before, settings, now_s)):
        return None
    return {"autoscaler": said, "conditions": conditions}


def _weight(value: Any) -> Any:
    """Without what follows the load, or is said by the way."""
    if not isinstance(value, dict):
        return value
    return {name: _weight(each) for name, each in value.items() if name not in ("why", "baselineMs", "target")}


def _stale(before: Object, settings: Settings, now_s: float) -> bool:
    at_s = seconds(before.get("decidedAt"))
    return at_s is None or now_s - at_s >= settings.status_s


def _autoscaler(before: Object, report: Report, now: str) -> Object:
    decisions = [_record(change, report.verdict, now) for change in report.changes]
    decisions = (decisions + items(before, "decisions"))[:DECISIONS_MAX]
    first = main(report.verdict.decisions)
    said: Object = {
        "desiredReplicas": first.desired if first else 0,
        "readyReplicas": report.ready.get(first.revision, 0) if first else 0,
        "targetConcurrency": round(first.target, 3) if first else 0,
        "lastDecision": _last(decisions, first),
        "decidedAt": now,
        "revisions": {d.revision: _size(d, report) for d in report.verdict.decisions},
        "decisions": decisions,
    }
    if report.verdict.demand.requests is not None:
        said["demand"] = round(report.verdict.demand.requests, 1)
    if first is not None:
        said |= {"reason": str(first.reason), "rules": _trace(first)}
    if report.observation is not None:
        said["load"] = _load(report.observation, report.verdict)
    return said


def _load(observation: Observation, verdict: Verdict) -> Object:
    """What the demand came from; what is unknown is absent."""
    means = observation.fast
    numbers = {
        "inFlight": means.in_flight if means else None,
        "queued": means.queued if means else None,
        "arrivedRps": means.arrived_rps if means else None,
        "refusedRps": means.refused_rps if means else None,
        "serviceTimeS": observation.service_time_s,
        "peak": verdict.peak,
    }
    return {name: round(value, 4) for name, value in numbers.items() if value is not None}


def _size(decision: Decision, report: Report) -> Object:
    """A size that is not yet written is not yet covered. `declared`: the target that the range is counted by; that of
    a large pool is above it."""
    written = decision.revision not in report.unwritten
    return (
        {
            "limit": decision.limit,
            "target": round(decision.target, 3),
            "desired": decision.desired if written else decision.issued,
            "sized": decision.sized and written,
        }
        | _declared(decision, report.observation)
        | _learnt(report.learnt.get(decision.revision))
    )


def _declared(decision: Decision, observation: Observation | None) -> Object:
    seen = observation.revisions if observation is not None else ()
    declared = next((revision.target for revision in seen if revision.name == decision.revision), None)
    return {"declared": round(declared, 3)} if declared is not None else {}


def _learnt(advice: Advice | None) -> Object:
    """The knee once it was met, the floor of latency, why the limit is what it is, and who is asked for another."""
    if advice is None:
        return {}
    said: Object = {"why": ": ".join([str(advice.reason), *filter(None, [", ".join(advice.signals)])])}
    if advice.knee is not None:
        said["knee"] = round(advice.knee, 1)
    if advice.baseline_s is not None:
        said["baselineMs"] = float(f"{1000 * advice.baseline_s:.3g}")
    if advice.probe is not None and advice.probe.pod is not None:
        probe = advice.probe
        said["probe"] = {"pod": probe.pod, "limit": probe.limit, "weight": probe.weight}
    return said


def _record(change: Change, verdict: Verdict, now: str) -> Object:
    return {
        "at": now,
        "revision": change.decision.revision,
        "from": change.was,
        "to": change.decision.desired,
        "reason": str(change.reason),
        "detail": detail(change, verdict),
    }


def _last(decisions: list[Object], first: Decision | None) -> str:
    if decisions:
        last = decisions[0]
        return f"{last['from']} -> {last['to']}: {last['reason']}"
    return f"{first.desired}: no change yet" if first else "no revision yet"


def _conditions(endpoint: Object, report: Report, settings: Settings, now: str) -> list[Object]:
    """Scaled always; a hold's own only while it holds."""
    said = [_condition(endpoint, now, CONDITION, *_scaled(report, settings))]
    return said + [_condition(endpoint, now, hold.kind, "True", hold.kind, hold.message) for hold in report.holds]


def _condition(endpoint: Object, now: str, kind: str, status: str, reason: str, message: str) -> Object:
    before = condition(endpoint, kind)
    same = before.get("status") == status
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": int(endpoint["metadata"].get("generation") or 0),
        "lastTransitionTime": before.get("lastTransitionTime", now) if same else now,
    }


# Holds under which the replicas do not follow the load; a bound that is met is no such thing.
_NOT_FOLLOWING = {str(r) for r in (Reason.UNKNOWN, Reason.CIRCUIT, Reason.PAUSED, Reason.DRY_RUN, Reason.OVERRIDDEN)}


def _scaled(report: Report, settings: Settings) -> tuple[str, str, str]:
    """In one condition what the most telling of all has to say."""
    first = main(report.verdict.decisions)
    if first is None:
        return "False", "NoRevision", "the endpoint has no revision yet"
    if report.verdict.unknown_s >= settings.silence_s:
        return "False", str(Reason.UNKNOWN), "the load is not known in full; replicas are held, never lowered"
    if report.foreign is not None:
        return "False", str(Reason.FOREIGN), f"{report.foreign} has set replicas; corrected"
    if report.unwritten:
        return "False", "WriteFailed", "the replicas decided on could not be written yet"
    for hold in report.holds:
        if hold.kind in _NOT_FOLLOWING:
            return "False", hold.kind, hold.message
    if first.reason is Reason.CEILING:
        return "True", str(Reason.CEILING), "the load asks for more than concurrency.max allows"
    if first.reason is Reason.BUDGET:
        return "True", str(Reason.BUDGET), "the load asks for more than the namespace's quota leaves"
    return "True", "FollowsLoad", "replicas follow the load"
