"""What runs: endpoint objects turned into lines for a person and into JSON for a program.

Reads only the objects' status, where each controller wrote its own part; nothing is guessed. What no controller
has written yet is shown as `-`, never as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controllers.kube import Object
from controllers.kube.fields import mapping
from stacks.cli.console import table

HEADER = ["ENDPOINT", "TEAM", "VERSION", "READY", "TARGET", "LIMITS", "STATE", "LAST DECISION"]


@dataclass(frozen=True)
class Decision:
    """One entry of the autoscaler's last decisions."""

    at: str
    revision: str
    before: int | None
    after: int | None
    reason: str
    detail: str


@dataclass(frozen=True)
class EndpointStatus:
    """One endpoint as the controllers describe it; None is "not written yet". Each replica is a pod on every one of so
    many `nodes`."""

    endpoint: str
    team: str
    model: str
    version: str | None
    ready_replicas: int | None
    desired_replicas: int | None
    target_concurrency: float | None
    demand: float | None
    minimum: int
    maximum: int
    ready: bool
    reason: str
    message: str
    last_decision: str | None
    revisions: tuple[Mapping[str, Any], ...]
    decisions: tuple[Decision, ...]
    nodes: int = 1


def read(endpoint: Object) -> EndpointStatus:
    """The status of one endpoint object, whatever part of it exists."""
    spec, status = endpoint["spec"], endpoint.get("status") or {}
    scaler = status.get("autoscaler") or {}
    ready: Mapping[str, Any] = next((c for c in status.get("conditions") or [] if c.get("type") == "Ready"), {})
    current = ready.get("observedGeneration") == endpoint["metadata"].get("generation")
    return EndpointStatus(
        endpoint=endpoint["metadata"]["name"],
        team=spec["team"],
        model=spec["model"]["uri"],
        version=status.get("modelVersion"),
        ready_replicas=scaler.get("readyReplicas"),
        desired_replicas=scaler.get("desiredReplicas"),
        target_concurrency=scaler.get("targetConcurrency"),
        demand=scaler.get("demand"),
        minimum=spec["concurrency"]["min"],
        maximum=spec["concurrency"]["max"],
        ready=current and ready.get("status") == "True",
        reason=str(ready.get("reason", "Pending")) if current else "Pending",
        message=str(ready.get("message", "")) if current else "the controllers have not seen this change yet",
        last_decision=scaler.get("lastDecision"),
        revisions=tuple(status.get("revisions") or ()),
        decisions=tuple(_decision(entry) for entry in scaler.get("decisions") or ()),
        nodes=spec.get("nodes", 1),
    )


def declared_target(endpoint: Object) -> float | None:
    """The target that the endpoint's range is counted by; a large pool's own may be higher. None: not written yet."""
    status = mapping(endpoint, "status")
    own = mapping(status, "autoscaler", "revisions", str(status.get("trafficRevision") or ""))
    target: float | None = own.get("declared") or mapping(status, "autoscaler").get("targetConcurrency")
    return target


def _decision(entry: Mapping[str, Any]) -> Decision:
    return Decision(
        at=str(entry.get("at", "")),
        revision=str(entry.get("revision", "")),
        before=entry.get("from"),
        after=entry.get("to"),
        reason=str(entry.get("reason", "")),
        detail=str(entry.get("detail", "")),
    )


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def row(status: EndpointStatus) -> list[str]:
    return [
        status.endpoint,
        status.team,
        _shown(status.version),
        f"{_shown(status.ready_replicas)}/{_shown(status.desired_replicas)}",
        _shown(status.target_concurrency),
        f"{status.minimum}-{status.maximum}",
        "Ready" if status.ready else status.reason,
        _shown(status.last_decision),
    ]


def render(statuses: list[EndpointStatus]) -> str:
    """The table, and below it one line for each endpoint that is not ready."""
    if not statuses:
        return "No endpoints."
    lines = [table([row(status) for status in statuses], HEADER)]
    lines += [f"{s.endpoint}: {s.reason}: {s.message}" for s in statuses if not s.ready]
    return "\n".join(lines)


def render_one(status: EndpointStatus) -> str:
    """One endpoint whole: its line, its revisions, its last decisions with their reasons."""
    revisions = [[str(r.get(k, "-")) for k in ("name", "phase", "modelVersion", "since")] for r in status.revisions]
    decisions = [
        [d.at, d.revision, f"{_shown(d.before)} -> {_shown(d.after)}", d.reason, d.detail] for d in status.decisions
    ]
    wide = (
        [f"replicas: each over {status.nodes} nodes, the pod that leads takes its requests"] if status.nodes > 1 else []
    )
    parts = [render([status]), "\n".join([f"model: {status.model}", *wide])]
    if revisions:
        parts.append(table(revisions, ["REVISION", "PHASE", "VERSION", "SINCE"]))
    if decisions:
        parts.append(table(decisions, ["AT", "REVISION", "REPLICAS", "REASON", "DETAIL"]))
    return "\n\n".join(parts)


def as_json(statuses: list[EndpointStatus]) -> list[dict[str, Any]]:
    return [asdict(status) for status in statuses]


def failure(endpoint: Object) -> str | None:
    """Why waiting for this object is pointless: the rollout's word that the revision declared now can't start."""
    status = endpoint.get("status") or {}
    if status.get("observedGeneration") != endpoint["metadata"].get("generation"):
        return None
    for revision in status.get("revisions") or ():
        if revision.get("name") == status.get("declaredRevision") and revision.get("phase") == "Failed":
            return f"{revision.get('reason', 'Failed')}: {revision.get('message', '')}"
    return None
