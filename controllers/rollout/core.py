"""Decides a rollout: an endpoint and its revisions as they are, and the time -> the status to write, what to do.

Owns the status and the dates of its conditions. `plan` moves the revisions, `conditions` finds the words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controllers.rollout.conditions import Verdict, verdicts
from controllers.rollout.plan import Plan, plan
from controllers.rollout.view import Condition, EndpointView, Entry, RevisionView


@dataclass(frozen=True)
class Status:
    """The keys of the endpoint's status that rollout owns."""

    observed_generation: int
    declared_revision: str
    traffic_revision: str | None
    model_version: str
    ready_spec_digest: str
    revisions: tuple[Entry, ...]
    conditions: tuple[Condition, ...]


def decide(endpoint: EndpointView, revisions: Mapping[str, RevisionView], now_s: float) -> tuple[Status, Plan]:
    """Total: any view has an answer. `Plan.actions` are safe to repeat."""
    planned = plan(endpoint, revisions, now_s)
    said = verdicts(endpoint, planned, revisions)
    traffic = next((entry for entry in planned.entries if entry.name == planned.traffic), None)
    status = Status(
        observed_generation=endpoint.generation,
        declared_revision=endpoint.declared,
        traffic_revision=planned.traffic,
        model_version=traffic.model_version if traffic else "",
        ready_spec_digest=endpoint.spec_digest if said["Ready"].status else endpoint.ready_spec_digest,
        revisions=planned.entries,
        conditions=tuple(_dated(endpoint, kind, verdict, now_s) for kind, verdict in said.items()),
    )
    return status, planned


def _dated(endpoint: EndpointView, kind: str, verdict: Verdict, now_s: float) -> Condition:
    before = next((c for c in endpoint.conditions if c.type == kind), None)
    unchanged = before is not None and before.status == verdict.status
    since_s = before.since_s if before is not None and unchanged else now_s
    return Condition(kind, verdict.status, verdict.reason, verdict.message, endpoint.generation, since_s)
