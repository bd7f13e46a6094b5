"""API objects -> closed facts: what an endpoint declares, which pods it has, which keys exist.

Pure. Leaves to `snapshot` what follows from them. Its one idea: this is the edge; an object that breaks a
rule becomes one `Fault` with a sentence, and below nobody checks again.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from spec import names

Object = dict[str, Any]

_POD_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_SHA256 = re.compile(r"[0-9a-f]{64}")
WEIGHT_MAX: Final = 256  # HAProxy's
_DEADLINE_MAX_MS: Final = 297_000


@dataclass(frozen=True)
class Fault:
    """Why an object can't be used: a reason in CamelCase for the condition, and a sentence."""

    reason: str
    message: str


class FaultError(Exception):
    """Carries a Fault out of the reading of an object."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.fault = Fault(reason, message)


@dataclass(frozen=True, order=True)
class Identity:
    """Where an endpoint object lives."""

    namespace: str
    name: str


@dataclass(frozen=True)
class Probe:
    """What the autoscaler asks of one pod for a while: another limit, and so much of the requests beside 1 of any
    other pod's."""

    pod: str
    limit: int
    weight: int


@dataclass(frozen=True)
class Declared:
    """What one endpoint object says, checked."""

    identity: Identity
    generation: int
    created: str
    teams: frozenset[str]
    traffic_revision: str | None
    revisions: frozenset[str]  # every revision that a controller names in the status
    limits: Mapping[str, int]  # of one pod, by revision; others have `initial_limit`
    probes: Mapping[str, Probe]  # by revision
    desired: Mapping[str, int]  # pods, by revision, where the autoscaler has said so
    initial_limit: int
    concurrency_max: int
    deadline_ms: int
    queue_max: int
    queue_timeout_ms: int
    paths: frozenset[str]  # that pass beside those that every endpoint has
    prefix_affinity: bool  # requests whose prompts begin alike prefer one pod
    recorded_backends: Mapping[str, str]  # what the gateway last wrote into the status
    recorded_traffic: str | None

    @property
    def name(self) -> str:
        return self.identity.name


class PodState(Enum):
    READY = "ready"
    NOT_READY = "not ready"
    TERMINATING = "terminating"


@dataclass(frozen=True)
class Pod:
    """One address of an EndpointSlice."""

    identity: Identity  # of the endpoint it says it belongs to
    revision: str
    name: str
    address: str
    port: int
    state: PodState


@dataclass(frozen=True)
class Key:
    """An API key: never itself, only its digest, in the capitals that HAProxy's `hex` writes."""

    team: str
    digest: str


def identity_of(obj: Object) -> Identity:
    metadata = obj["metadata"]
    return Identity(str(metadata["namespace"]), str(metadata["name"]))


