"""An API server in memory and the controllers of Kubernetes that matter here: Deployment, kubelet, LeaderWorkerSet.

It answers like the real one where our controllers could tell: default of one replica, versions that conflict, a status
that is applied by owners, deletion with what is owned.
"""

import copy
import itertools
from collections import defaultdict
from dataclasses import dataclass, replace

from controllers.kube import (
    CONFIG_MAPS,
    LEADER_WORKER_SETS,
    MODEL_ENDPOINTS,
    PODS,
    SERVICES,
    AlreadyExists,
    Conflict,
    Gvr,
    NotFound,
    Object,
    Unreachable,
)
from controllers.kube.fields import key_of, timestamp
from controllers.kube.resources import Objects
from controllers.kube.store import Key, Store
from controllers.kube.watch import Event
from controllers.workloads import KINDS, gvr_of, leads
from spec import names


@dataclass
class Behaviour:
    """How a revision's pods behave. `trouble` is a pod status that they get instead of ever being ready, those from the
    `trouble_from`th on; of a group those that work, and the one that leads waits for them."""

    start_s: float = 10.0
    trouble: str | None = None
    trouble_from: int = 0
    most: int = 1000  # pods that find room
    lost: frozenset[int] = frozenset()  # groups whose node is gone: none of their pods is ready again


