"""Endpoints, Deployments and pods as an API server would tell them, and that server's answers to the loop's writes.

Owns objects as large as real ones. Its one idea: memory and decoding are part of what is measured, so every object is
decoded from JSON of its own, and each write is decoded twice: its answer, and what the watch says of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controllers.kube import CONFIG_MAPS, DEPLOYMENTS, MODEL_ENDPOINTS, PODS, Gvr, Object
from controllers.kube.fields import key_of
from controllers.kube.store import Store
from controllers.rollout.objects import deployment_object
from spec import names

RECORDED = Path(__file__).resolve().parents[2] / "goldens" / "recorded" / "local.alpha.wine.json"
PODS_EACH = 2
LIMIT = 8
TEAMS = 20
SINCE = "2026-01-01T00:00:00Z"
READY = "2026-01-01T00:00:20Z"
HASH = "5dcec9fe"


def endpoint_name(number: int) -> str:
    return f"e{number:05}"


def revision_name(number: int) -> str:
    return f"{endpoint_name(number)}-{HASH}"


def pod_name(number: int, pod: int) -> str:
    return f"{revision_name(number)}-7c9d8f6b5-{number:04x}{'xyz'[pod]}"


def backend_name(number: int) -> str:
    return f"b{number:05}"


def recorded() -> Object:
    """An endpoint object as its stack declares it."""
    found: list[Object] = [each["inputs"] for each in json.loads(RECORDED.read_text())["resources"]]
    return next(each for each in found if each.get("kind") == MODEL_ENDPOINTS.kind)


def decoded(obj: Object) -> Object:
    copy: Object = json.loads(json.dumps(obj))
    return copy


def endpoint_object(number: int, declared: Object) -> Object:
    """Serving, and with a floor of two pods: min 12 in flight over 0.8 x 8 each."""
    name, revision, team = endpoint_name(number), revision_name(number), f"t{number % TEAMS:02}"
    obj = decoded(declared)
    obj["metadata"] |= {"name": name, "namespace": names.team_namespace(team)} | _given(f"u-e-{number}")
    obj["metadata"]["labels"] = names.endpoint_labels(name, team)
    obj["spec"] |= {"team": team, "concurrency": {"min": 12, "max": 1000}}
    obj["spec"]["runtime"]["initialLimit"] = LIMIT
    obj["metadata"]["managedFields"] = [_book("pulumi", {"spec": obj["spec"]})]
    serving = {"name": revision, "phase": "Serving", "since": SINCE, "replicas": PODS_EACH, "ready": PODS_EACH}
    routed = {"trafficRevision": revision, "backends": {revision: backend_name(number)}, "at": SINCE}
    obj["status"] = {
        "trafficRevision": revision,
        "revisions": [serving],
        "gateway": routed,
        "conditions": [_condition(kind) for kind in ("Ready", "Available", "Routed")],
    }
    return obj


def deployment(number: int, endpoint: Object) -> Object:
    obj = decoded(deployment_object(endpoint, revision_name(number)))
    obj["metadata"] |= _given(f"u-d-{number}")
    obj["spec"]["replicas"] = PODS_EACH
    scaled = {"manager": names.MANAGER_AUTOSCALER, "operation": "Update", "subresource": "scale", "time": SINCE}
    rolled = {"labels": obj["metadata"]["labels"]}
    book = [_book("rollout", {"metadata": rolled, "spec": {"template": obj["spec"]["template"]}})]
    obj["metadata"]["managedFields"] = [*book, scaled | {"fieldsV1": {"f:spec": {"f:replicas": {}}}}]
    obj["status"] = {
        "observedGeneration": 1,
        "conditions": [_condition(kind) for kind in ("Available", "Progressing")],
    } | dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas", "availableReplicas"), PODS_EACH)
    return obj


def pod(number: int, which: int, made_by: Object) -> Object:
    template = made_by["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{revision_name(number)}-7c9d8f6b5"}
    metadata = {"name": pod_name(number, which), "namespace": key_of(made_by)[0], "ownerReferences": [owner]}
    server = {"name": "server", "ready": True, "restartCount": 0, "started": True, "imageID": "sha256:" + "cd" * 32}
    init = {"name": "model", "ready": True, "restartCount": 0, "imageID": "sha256:" + "cd" * 32}
    status = {
        "phase": "Running",
        "podIP": f"10.{which}.{number // 256}.{number % 256}",
        "hostIP": "10.255.0.1",
        "startTime": SINCE,
        "conditions": [_condition(kind) for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")],
        "containerStatuses": [server | {"state": {"running": {"startedAt": SINCE}}}],
        "initContainerStatuses": [init | {"state": {"terminated": {"exitCode": 0, "finishedAt": SINCE}}}],
    }
    spec = template["spec"] | {"nodeName": "node-1", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | template["metadata"], "spec": spec}
    obj = decoded(obj | {"status": status})
    obj["metadata"] |= _given(f"u-p-{number}-{which}")
    made, ran = _book("kube-controller-manager", {"spec": template["spec"]}), _book("kubelet", {"status": status})
    obj["metadata"]["managedFields"] = [made, ran]
    return obj


def _given(uid: str) -> Object:
    """What the server adds to any object."""
    return {"uid": uid, "resourceVersion": "1", "generation": 1, "creationTimestamp": SINCE}


def _condition(kind: str) -> Object:
    return {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": READY, "observedGeneration": 1}


def _book(manager: str, owned: Object) -> Object:
    """An entry of managedFields."""
    return {"manager": manager, "operation": "Apply", "time": SINCE, "fieldsV1": _fields(owned)}


def _fields(value: Any) -> Object:
    if isinstance(value, list):
        return {f'k:{{"name":"{each.get("name")}"}}': _fields(each) for each in value if isinstance(each, dict)}
    return {f"f:{key}": _fields(each) for key, each in value.items()} if isinstance(value, dict) else {}


def fill(stores: dict[Gvr, Store], endpoints: int) -> None:
    """Everything, decoded one by one."""
    declared = recorded()
    for number in range(endpoints):
        endpoint = endpoint_object(number, declared)
        made = deployment(number, endpoint)
        stores[MODEL_ENDPOINTS].put(decoded(endpoint))
        stores[DEPLOYMENTS].put(decoded(made))
        for which in range(PODS_EACH):
            stores[PODS].put(decoded(pod(number, which, made)))


class Cluster:
    """The client and the writer, over the stores themselves; `writes` counts."""

    def __init__(self, stores: dict[Gvr, Store]) -> None:
        self.stores, self.writes = stores, 0
        self._versions: Iterator[int] = iter(range(2, 1 << 62))

    def held(self) -> bool:
        return True

    def check(self) -> None:
        return None

    async def get(self, gvr: Gvr, namespace: str, name: str) -> Object:
        return decoded(self.stores[gvr].objects[namespace, name])

    async def list(self, gvr: Gvr, namespace: str | None = None, labels: str | None = None) -> list[Object]:
        return []

    async def create(self, gvr: Gvr, namespace: str, body: Object, manager: str) -> Object:
        return self._answer(body)

    async def apply(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        assert gvr == CONFIG_MAPS
        return self._answer(body)

    async def apply_status(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        held, said = self.stores[gvr].objects[namespace, name], body["status"]
        kept = [c for c in held["status"]["conditions"] if c["type"] not in {own["type"] for own in said["conditions"]}]
        conditions = {"conditions": [*kept, *said["conditions"]]}
        return self._told(gvr, held | {"status": held["status"] | said | conditions})

    async def patch_scale(
        self, namespace: str, name: str, replicas: int, version: str, manager: str, gvr: Gvr
    ) -> Object:
        held = self.stores[gvr].objects[namespace, name]
        return self._told(gvr, held | {"spec": held["spec"] | {"replicas": replicas}})

    def _told(self, gvr: Gvr, obj: Object) -> Object:
        version = {"resourceVersion": str(next(self._versions))}
        answer = self._answer(obj | {"metadata": obj["metadata"] | version})
        self.stores[gvr].put(decoded(answer))
        return answer

    def _answer(self, obj: Object) -> Object:
        self.writes += 1
        return decoded(obj)
