"""Rollout's keys of the endpoint's status, as an object to apply; and whether it says anything new. Pure."""

from controllers.kube.fields import condition, mapping, timestamp
from controllers.kube.resources import Object
from controllers.rollout.core import Status

_LISTED = ("revisions", "conditions")


def status_object(status: Status) -> Object:
    """What knobless-rollout applies: its own keys, all of them, each time."""
    said: Object = {
        "observedGeneration": status.observed_generation,
        "declaredRevision": status.declared_revision,
        "modelVersion": status.model_version,
        "readySpecDigest": status.ready_spec_digest,
        "revisions": [
            {
                "name": entry.name,
                "phase": str(entry.phase),
                "modelVersion": entry.model_version,
                "since": timestamp(entry.since_s),
                "reason": entry.reason,
                "message": entry.message,
            }
            for entry in status.revisions
        ],
        "conditions": [
            {
                "type": c.type,
                "status": str(c.status),
                "reason": c.reason,
                "message": c.message,
                "observedGeneration": c.generation,
                "lastTransitionTime": timestamp(c.since_s),
            }
            for c in status.conditions
        ],
    }
    return said | ({"trafficRevision": status.traffic_revision} if status.traffic_revision else {})


def same_status(endpoint: Object, status: Status) -> bool:
    """Whether the object already says all of it; what others own is not looked at."""
    have, want = mapping(endpoint, "status"), status_object(status)
    plain = all(have.get(key) == value for key, value in want.items() if key not in _LISTED)
    revisions = {r["name"]: r for r in have.get("revisions") or []} == {r["name"]: r for r in want["revisions"]}
    conditions = all(condition(endpoint, c["type"]) == c for c in want["conditions"])
    return plain and revisions and conditions and ("trafficRevision" in want or "trafficRevision" not in have)