def is_going(obj: Object) -> bool:
    """Deletion has begun: its route goes first, its pods later."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def read_endpoint(obj: Object) -> Declared | Fault:
    """The facts of one endpoint object, or what is wrong with it; raises nothing."""
    try:
        return _declared(obj)
    except FaultError as error:
        return error.fault
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return Fault("InvalidObject", f"the object can't be read: {type(error).__name__} {error}")


def _declared(obj: Object) -> Declared:
    identity, spec, status = identity_of(obj), _mapping(obj, "spec"), _mapping(obj, "status", {})
    if names.name_problem("endpoint", identity.name) is not None:
        raise FaultError("InvalidName", f"{identity.name!r} can't name an endpoint")
    routing, scaled = _mapping(spec, "routing"), _mapping(status, "autoscaler", {})
    per_revision = {str(k): v for k, v in _mapping(scaled, "revisions", {}).items() if isinstance(v, dict)}
    gateway = _mapping(status, "gateway", {})
    named = {str(r["name"]) for r in status.get("revisions") or [] if isinstance(r, dict) and "name" in r}
    found = Declared(
        identity=identity,
        generation=int(obj["metadata"].get("generation") or 0),
        created=str(obj["metadata"].get("creationTimestamp") or ""),
        teams=_teams(spec),
        traffic_revision=_optional(status.get("trafficRevision")),
        revisions=frozenset(named | set(per_revision)),
        limits=_numbers(per_revision, "limit", 1),
        probes=_probes(per_revision),
        desired=_numbers(per_revision, "desired", 0),
        initial_limit=_number(_mapping(spec, "runtime"), "initialLimit", 1, "spec.runtime"),
        concurrency_max=_number(_mapping(spec, "concurrency"), "max", 1, "spec.concurrency"),
        deadline_ms=_number(routing, "deadlineMs", 1, "spec.routing", _DEADLINE_MAX_MS),
        queue_max=_number(routing, "queueMax", 0, "spec.routing"),
        queue_timeout_ms=_number(routing, "queueTimeoutMs", 1, "spec.routing"),
        paths=_paths(routing),
        prefix_affinity=_prefix_affinity(routing),
        recorded_backends={str(k): str(v) for k, v in _mapping(gateway, "backends", {}).items()},
        recorded_traffic=_optional(gateway.get("trafficRevision")),
    )
    _check_traffic(found)
    return found


def _check_traffic(found: Declared) -> None:
    revision = found.traffic_revision
    if revision is None:
        return
    if names.endpoint_of_revision(revision) != found.name:
        raise FaultError("UnknownRevision", f"status.trafficRevision {revision!r} is no revision of {found.name}")
    if revision not in found.revisions:
        raise FaultError("UnknownRevision", f"status.trafficRevision {revision!r} is not among status.revisions")


def _teams(spec: Object) -> frozenset[str]:
    teams = _mapping(spec, "access").get("teams")
    if not isinstance(teams, list) or not teams:
        raise FaultError("InvalidSpec", "spec.access.teams: a list of at least one team is needed")
    bad = [t for t in teams if not isinstance(t, str) or names.name_problem("team", t) is not None]
    if bad:
        raise FaultError("InvalidSpec", f"spec.access.teams: {bad[0]!r} can't name a team")
    return frozenset(teams)


def _paths(routing: Object) -> frozenset[str]:
    paths = routing.get("paths") or []
    if not isinstance(paths, list):
        raise FaultError("InvalidSpec", f"spec.routing.paths: a list is needed, {type(paths).__name__} found")
    for path in paths:
        if not isinstance(path, str) or len(path) > names.URL_PATH_MAX or not re.fullmatch(names.URL_PATH, path):
            raise FaultError("InvalidSpec", f"spec.routing.paths: {str(path)[: names.URL_PATH_MAX]!r} is no path")
    return frozenset(paths)


def _prefix_affinity(routing: Object) -> bool:
    said = routing.get("affinity")
    if said not in (None, names.AFFINITY_PREFIX):
        raise FaultError("InvalidSpec", f"spec.routing.affinity is {said!r:.64}: only {names.AFFINITY_PREFIX} is known")
    return said is not None


def _optional(value: Any) -> str | None:
    return None if value in (None, "") else str(value)


_REQUIRED: Final[Object] = {"required": True}


def _mapping(obj: Object, key: str, default: Object = _REQUIRED) -> Object:
    value = obj.get(key)
    if value is None and default is not _REQUIRED:
        return default
    if not isinstance(value, dict):
        raise FaultError("InvalidSpec", f"{key}: an object is needed, {type(value).__name__} found")
    return value


def _number(obj: Object, key: str, least: int, where: str, most: int = 2**31 - 1) -> int:
    """Never 0 for a limit: to HAProxy that means unlimited."""
    value = obj.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise FaultError("InvalidSpec", f"{where}.{key} is {value!r}: an integer from {least} to {most} is needed")
    return value


def _numbers(per_revision: Mapping[str, Object], key: str, least: int) -> dict[str, int]:
    where = "status.autoscaler.revisions"
    return {
        revision: _number(said, key, least, f"{where}.{revision}")
        for revision, said in per_revision.items()
        if said.get(key) is not None
    }


def _probes(per_revision: Mapping[str, Object]) -> dict[str, Probe]:
    found = {}
    for revision, said in per_revision.items():
        asked, where = _mapping(said, "probe", {}), f"status.autoscaler.revisions.{revision}.probe"
        if asked:
            weight = _number(asked, "weight", 1, where, WEIGHT_MAX) if "weight" in asked else 1
            found[revision] = Probe(str(asked.get("pod")), _number(asked, "limit", 1, where), weight)
    return found


_PRECEDENCE: Final = (PodState.NOT_READY, PodState.READY, PodState.TERMINATING)


def merge(found: Iterable[Pod]) -> tuple[Pod, ...]:
    """Each pod once, sorted. One that stands in two slices: IPv4 before IPv6, leaving before ready before not."""
    best: dict[tuple[Identity, str, str], Pod] = {}
    for pod in found:
        key = (pod.identity, pod.revision, pod.name)
        if key not in best or _rank(pod) > _rank(best[key]):
            best[key] = pod
    return tuple(best[key] for key in sorted(best))


def _rank(pod: Pod) -> tuple[bool, int]:
    return ":" not in pod.address, _PRECEDENCE.index(pod.state)


def read_slice(obj: Object) -> tuple[Pod, ...]:
    """The pods of one EndpointSlice; none where it does not carry our labels."""
    try:
        return tuple(_pods_of(obj))
    except (AttributeError, KeyError, TypeError, ValueError):
        return ()


def _pods_of(obj: Object) -> Iterable[Pod]:
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    endpoint, revision = labels.get(names.LABEL_ENDPOINT), labels.get(names.LABEL_REVISION)
    port = _port(obj.get("ports") or [])
    if not endpoint or not revision or port is None:
        return
    if names.endpoint_of_revision(revision) != endpoint:
        return
    identity = Identity(str(metadata["namespace"]), str(endpoint))
    for entry in obj.get("endpoints") or []:
        for address in (entry.get("addresses") or [])[:1]:
            name = str((entry.get("targetRef") or {}).get("name") or address.replace(":", "-"))
            if _is_address(address) and _POD_NAME.fullmatch(name):
                yield Pod(identity, revision, name, address, port, _state(entry.get("conditions") or {}))


def _port(ports: list[Object]) -> int | None:
    chosen = next((p for p in ports if p.get("name") == "http"), ports[0] if ports else {})
    return chosen.get("port")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _state(conditions: Object) -> PodState:
    if conditions.get("terminating"):
        return PodState.TERMINATING
    return PodState.NOT_READY if conditions.get("ready") is False else PodState.READY


def read_keys(secret: Object | None) -> tuple[tuple[Key, ...], tuple[str, ...]]:
    """The keys of the Secret, and one sentence for each entry that can't be used. No entry is echoed."""
    found: dict[str, Key] = {}
    problems = []
    for key_id, data in sorted(((secret or {}).get("data") or {}).items()):
        try:
            key = _key(json.loads(base64.b64decode(data, validate=True)))
        except (ValueError, binascii.Error, KeyError, TypeError):
            problems.append(f"key {key_id}: not an object with a team and a SHA-256 in lower-case hex digits")
            continue
        if found.setdefault(key.digest, key).team != key.team:
            problems.append(f"key {key_id}: its digest already belongs to team {found[key.digest].team}")
    return tuple(sorted(found.values(), key=lambda key: key.digest)), tuple(problems)


def _key(entry: Object) -> Key:
    team, digest = entry["team"], entry["sha256"]
    if names.name_problem("team", team) is not None or not _SHA256.fullmatch(digest):
        raise ValueError(team)
    return Key(team, digest.upper())
