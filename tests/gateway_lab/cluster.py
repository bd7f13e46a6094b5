"""An API server in memory, as far as the gateway uses one, and the objects that it holds."""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS, Event, Gvr, Unreachable
from spec import names
from tests.gateway_lab.pods import Pod

Object = dict[str, Any]


def revision(endpoint: str, number: int = 1) -> str:
    return f"{endpoint}-{number:08x}"


def endpoint_object(
    name: str = "iris",
    *,
    team: str = "alpha",
    teams: Iterable[str] = (),
    limit: int = 4,
    maximum: int = 1000,
    deadline_ms: int = 10_000,
    queue_max: int = 100,
    queue_timeout_ms: int = 5000,
    paths: Iterable[str] = (),
    affinity: str | None = None,
    traffic: str | None = None,
    revisions: Iterable[str] = (),
    limits: dict[str, int] | None = None,
    probe: Object | None = None,
    generation: int = 1,
) -> Object:
    traffic = revision(name) if traffic is None else traffic
    asked = {"probe": probe} if probe is not None else {}
    known = sorted({*revisions, *([traffic] if traffic else [])})
    return {
        "metadata": {
            "name": name,
            "namespace": f"team-{team}",
            "uid": f"uid-{team}-{name}",
            "generation": generation,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "team": team,
            "runtime": {"name": "mlflow", "initialLimit": limit},
            "concurrency": {"min": 1, "max": maximum},
            "routing": {
                "deadlineMs": deadline_ms,
                "queueMax": queue_max,
                "queueTimeoutMs": queue_timeout_ms,
                **({"paths": list(paths)} if paths else {}),
                **({"affinity": affinity} if affinity is not None else {}),
            },
            "access": {"teams": sorted({team, *teams})},
        },
        "status": {
            **({"trafficRevision": traffic} if traffic else {}),
            "revisions": [{"name": each, "phase": "Serving"} for each in known],
            "autoscaler": {"revisions": {rev: {"limit": value} | asked for rev, value in (limits or {}).items()}},
        },
    }


def slice_object(
    name: str,
    rev: str,
    pods: Iterable[Pod],
    *,
    team: str = "alpha",
    leaving: Iterable[str] = (),
    unready: Iterable[str] = (),
) -> Object:
    gone, waiting = set(leaving), set(unready)
    return {
        "metadata": {
            "name": f"{rev}-slice",
            "namespace": f"team-{team}",
            "labels": {names.LABEL_ENDPOINT: name, names.LABEL_REVISION: rev, names.LABEL_TEAM: team},
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080}],
        "endpoints": [
            {
                "addresses": ["127.0.0.1"],
                "conditions": {
                    "ready": pod.name not in gone | waiting,
                    "serving": pod.name not in waiting,
                    "terminating": pod.name in gone,
                },
                "targetRef": {"kind": "Pod", "name": pod.name},
            }
            for pod in pods
        ],
    }


def slices(
    name: str,
    rev: str,
    pods: Iterable[Pod],
    *,
    team: str = "alpha",
    leaving: Iterable[str] = (),
    unready: Iterable[str] = (),
) -> list[Object]:
    """One slice a pod: here pods share an address and differ by port, which a slice has only once."""
    found = []
    for pod in pods:
        obj = slice_object(name, rev, [pod], team=team, leaving=leaving, unready=unready)
        obj["metadata"]["name"] = f"{pod.name}-slice"
        obj["ports"] = [{"name": "http", "port": pod.port}]
        found.append(obj)
    return found


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def keys_object(keys: dict[str, str]) -> Object:
    """`keys`: key -> team."""
    entries = {f"key-{digest(key)[:6]}": {"team": team, "sha256": digest(key)} for key, team in keys.items()}
    data = {name: base64.b64encode(json.dumps(entry).encode()).decode() for name, entry in entries.items()}
    return {
        "metadata": {"name": names.SECRET_GATEWAY_KEYS, "namespace": names.SYSTEM_NAMESPACE},
        "data": data,
    }


class Cluster:
    """Holds objects, tells each change to every watch, takes statuses; `away` makes every call fail."""

    def __init__(self) -> None:
        self._objects: dict[Gvr, dict[tuple[str, str], Object]] = {
            gvr: {} for gvr in (MODEL_ENDPOINTS, ENDPOINT_SLICES, SECRETS)
        }
        self._watches: dict[Gvr, list[asyncio.Queue[Event]]] = {gvr: [] for gvr in self._objects}
        self._there = asyncio.Event()
        self._there.set()
        self.statuses: list[tuple[str, Object]] = []

    def put(self, gvr: Gvr, *objects: Object) -> None:
        for obj in objects:
            key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
            held = self._objects[gvr].get(key)
            obj = copy.deepcopy(obj)
            for part in ("gateway", "conditions"):  # what the gateway owns, a writer of the rest leaves alone
                if held is not None and part in held.get("status", {}):
                    obj["status"][part] = held["status"][part]
            self._objects[gvr][key] = obj
            self._tell(gvr, Event("ADDED" if held is None else "MODIFIED", (obj,)))

    def remove(self, gvr: Gvr, *objects: Object) -> None:
        for obj in objects:
            key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
            self._tell(gvr, Event("DELETED", (self._objects[gvr].pop(key),)))

    def put_pods(self, name: str, rev: str, pods: Iterable[Pod], team: str = "alpha", **states: Iterable[str]) -> None:
        """The pods of a revision, and no others."""
        wanted = slices(name, rev, pods, team=team, **states)
        kept = {obj["metadata"]["name"] for obj in wanted}
        held = [
            obj
            for obj in self._objects[ENDPOINT_SLICES].values()
            if obj["metadata"]["labels"][names.LABEL_REVISION] == rev
            and obj["metadata"]["namespace"] == f"team-{team}"
            and obj["metadata"]["name"] not in kept
        ]
        self.put(ENDPOINT_SLICES, *wanted)
        self.remove(ENDPOINT_SLICES, *held)

    def _tell(self, gvr: Gvr, event: Event) -> None:
        for queue in self._watches[gvr]:
            queue.put_nowait(event)

    def status(self, name: str, team: str = "alpha") -> Object:
        found = self._objects[MODEL_ENDPOINTS].get((f"team-{team}", name), {})
        return dict(found.get("status") or {})

    def condition(self, name: str, team: str = "alpha") -> Object:
        conditions = self.status(name, team).get("conditions") or [{}]
        return dict(next((c for c in conditions if c.get("type") == "Routed"), {}))

    @property
    def away(self) -> bool:
        return not self._there.is_set()

    @away.setter
    def away(self, away: bool) -> None:
        if away:
            self._there.clear()
        else:
            self._there.set()

    # What the gateway calls.

    async def watch(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> AsyncIterator[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        await self._there.wait()
        self._watches[gvr].append(queue)
        try:
            yield Event("SYNC", tuple(self._objects[gvr].values()))
            while True:
                event = await queue.get()
                await self._there.wait()
                yield event
        finally:
            self._watches[gvr].remove(queue)

    async def list(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> list[Object]:
        if self.away:
            raise Unreachable("the API server is away")
        return list(self._objects[gvr].values())

    async def apply_status(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        if self.away:
            raise Unreachable("the API server is away")
        self.statuses.append((name, copy.deepcopy(body["status"])))
        held = self._objects[gvr][namespace, name]
        status = held.setdefault("status", {})
        status.pop("gateway", None)
        status |= body["status"]
        self._tell(gvr, Event("MODIFIED", (held,)))
        return held
