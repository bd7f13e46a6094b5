"""What the gateway writes into an endpoint's status: its own keys, and the condition Routed.

Pure. Leaves the writing to `control`. Its one idea: two statuses differ in what matters (write now), only in
live numbers (write soon), or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from controllers.gateway.assignment import Assignment, Revision
from controllers.gateway.desired import Live, Mode
from controllers.gateway.observed import Identity
from controllers.gateway.snapshot import Endpoint, Problem

CONDITION: Final = "Routed"


@dataclass(frozen=True)
class Condition:
    status: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Report:
    """One endpoint's status as we see it, without times."""

    generation: int
    traffic_revision: str | None
    backends: Mapping[str, str]
    condition: Condition
    limits: Mapping[str, int]
    ready_servers: Mapping[str, int]
    probes: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def weighty(self) -> tuple[object, ...]:
        """What others wait for; the rest are live numbers."""
        return self.generation, self.traffic_revision, dict(self.backends), self.condition


def report(each: Endpoint, assignment: Assignment, live: Live, routed: str | None, problem: Problem | None) -> Report:
    """`routed`: the revision that requests reach now; limits and servers are those that HAProxy shows."""
    own = assignment.by_endpoint.get(each.name, {})
    ready = {
        revision: [s for s in live.servers.get(backend, {}).values() if s.mode is Mode.READY]
        for revision, backend in own.items()
    }
    return Report(
        generation=each.declared.generation,
        traffic_revision=routed,
        backends=own,
        condition=_condition(each, assignment, routed, len(ready.get(routed or "", [])), problem),
        limits={revision: sum(s.maxconn or 0 for s in servers) for revision, servers in ready.items()},
        ready_servers={revision: len(servers) for revision, servers in ready.items()},
        probes=_probes(each, own, live),
    )


def _probes(each: Endpoint, own: Mapping[str, str], live: Live) -> dict[str, tuple[str, int]]:
    """The probed pod of each revision and the limit that it has now."""
    found = {}
    for revision, probe in each.declared.probes.items():
        server = live.servers.get(own.get(revision, ""), {}).get(probe.pod)
        if server is not None and server.mode is Mode.READY and server.maxconn is not None:
            found[revision] = (probe.pod, server.maxconn)
    return found


def _condition(
    each: Endpoint, assignment: Assignment, routed: str | None, ready: int, problem: Problem | None
) -> Condition:
    wanted = each.declared.traffic_revision
    if problem is not None:
        return Condition(False, problem.reason, problem.message)
    if wanted is None:
        return Condition(False, "NoTrafficRevision", "no revision is ready for traffic yet")
    if Revision(each.name, wanted) not in assignment.backends:
        return Condition(
            False,
            "NoSpareBackend",
            f"every spare back end of the gateway is taken, so {wanted} gets no traffic; "
            "raise gateway.spare_backends in platform.yaml",
        )
    if routed != wanted:
        return Condition(False, "WaitingForPods", f"requests reach {routed}; too few pods of {wanted} are ready")
    if not ready:
        return Condition(False, "NoReadyPods", f"no pod of {wanted} is ready")
    return Condition(True, "Routed", f"requests reach {wanted}")


def refused(problem: Problem) -> Condition:
    """For an endpoint that is not in the snapshot at all."""
    return Condition(False, problem.reason, problem.message)


def body(
    identity: Identity,
    condition: Condition,
    now: str,
    previous: Mapping[str, Any] | None,
    generation: int,
    gateway: Report | None,
) -> dict[str, Any]:
    """The object for server-side apply. `previous`: the condition as it stands, which keeps its time."""
    status = "True" if condition.status else "False"
    same = previous is not None and previous.get("status") == status
    written: dict[str, Any] = {
        "conditions": [
            {
                "type": CONDITION,
                "status": status,
                "reason": condition.reason,
                "message": condition.message,
                "observedGeneration": generation,
                "lastTransitionTime": previous["lastTransitionTime"] if same and previous else now,
            }
        ]
    }
    if gateway is not None:
        written["gateway"] = _numbers(gateway) | {"at": now}
    return {"metadata": {"namespace": identity.namespace, "name": identity.name}, "status": written}


def _numbers(gateway: Report) -> dict[str, Any]:
    traffic = {"trafficRevision": gateway.traffic_revision} if gateway.traffic_revision else {}
    asked = {revision: {"pod": pod, "limit": limit} for revision, (pod, limit) in gateway.probes.items()}
    probes = {"probes": asked} if asked else {}
    return (
        traffic
        | probes
        | {
            "generation": gateway.generation,
            "backends": dict(gateway.backends),
            "limits": dict(gateway.limits),
            "readyServers": dict(gateway.ready_servers),
        }
    )
