"""The rollout's shell: what changed -> views -> decide -> writes. Holds no policy.

Owns which endpoints are due: one is when an object of its changes, when its own alarm rings, and again, with a growing
pause, after a failed write. A task an endpoint, each with its own `try`: none can harm another, nor wait long for it.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable

from controllers.kube import MODEL_ENDPOINTS, PODS, SERVICES, Gvr, KubeError, NotFound, Object
from controllers.kube.fields import at, key_of, mapping
from controllers.kube.store import Key, Store
from controllers.lease import FencedWriter, Lease, NotLeader
from controllers.metrics import Metrics
from controllers.rollout.core import Status, decide
from controllers.rollout.objects import kind_of, service_object, workload_object
from controllers.rollout.plan import Action, ApplyService, Remove
from controllers.rollout.status import same_status, status_object
from controllers.rollout.view import EndpointView, RevisionView, endpoint_view, revision_view
from controllers.workloads import KINDS
from spec import names

log = logging.getLogger(__name__)

_RETRY_FIRST_S, _RETRY_MAX_S = 1.0, 60.0
_RESYNC_S = 60.0
_STANDBY_S = 0.5
_AT_ONCE = 8


class Rollout:
    """`touched` is the stores' callback; `run` the loop; `reconcile` one endpoint, once."""

    def __init__(
        self,
        stores: dict[Gvr, Store],
        writer: FencedWriter,
        lease: Lease,
        metrics: Metrics,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._stores, self._writer, self._lease, self._wall = stores, writer, lease, wall
        self._metrics = metrics
        self._due_at_s: dict[Key, float] = {}
        self._failures: dict[Key, int] = defaultdict(int)
        self._something = asyncio.Event()
        self._running: set[Key] = set()
        self._writers = asyncio.Semaphore(_AT_ONCE)
        self.beat_at_s = time.monotonic()

    def touched(self, gvr: Gvr, obj: Object) -> None:
        """An object changed: the endpoint that it belongs to is due."""
        namespace, name = key_of(obj)
        endpoint = name if gvr == MODEL_ENDPOINTS else mapping(obj, "metadata", "labels").get(names.LABEL_ENDPOINT)
        if endpoint is not None:
            self._schedule((namespace, str(endpoint)), 0.0)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self.beat_at_s = time.monotonic()
                if not self._lease.held():
                    await asyncio.sleep(_STANDBY_S)
                    self._all_due()
                    continue
                for key in self.due():
                    group.create_task(self.attend(key))
                await self._sleep()

    async def attend(self, key: Key) -> None:
        try:
            async with self._writers:
                await self.reconcile(key)
            self._failures.pop(key, None)
        except NotLeader:
            self._schedule(key, self._wall() + _RETRY_FIRST_S)
        except Exception as error:
            self._failures[key] += 1
            pause_s = min(_RETRY_FIRST_S * 2 ** (self._failures[key] - 1), _RETRY_MAX_S)
            self._schedule(key, self._wall() + pause_s)
            known = isinstance(error, KubeError)
            fields = {"namespace": key[0], "endpoint": key[1], "error": str(error), "retry_s": pause_s}
            log.warning("rollout failed, will retry", extra=fields, exc_info=not known)
            self._metrics.failures.labels("rollout").inc()
        finally:
            self._running.discard(key)
            self._something.set()

    async def reconcile(self, key: Key) -> None:
        """Views of one endpoint, the decision, its writes. Raises what a write raises."""
        endpoint = self._stores[MODEL_ENDPOINTS].objects.get(key)
        if endpoint is None or at(endpoint, "metadata", "deletionTimestamp") is not None:
            return
        view = endpoint_view(endpoint, [kind for kind in KINDS if self._stores[kind].absent])
        owned = (workload for kind in KINDS for workload in self._owned(kind, endpoint))
        revisions = {revision.name: revision for revision in (self._revision(endpoint, view, each) for each in owned)}
        status, planned = decide(view, revisions, self._wall())
        await self._write_status(endpoint, status)
        for action in planned.actions:
            await self._act(endpoint, action)
        resync_s = self._wall() + _RESYNC_S
        self._schedule(key, min(planned.wake_at_s or resync_s, resync_s))

    def _revision(self, endpoint: Object, view: EndpointView, workload: Object) -> RevisionView:
        key = key_of(workload)
        pods = [
            pod
            for pod in self._stores[PODS].labelled(*key_of(endpoint))
            if mapping(pod, "metadata", "labels").get(names.LABEL_REVISION) == key[1]
        ]
        service = self._stores[SERVICES].objects.get(key)
        return revision_view(endpoint, view, workload, service, pods)

    def _owned(self, gvr: Gvr, endpoint: Object) -> Iterable[Object]:
        """Only what this very object owns: an endpoint of the same name that was deleted had its own."""
        for obj in self._stores[gvr].labelled(*key_of(endpoint)):
            owners = {at(owner, "uid") for owner in obj["metadata"].get("ownerReferences") or []}
            if endpoint["metadata"]["uid"] in owners and not at(obj, "metadata", "deletionTimestamp"):
                yield obj

    async def _write_status(self, endpoint: Object, status: Status) -> None:
        if same_status(endpoint, status):
            return
        namespace, name = key_of(endpoint)
        body = {"status": status_object(status)}
        try:
            written = await self._writer.apply_status(MODEL_ENDPOINTS, namespace, name, names.MANAGER_ROLLOUT, body)
        except NotFound:
            return
        self._stores[MODEL_ENDPOINTS].put(written)
        ready = status.conditions[0]
        fields = {"namespace": namespace, "endpoint": name, "traffic": status.traffic_revision}
        phases = {entry.name: str(entry.phase) for entry in status.revisions}
        log.info("rollout", extra=fields | {"phases": phases, "ready": ready.status, "reason": ready.reason})

    async def _act(self, endpoint: Object, action: Action) -> None:
        namespace, _ = key_of(endpoint)
        if isinstance(action, Remove):
            await self._remove(namespace, action)
            return
        declared = kind_of(endpoint)
        if isinstance(action, ApplyService):
            gvr, body = SERVICES, service_object(endpoint, action.revision, action.kind or declared)
        else:
            gvr, body = declared, workload_object(endpoint, action.revision)
        applied = await self._writer.apply(gvr, namespace, action.revision, names.MANAGER_ROLLOUT, body)
        self._stores[gvr].put(applied)

    async def _remove(self, namespace: str, action: Remove) -> None:
        log.info("revision removed", extra={"namespace": namespace, "revision": action.revision})
        for gvr, uid in ((action.kind, action.uid), (SERVICES, None)):
            try:
                await self._writer.delete(gvr, namespace, action.revision, uid)
            except NotFound:
                continue

    def _schedule(self, key: Key, at_s: float) -> None:
        self._due_at_s[key] = min(at_s, self._due_at_s.get(key, at_s))
        self._something.set()

    def _all_due(self) -> None:
        for key in self._stores[MODEL_ENDPOINTS].objects:
            self._schedule(key, 0.0)

    def due(self) -> list[Key]:
        now_s = self._wall()
        due = [key for key, at_s in self._due_at_s.items() if at_s <= now_s and key not in self._running]
        for key in due:
            del self._due_at_s[key]
        self._running.update(due)
        return due

    async def _sleep(self) -> None:
        self._something.clear()
        waiting = [at_s for key, at_s in self._due_at_s.items() if key not in self._running]
        wait_s = min(waiting, default=float("inf")) - self._wall()
        try:
            async with asyncio.timeout(min(max(wait_s, 0.0), 5.0)):
                await self._something.wait()
        except TimeoutError:
            return