class Cluster:
    """The subset of KubeClient that the controllers use. `time_s` is set by the world."""

    def __init__(self, start_s: float = 10.0) -> None:
        self.time_s = 0.0
        self.down = False
        self.lacking: set[Gvr] = set()
        self.objects: dict[Gvr, dict[Key, Object]] = defaultdict(dict)
        self.stores: dict[Gvr, Store] = {}
        self.behaviours: dict[str, Behaviour] = defaultdict(lambda: Behaviour(start_s))
        self.writes: list[str] = []
        self._owned: dict[tuple[Key, str], Object] = {}
        self._conditions: dict[tuple[Key, str], set[str]] = {}
        self._versions, self._uids = itertools.count(1), itertools.count(1)

    async def get(self, gvr: Gvr, namespace: str, name: str) -> Object:
        self._reachable()
        return copy.deepcopy(self._held(gvr, namespace, name))

    async def list(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> Objects:
        self._reachable()
        return [copy.deepcopy(obj) for (space, _), obj in self.objects[gvr].items() if space == namespace]

    async def create(self, gvr: Gvr, namespace: str, body: Object, manager: str) -> Object:
        self._reachable()
        if key_of(body) in self.objects[gvr]:
            raise AlreadyExists(409, "AlreadyExists", "there")
        return self.store(gvr, body)

    def lack(self, gvr: Gvr, lacks: bool) -> None:
        """The kind is not, or no longer, one of this cluster; nothing of it may be there."""
        assert not (lacks and self.objects[gvr])
        self.lacking = {gvr} if lacks else set()
        there = tuple(copy.deepcopy(obj) for obj in self.objects[gvr].values())
        self.stores[gvr].take(Event("ABSENT" if lacks else "SYNC", there))

    async def apply(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        self._reachable()
        if gvr in self.lacking:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        held = self.objects[gvr].get((namespace, name))
        if gvr == CONFIG_MAPS:  # one writer, which says everything: what it leaves out is gone
            held = {"metadata": {"namespace": namespace, "name": name}}
            self.writes.append(f"{manager} {name}")
        if gvr in KINDS and held is None:
            body = body | {"spec": {"replicas": 1} | body["spec"]}
        return self.store(gvr, _merged(held or {}, body))

    async def apply_status(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        self._reachable()
        held = copy.deepcopy(self._held(gvr, namespace, name))
        said, key = copy.deepcopy(body["status"]), ((namespace, name), manager)
        status = held.setdefault("status", {})
        for gone in set(self._owned.get(key, {})) - set(said):
            status.pop(gone, None)
        own = said.pop("conditions", [])
        conditions = {c["type"]: c for c in status.get("conditions", [])}
        for gone in self._conditions.get(key, set()) - {c["type"] for c in own}:
            conditions.pop(gone, None)
        conditions |= {c["type"]: c for c in own}
        self._conditions[key] = {c["type"] for c in own}
        held["status"] = status | said | {"conditions": list(conditions.values())}
        self._owned[key] = said
        self.writes.append(f"{manager} {name}")
        return self.store(gvr, held)

    async def patch_scale(
        self, namespace: str, name: str, replicas: int, resource_version: str, manager: str, gvr: Gvr
    ) -> Object:
        self._reachable()
        held = copy.deepcopy(self._held(gvr, namespace, name))
        if held["metadata"]["resourceVersion"] != resource_version:
            raise Conflict(409, "Conflict", "it moved on")
        return self.scale(held, replicas, manager)

    def scale(self, workload: Object, replicas: int, manager: str) -> Object:
        """Anybody's hand on spec.replicas."""
        held = copy.deepcopy(workload)
        held["spec"]["replicas"] = replicas
        fields = {"f:spec": {"f:replicas": {}}}
        held["metadata"]["managedFields"] = [{"manager": manager, "subresource": "scale", "fieldsV1": fields}]
        return self.store(gvr_of(held), held)

    async def delete(
        self, gvr: Gvr, namespace: str, name: str, propagation: str = "Background", uid: str | None = None
    ) -> None:
        self._reachable()
        held = self._held(gvr, namespace, name)
        if uid is not None and held["metadata"]["uid"] != uid:
            raise Conflict(409, "Conflict", "another object")
        self.remove(gvr, (namespace, name))

    def store(self, gvr: Gvr, obj: Object) -> Object:
        """Keeps an object, gives it what the server gives, tells the watchers."""
        obj = {"apiVersion": gvr.api_version, "kind": gvr.kind} | copy.deepcopy(obj)
        before = self.objects[gvr].get(key_of(obj))
        metadata = obj["metadata"]
        metadata.setdefault("uid", f"uid-{next(self._uids)}")
        metadata.setdefault("creationTimestamp", timestamp(self.time_s))
        changed = before is None or before.get("spec") != obj.get("spec")
        generation = before["metadata"]["generation"] if before else 0
        metadata["generation"] = generation + 1 if changed else generation
        metadata["resourceVersion"] = str(next(self._versions))
        self.objects[gvr][key_of(obj)] = obj
        if gvr in self.stores:
            self.stores[gvr].put(copy.deepcopy(obj))
        return copy.deepcopy(obj)

    def remove(self, gvr: Gvr, key: Key) -> None:
        gone = self.objects[gvr].pop(key)
        if gvr in self.stores:
            self.stores[gvr].take(Event("DELETED", (gone,)))
        for kind in (*KINDS, SERVICES, PODS):
            for other, obj in list(self.objects[kind].items()):
                owners = [owner["uid"] for owner in obj["metadata"].get("ownerReferences", [])]
                if gone["metadata"]["uid"] in owners:
                    self.remove(kind, other)

    def step(self) -> None:
        """One second of the workloads' controllers, the scheduler and the kubelet."""
        for workload in [each for kind in KINDS for each in self.objects[kind].values()]:
            self._fit_pods(workload)
            self._report(workload)

    def pods(self, revision: str) -> Objects:
        """One a replica: of a group the one that leads."""
        labelled = [
            pod
            for pod in self.objects[PODS].values()
            if pod["metadata"]["labels"].get("knobless.dev/revision") == revision and leads(pod)
        ]
        return sorted(labelled, key=lambda pod: int(pod["metadata"]["name"].rsplit("-", 1)[1]))

    def ready(self, revision: str) -> int:
        return sum(pod["status"].get("ready", False) for pod in self.pods(revision))

    def workload(self, revision: str) -> Object | None:
        return next((w for kind in KINDS for (_, name), w in self.objects[kind].items() if name == revision), None)

    def replicas(self, revision: str) -> int:
        workload = self.workload(revision)
        return workload["spec"]["replicas"] if workload else 0

    def revisions(self) -> set[str]:
        return {name for kind in KINDS for _, name in self.objects[kind]}

    def _fit_pods(self, deployment: Object) -> None:
        if gvr_of(deployment) == LEADER_WORKER_SETS:
            self._fit_groups(deployment)
            return
        namespace, name = key_of(deployment)
        pods, wanted = self.pods(name), deployment["spec"]["replicas"]
        for pod in pods[wanted:]:
            self.remove(PODS, key_of(pod))
        for _ in range(wanted - len(pods)):
            owner = {"uid": deployment["metadata"]["uid"]}
            labels = deployment["metadata"]["labels"]
            number = next(self._uids)
            metadata = {"namespace": namespace, "name": f"{name}-{number}", "labels": labels}
            self.store(PODS, {"metadata": metadata | {"ownerReferences": [owner]}, "status": {}})
        for place, pod in enumerate(self.pods(name)):
            self._advance(pod, self.behaviours[name], place)

    def _fit_groups(self, workload: Object) -> None:
        """The highest numbers go; whatever is lost of a group, all of it is made anew, a second after it is gone."""
        _, name = key_of(workload)
        size, behaviour = workload["spec"]["leaderWorkerTemplate"]["size"], self.behaviours[name]
        for pod in self._of_groups(name):
            if int(pod["metadata"]["labels"][names.LABEL_GROUP_INDEX]) >= workload["spec"]["replicas"]:
                self.remove(PODS, key_of(pod))
        for group in range(workload["spec"]["replicas"]):
            members = [
                p for p in self._of_groups(name) if p["metadata"]["labels"][names.LABEL_GROUP_INDEX] == str(group)
            ]
            if any(restarts(pod) for pod in members) or 0 < len(members) < size:
                for pod in members:
                    self.remove(PODS, key_of(pod))
            elif not members:
                self._make_group(workload, group, size)
        waits = replace(behaviour, trouble="silent", trouble_from=0) if behaviour.trouble else behaviour
        silent = replace(behaviour, trouble="silent", trouble_from=0)
        for pod in self._of_groups(name):
            place, group = (
                int(pod["metadata"]["labels"][key]) for key in (names.LABEL_WORKER_INDEX, names.LABEL_GROUP_INDEX)
            )
            self._advance(pod, silent if group in behaviour.lost else waits if leads(pod) else behaviour, place)

    def _make_group(self, workload: Object, group: int, size: int) -> None:
        namespace, name = key_of(workload)
        for index in range(size):
            place = {names.LABEL_GROUP_INDEX: str(group), names.LABEL_WORKER_INDEX: str(index)}
            metadata = {
                "namespace": namespace,
                "name": f"{name}-{group}" if index == 0 else f"{name}-{group}-{index}",
                "labels": workload["metadata"]["labels"] | place,
                "ownerReferences": [{"uid": workload["metadata"]["uid"]}],
            }
            self.store(PODS, {"metadata": metadata, "status": {}})

    def _of_groups(self, revision: str) -> Objects:
        return [p for p in self.objects[PODS].values() if p["metadata"]["labels"].get(names.LABEL_REVISION) == revision]

    def _advance(self, pod: Object, behaviour: Behaviour, place: int) -> None:
        pod = copy.deepcopy(pod)
        born_s = pod.setdefault("born_s", self.time_s)
        trouble = behaviour.trouble if place >= behaviour.trouble_from else None
        status = TROUBLES[trouble] if trouble else {"phase": "Running"}
        if place >= behaviour.most:
            status = TROUBLES["unschedulable"]
        elif not trouble and self.time_s - born_s >= behaviour.start_s:
            ready = {"type": "Ready", "status": "True"}
            status = status | {"ready": True, "conditions": [ready]}
            born_s += behaviour.start_s
        conditions = [c | {"lastTransitionTime": timestamp(born_s)} for c in status.get("conditions", [])]
        status = status | {"conditions": conditions}
        if pod["status"] != status:
            self.store(PODS, pod | {"status": status})

    def _report(self, workload: Object) -> None:
        ready = self.ready(key_of(workload)[1])
        status = {"observedGeneration": workload["metadata"]["generation"]}
        status |= {"replicas": made} if (made := len(self.pods(key_of(workload)[1]))) else {}
        status |= {"readyReplicas": ready} if ready else {}
        current = self.objects[gvr_of(workload)][key_of(workload)]
        if current.get("status") != status:
            self.store(gvr_of(workload), current | {"status": status})

    def _held(self, gvr: Gvr, namespace: str, name: str) -> Object:
        try:
            return self.objects[gvr][(namespace, name)]
        except KeyError:
            raise NotFound(404, "NotFound", name) from None

    def _reachable(self) -> None:
        if self.down:
            raise Unreachable("the API server is away")

    def endpoint(self, name: str) -> Object:
        return next(obj for (_, n), obj in self.objects[MODEL_ENDPOINTS].items() if n == name)


def restarts(pod: Object) -> bool:
    return any(status.get("restartCount") for status in pod["status"].get("containerStatuses", []))


def _merged(held: Object, said: Object) -> Object:
    result = copy.deepcopy(held)
    for key, value in said.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else copy.deepcopy(value)
    return result


def _container(state: Object, **more: object) -> Object:
    return {"phase": "Pending", "containerStatuses": [{"name": "server", "state": state, **more}]}


_ENDED = {"exitCode": 3, "reason": "Error", "message": "model iris/2: no module named 'lightgbm'\n"}
_UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes: cpu"}

TROUBLES: dict[str, Object] = {
    "image": _container({"waiting": {"reason": "ImagePullBackOff", "message": "manifest unknown"}}),
    "crash": _container(
        {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}},
        lastState={"terminated": _ENDED},
        restartCount=2,
    ),
    "unschedulable": {"phase": "Pending", "conditions": [_UNSCHEDULABLE]},
    "silent": _container({"running": {}}),
}
