"""An endpoint object and what runs its revisions -> what the autoscaler decides on. Pure translation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from controllers.autoscaler.control import Control, parse_control
from controllers.autoscaler.observation import Revision, Role
from controllers.autoscaler.starts import Starts
from controllers.kube.fields import at, items, key_of, mapping, number
from controllers.kube.resources import Object
from spec import names
from spec.sizing import target_of


@dataclass(frozen=True)
class Told:
    """What the status says that was learnt of one revision's replicas."""

    limit: int
    knee: float | None = None
    baseline_s: float | None = None


@dataclass(frozen=True)
class Limit:
    """Requests in flight that one replica may take; `learnt`: by a knee that was met."""

    requests: int
    learnt: bool = False


@dataclass(frozen=True)
class Endpoint:
    """`backends` is None until a gateway has said anything about the endpoint. `control` is a person's hold, expired
    or not; `control_problem` is why there is none although somebody wrote one."""

    namespace: str
    name: str
    uid: str
    generation: int
    concurrency_min: int
    concurrency_max: int
    initial_limit: int
    backends: Mapping[str, str] | None
    traffic: str | None
    routed: str | None
    phases: Mapping[str, str]
    asked: Mapping[str, int]
    control: Control | None = None
    control_problem: str | None = None
    objective_ms: float | None = None
    told: Mapping[str, Told] = field(default_factory=dict)

    @cached_property  # asked ten times a second
    def key(self) -> tuple[str, str, str]:
        """Two objects never share state, not even two of one name after one another."""
        return (self.namespace, self.name, self.uid)

    @cached_property
    def fingerprint(self) -> object:
        """What makes a decision due at once when it changes."""
        phases = tuple(sorted(self.phases.items()))
        return (self.generation, self.traffic, self.routed, phases, self.control, self.control_problem)


def endpoint_of(obj: Object) -> Endpoint:
    """Raises KeyError on an object that its schema would not let in."""
    namespace, name = key_of(obj)
    spec, status = obj["spec"], mapping(obj, "status")
    control, problem = _control(mapping(obj, "metadata", "annotations").get(names.ANNOTATION_CONTROL))
    return Endpoint(
        namespace=namespace,
        name=name,
        uid=obj["metadata"]["uid"],
        generation=number(obj, "metadata", "generation"),
        concurrency_min=number(spec, "concurrency", "min"),
        concurrency_max=number(spec, "concurrency", "max"),
        initial_limit=max(number(spec, "runtime", "initialLimit"), 1),
        backends=mapping(status, "gateway", "backends") if "gateway" in status else None,
        traffic=status.get("trafficRevision") or None,
        routed=at(status, "gateway", "trafficRevision") or None,
        phases={item["name"]: item["phase"] for item in items(status, "revisions")},
        asked={name: int(said["desired"]) for name, said in mapping(status, "autoscaler", "revisions").items()},
        control=control,
        control_problem=problem,
        objective_ms=at(spec, "latency", "p95Ms"),
        told={name: _told(said) for name, said in mapping(status, "autoscaler", "revisions").items()},
    )


def _told(said: Object) -> Told:
    baseline_ms = said.get("baselineMs")
    return Told(number(said, "limit"), said.get("knee"), baseline_ms / 1000 if baseline_ms else None)


def _control(text: str | None) -> tuple[Control | None, str | None]:
    try:
        return (parse_control(text) if text else None), None
    except ValueError as error:
        return None, str(error)


def revisions_of(
    endpoint: Endpoint,
    workloads: Iterable[Object],
    utilization: float,
    starts: Mapping[str, Starts] | None = None,
    limits: Mapping[str, Limit] | None = None,
) -> tuple[Revision, ...]:
    """The endpoint's own revisions. A deleted object's of the same name are not among them. `limits`: of a replica, by
    revision, where it is not the runtime's first one."""
    pods, known, first = starts or {}, limits or {}, Limit(endpoint.initial_limit)
    owned = {key_of(each)[1]: each for each in workloads if _owned(endpoint, each)}
    traffic = endpoint.routed if endpoint.routed in owned else endpoint.traffic
    return tuple(
        Revision(
            name=name,
            role=_role(name, traffic, endpoint.phases.get(name), number(owned[name], "status", "readyReplicas")),
            limit=known.get(name, first).requests,
            target=target_of(known.get(name, first).requests, utilization),
            live=number(owned[name], "spec", "replicas"),
            ready=number(owned[name], "status", "readyReplicas"),
            asked=endpoint.asked.get(name),
            starting=pods.get(name, Starts()).starting,
            failing=pods.get(name, Starts()).failing,
            start_s=pods.get(name, Starts()).start_s,
            learnt=known.get(name, first).learnt,
            numbers=pods.get(name, Starts()).numbers,
        )
        for name in sorted(owned)
    )


def _owned(endpoint: Endpoint, workload: Object) -> bool:
    owners = {at(owner, "uid") for owner in items(workload, "metadata", "ownerReferences")}
    return endpoint.uid in owners and at(workload, "metadata", "deletionTimestamp") is None


def _role(name: str, traffic: str | None, phase: str | None, ready: int) -> Role:
    if name == traffic:
        return Role.TRAFFIC
    if phase == "Failed" and ready == 0:
        return Role.FAILED
    return Role.SUCCESSOR if phase in ("Starting", "Ready", "Failed") else Role.PARKED


def foreign_writer(workload: Object) -> str | None:
    """Who else's hand is on spec.replicas, by the API server's own book of field owners."""
    return next((who for who in _writers(workload) if who != names.MANAGER_AUTOSCALER), None)


def is_claimed(workload: Object) -> bool:
    """Whether spec.replicas is ours in that book. Until it is, the book would not tell of another's hand either."""
    return names.MANAGER_AUTOSCALER in _writers(workload)


def _writers(workload: Object) -> list[str]:
    return [
        str(entry.get("manager"))
        for entry in items(workload, "metadata", "managedFields")
        if at(entry, "fieldsV1", "f:spec", "f:replicas") is not None
    ]
