"""Writes replicas, through the scale sub-resource (of groups: that one field) and nothing else, and tells the cluster
what was changed and why.

Owns the last look before a write: what runs the revision is read again, so that the write rests on its present version,
and a number that is not ours is known for another's. Leaves what the number is to `core`.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.status import Change, detail
from controllers.autoscaler.view import Endpoint, foreign_writer, is_claimed
from controllers.kube import EVENTS, Conflict, Gvr, KubeClient, KubeError, NotFound, Object
from controllers.kube.fields import key_of, number, timestamp
from controllers.kube.store import Store
from controllers.lease import FencedWriter
from controllers.workloads import gvr_of
from spec import names

log = logging.getLogger(__name__)

_ATTEMPTS = 3


class Scaler:
    """`scale` makes the decisions true; `announce` says so."""

    def __init__(
        self,
        client: KubeClient,
        writer: FencedWriter,
        stores: Mapping[Gvr, Store],
        identity: str,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._writer, self._stores = client, writer, stores
        self._identity, self._wall = identity, wall

    async def scale(
        self, endpoint: Endpoint, workloads: Iterable[Object], verdict: Verdict
    ) -> tuple[list[Change], set[str]]:
        """The changes made, and the revisions whose replicas could not be written."""
        live = {key_of(each)[1]: each for each in workloads}
        changes: list[Change] = []
        unwritten: set[str] = set()
        for decision in verdict.decisions:
            try:
                workload = live.get(decision.revision, {})
                stands = _stands(workload, decision)
                change = _made(decision) if stands else await self._write(endpoint, decision, gvr_of(workload))
            except KubeError as error:
                unwritten.add(decision.revision)
                log.warning("replicas not written", extra=_fields(endpoint, decision) | {"error": str(error)})
                continue
            if change is not None:
                changes.append(change)
                extra = {"was": change.was, "why": str(change.reason), "numbers": detail(change, verdict)}
                log.info("scaled", extra=_fields(endpoint, decision) | extra)
        return changes, unwritten

    async def _write(self, endpoint: Endpoint, decision: Decision, gvr: Gvr) -> Change | None:
        """None where nothing is to be told, or the revision is gone."""
        for attempt in range(_ATTEMPTS):
            try:
                fresh = await self._client.get(gvr, endpoint.namespace, decision.revision)
            except NotFound:
                return None
            self._stores[gvr].put(fresh)
            if _stands(fresh, decision):
                return _made(decision)
            was = number(fresh, "spec", "replicas")
            version = str(fresh["metadata"]["resourceVersion"])
            try:
                await self._writer.patch_scale(
                    gvr, endpoint.namespace, decision.revision, decision.desired, version, names.MANAGER_AUTOSCALER
                )
            except Conflict:
                if attempt + 1 == _ATTEMPTS:
                    raise
                continue
            if was == decision.desired:  # claimed, not changed
                return None
            return Change(decision, was, foreign_writer(fresh) if was != decision.issued else None)
        return None

    async def announce(self, endpoint: Object, change: Change, verdict: Verdict) -> None:
        """A Kubernetes Event on the endpoint. It explains, it decides nothing: a failure is logged and passed by."""
        namespace, name = key_of(endpoint)
        try:
            await self._writer.create(
                EVENTS, namespace, self._event(endpoint, change, verdict), names.MANAGER_AUTOSCALER
            )
        except KubeError as error:
            log.info("event not written", extra={"namespace": namespace, "endpoint": name, "error": str(error)})

    def _event(self, endpoint: Object, change: Change, verdict: Verdict) -> Object:
        namespace, name = key_of(endpoint)
        decision, now_s = change.decision, self._wall()
        said = f"{decision.revision}: {change.was} -> {decision.desired} replicas; {detail(change, verdict)}"
        return {
            "metadata": {"name": f"{name}.{int(now_s * 1_000_000):x}.{decision.desired}", "namespace": namespace},
            "involvedObject": {
                "apiVersion": endpoint["apiVersion"],
                "kind": endpoint["kind"],
                "namespace": namespace,
                "name": name,
                "uid": endpoint["metadata"]["uid"],
            },
            "type": "Warning" if change.foreign else "Normal",
            "reason": str(change.reason),
            "action": "Scaled",
            "message": said[:1024],
            "firstTimestamp": timestamp(now_s),
            "lastTimestamp": timestamp(now_s),
            "count": 1,
            "source": {"component": names.MANAGER_AUTOSCALER},
            "reportingComponent": names.MANAGER_AUTOSCALER,
            "reportingInstance": self._identity,
        }


def _stands(workload: Object, decision: Decision) -> bool:
    """Whether the replicas are as decided, and ours in the API server's book."""
    return number(workload, "spec", "replicas") == decision.desired and is_claimed(workload)


def _made(decision: Decision) -> Change | None:
    """A number that stands and was never told of: its write's answer was lost, or who wrote it died before the status
    said so."""
    return Change(decision, decision.issued) if decision.issued != decision.desired else None


def _fields(endpoint: Endpoint, decision: Decision) -> dict[str, object]:
    return {
        "namespace": endpoint.namespace,
        "endpoint": endpoint.name,
        "revision": decision.revision,
        "desired": decision.desired,
    }
