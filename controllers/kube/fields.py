"""Reading plain objects: absent and null are the same, a time is a number of seconds. Pure."""

from datetime import UTC, datetime
from typing import Any

from controllers.kube.resources import Object


def at(obj: Any, *path: str) -> Any:
    """The value at `path`, or None where any step is absent: at(pod, "status", "podIP")."""
    for step in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(step)
    return obj


def items(obj: Any, *path: str) -> list[Any]:
    """The list at `path`, empty where it is absent."""
    found = at(obj, *path)
    return found if isinstance(found, list) else []


def mapping(obj: Any, *path: str) -> Object:
    """The object at `path`, empty where it is absent."""
    found = at(obj, *path)
    return found if isinstance(found, dict) else {}


def number(obj: Any, *path: str) -> int:
    """The whole number at `path`, 0 where it is absent: the API leaves out zeros."""
    found = at(obj, *path)
    return int(found) if isinstance(found, int | float) else 0


def seconds(timestamp: Any) -> float | None:
    """RFC 3339 as seconds since the epoch, None where it is absent or no time."""
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp() if timestamp else None
    except ValueError:
        return None


def timestamp(now_s: float) -> str:
    """Seconds since the epoch as the API writes times: 2026-01-31T12:00:00Z."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(now_s: float) -> str:
    """As `timestamp`, with microseconds, as leases and events want it."""
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def condition(obj: Any, kind: str) -> Object:
    """The condition of that type in `status.conditions`, empty where there is none."""
    return next((c for c in items(obj, "status", "conditions") if at(c, "type") == kind), {})


def key_of(obj: Object) -> tuple[str, str]:
    """(namespace, name)."""
    return str(at(obj, "metadata", "namespace") or ""), str(at(obj, "metadata", "name"))


def covers(live: Any, desired: Any) -> bool:
    """Whether everything `desired` says already stands in `live`, which may say more. Lists match whole."""
    if desired in ({}, []) and live is None:  # the API server drops what is empty
        return True
    if isinstance(desired, dict):
        return isinstance(live, dict) and all(covers(live.get(k), v) for k, v in desired.items())
    if isinstance(desired, list):
        return (
            isinstance(live, list)
            and len(live) == len(desired)
            and all(covers(have, want) for have, want in zip(live, desired, strict=True))
        )
    return bool(live == desired)
