"""What the autoscaler says in an endpoint's status: its own key, and the condition Scaled. Pure.

Owns when there is something to say: at once when a decision, a size or a condition changes, otherwise at most every
30 s for the live numbers, and never when nothing differs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.observation import Role
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings
from controllers.kube.fields import condition, items, mapping, seconds, timestamp
from controllers.kube.resources import Object

CONDITION = "Scaled"
DECISIONS_MAX = 10
_LIVE = ("demand", "decidedAt")


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
    """All that a cycle has to tell. `unwritten`: revisions whose replicas are not yet what was decided."""

    verdict: Verdict
    ready: dict[str, int]
    changes: tuple[Change, ...]
    unwritten: frozenset[str]
    foreign: str | None


def detail(change: Change, verdict: Verdict) -> str:
    """`demand 180.3, peak 201.0, target 51.2 a replica; raw 4`: the numbers that led there."""
    demand, peak = verdict.demand.requests, verdict.peak
    said = [
        f"demand {'unknown' if demand is None else f'{demand:.1f}'}",
        f"peak {'unknown' if peak is None else f'{peak:.1f}'}",
        f"target {change.decision.target:g} a replica",
    ]
    trace = ", ".join(f"{rule} {replicas}" for rule, replicas in change.decision.trace)
    foreign = f"; {change.was} had been set by {change.foreign}" if change.foreign else ""
    return ", ".join(said) + (f"; {trace}" if trace else "") + foreign


def status_object(endpoint: Object, report: Report, settings: Settings, now_s: float) -> Object | None:
    """The status to apply, or None where nothing is worth a write."""
    before = mapping(endpoint, "status", "autoscaler")
    now = timestamp(now_s)
    said = _autoscaler(before, report, now)
    scaled = _condition(endpoint, report, settings, now)
    weighty = {key: value for key, value in said.items() if key not in _LIVE}
    same = all(before.get(key) == value for key, value in weighty.items()) and condition(endpoint, CONDITION) == scaled
    if same and (before.get("demand") == said.get("demand") or not _stale(before, settings, now_s)):
        return None
    return {"autoscaler": said, "conditions": [scaled]}


def _stale(before: Object, settings: Settings, now_s: float) -> bool:
    at_s = seconds(before.get("decidedAt"))
    return at_s is None or now_s - at_s >= settings.status_s


def _autoscaler(before: Object, report: Report, now: str) -> Object:
    decisions = [_record(change, report.verdict, now) for change in report.changes]
    decisions = (decisions + items(before, "decisions"))[:DECISIONS_MAX]
    main = _main(report.verdict.decisions)
    said: Object = {
        "desiredReplicas": main.desired if main else 0,
        "readyReplicas": report.ready.get(main.revision, 0) if main else 0,
        "targetConcurrency": round(main.target, 3) if main else 0,
        "lastDecision": _last(decisions, main),
        "decidedAt": now,
        "revisions": {d.revision: _size(d, report) for d in report.verdict.decisions},
        "decisions": decisions,
    }
    if report.verdict.demand.requests is not None:
        said["demand"] = round(report.verdict.demand.requests, 1)
    return said


def _main(decisions: Iterable[Decision]) -> Decision | None:
    """The one that people ask for: with the traffic, or about to get it."""
    order = list(Role)
    return min(decisions, key=lambda decision: order.index(decision.role), default=None)


def _size(decision: Decision, report: Report) -> Object:
    """A size that is not yet written is not yet covered."""
    written = decision.revision not in report.unwritten
    return {
        "limit": decision.limit,
        "target": round(decision.target, 3),
        "desired": decision.desired if written else decision.issued,
        "sized": decision.sized and written,
    }


def _record(change: Change, verdict: Verdict, now: str) -> Object:
    return {
        "at": now,
        "revision": change.decision.revision,
        "from": change.was,
        "to": change.decision.desired,
        "reason": str(change.reason),
        "detail": detail(change, verdict),
    }


def _last(decisions: list[Object], main: Decision | None) -> str:
    if decisions:
        last = decisions[0]
        return f"{last['from']} -> {last['to']}: {last['reason']}"
    return f"{main.desired}: no change yet" if main else "no revision yet"


def _condition(endpoint: Object, report: Report, settings: Settings, now: str) -> Object:
    status, reason, message = _scaled(report, settings)
    before = condition(endpoint, CONDITION)
    same = before.get("status") == status
    return {
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": int(endpoint["metadata"].get("generation") or 0),
        "lastTransitionTime": before.get("lastTransitionTime", now) if same else now,
    }


def _scaled(report: Report, settings: Settings) -> tuple[str, str, str]:
    main = _main(report.verdict.decisions)
    if main is None:
        return "False", "NoRevision", "the endpoint has no revision yet"
    if report.verdict.unknown_s >= settings.silence_s:
        return "False", str(Reason.UNKNOWN), "no gateway tells the load; replicas are held, never lowered"
    if report.foreign is not None:
        return "False", str(Reason.FOREIGN), f"{report.foreign} has set replicas; corrected"
    if report.unwritten:
        return "False", "WriteFailed", "the replicas decided on could not be written yet"
    if main.reason is Reason.CEILING:
        return "True", str(Reason.CEILING), "the load asks for more than concurrency.max allows"
    if main.reason is Reason.BUDGET:
        return "True", str(Reason.BUDGET), "the load asks for more than the cluster has"
    return "True", "FollowsLoad", "replicas follow the load"
