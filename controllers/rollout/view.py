"""What the rollout decides on: frozen views of an endpoint object and of its revisions. Pure translation.

Below this edge nobody looks into a Kubernetes object again.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from controllers.kube.fields import at, covers, items, key_of, mapping, number, seconds
from controllers.kube.resources import DEPLOYMENTS, Gvr, Object
from controllers.rollout.objects import MODEL_VERSION, kind_of, nodes_of, service_object, workload_object
from controllers.rollout.phases import Phase
from controllers.rollout.pods import Problem, worst_problem
from controllers.workloads import gvr_of
from spec import names
from spec.revision import revision_of


@dataclass(frozen=True)
class Entry:
    """One revision as the status tells it."""

    name: str
    phase: Phase
    model_version: str
    since_s: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True)
class Condition:
    """One condition; `since_s` is its last transition."""

    type: str
    status: bool
    reason: str
    message: str
    generation: int
    since_s: float


@dataclass(frozen=True)
class Sizing:
    """What the autoscaler says about a revision."""

    target: float
    desired: int
    sized: bool


@dataclass(frozen=True)
class EndpointView:
    """One endpoint object. `declared` is the revision that its pod template and its nodes name; `workload` the kind
    that runs it, and `kind_missing` that the cluster has no such kind."""

    namespace: str
    name: str
    uid: str
    team: str
    generation: int
    deleted: bool
    spec_digest: str
    declared: str
    model_version: str
    concurrency_min: int
    drain_s: float
    hold_s: float
    start_timeout_s: float
    traffic: str | None
    entries: tuple[Entry, ...]
    conditions: tuple[Condition, ...]
    ready_spec_digest: str
    sizing: Mapping[str, Sizing]
    routed: str | None
    routed_generation: int
    workload: str = DEPLOYMENTS.kind
    kind_missing: bool = False


@dataclass(frozen=True)
class RevisionView:
    """A revision's Deployment or LeaderWorkerSet and its Service as they are. `kind` is which of the two."""

    name: str
    uid: str
    model_version: str
    replicas: int
    ready: int
    workload_in_place: bool
    service_in_place: bool
    problem: Problem | None = None
    kind: Gvr = DEPLOYMENTS


def endpoint_view(obj: Object, missing: Collection[Gvr] = ()) -> EndpointView:
    """Raises KeyError or ValueError on an object that its schema would not let in. `missing`: kinds that the cluster
    does not have."""
    namespace, name = key_of(obj)
    spec, status = obj["spec"], mapping(obj, "status")
    return EndpointView(
        namespace=namespace,
        name=name,
        uid=obj["metadata"]["uid"],
        team=spec["team"],
        generation=number(obj, "metadata", "generation"),
        deleted=at(obj, "metadata", "deletionTimestamp") is not None,
        spec_digest=str(mapping(obj, "metadata", "annotations").get(names.ANNOTATION_SPEC_DIGEST) or ""),
        declared=revision_of(name, spec["podTemplate"], nodes_of(obj)),
        model_version=str(at(spec, "model", "version") or ""),
        concurrency_min=number(spec, "concurrency", "min"),
        drain_s=(number(spec, "routing", "deadlineMs") + number(spec, "routing", "queueTimeoutMs")) / 1000,
        hold_s=float(number(spec, "rollout", "holdS")),
        start_timeout_s=float(number(spec, "rollout", "startTimeoutS")),
        traffic=status.get("trafficRevision") or None,
        entries=tuple(_entry(item) for item in items(status, "revisions")),
        conditions=tuple(_condition(item) for item in items(status, "conditions")),
        ready_spec_digest=str(status.get("readySpecDigest") or ""),
        sizing={
            revision: Sizing(float(said["target"]), int(said["desired"]), bool(said["sized"]))
            for revision, said in mapping(status, "autoscaler", "revisions").items()
        },
        routed=at(status, "gateway", "trafficRevision") or None,
        routed_generation=number(status, "gateway", "generation"),
        workload=kind_of(obj).kind,
        kind_missing=kind_of(obj) in missing,
    )


def _entry(item: Object) -> Entry:
    return Entry(
        name=item["name"],
        phase=Phase(item["phase"]),
        model_version=str(item.get("modelVersion") or ""),
        since_s=seconds(item.get("since")) or 0.0,
        reason=str(item.get("reason") or ""),
        message=str(item.get("message") or ""),
    )


def _condition(item: Object) -> Condition:
    return Condition(
        type=item["type"],
        status=item.get("status") == "True",
        reason=str(item.get("reason") or ""),
        message=str(item.get("message") or ""),
        generation=number(item, "observedGeneration"),
        since_s=seconds(item.get("lastTransitionTime")) or 0.0,
    )


def revision_view(
    endpoint: Object, view: EndpointView, workload: Object, service: Object | None, pods: Iterable[Object]
) -> RevisionView:
    name, kind = key_of(workload)[1], gvr_of(workload)
    return RevisionView(
        name=name,
        uid=workload["metadata"]["uid"],
        model_version=str(mapping(workload, "metadata", "annotations").get(MODEL_VERSION) or ""),
        replicas=number(workload, "spec", "replicas"),
        ready=number(workload, "status", "readyReplicas"),
        workload_in_place=name != view.declared or covers(workload, workload_object(endpoint, name)),
        service_in_place=service is not None and covers(service, service_object(endpoint, name, kind)),
        problem=worst_problem(pods, workload, view.start_timeout_s / 2),
        kind=kind,
    )
