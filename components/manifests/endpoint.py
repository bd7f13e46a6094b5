"""Owns the objects of one endpoint: the endpoint object and what carries its name beside it.

Leaves to `model_pod` and `image_pod` what runs and to the controllers what is made of it. One idea: Pulumi states
limits and intent. Deployments, replicas and routes are the controllers' answer, so nothing here serves a request by
itself, and nothing here is ever replaced to change what serves.
"""

from __future__ import annotations

from collections.abc import Sequence

from components.manifests import image_pod, model_pod
from components.manifests.objects import SKIP_AWAIT, Manifest, manifest, one_at_a_time
from components.manifests.objects import service_account as identity_of
from components.manifests.pod import grace_s, port_of
from components.manifests.served import Served, ServedImage
from components.manifests.traffic import network_policy, ports, system_pods, to_dns, to_url
from spec import names
from spec.endpoint import EndpointSpec
from spec.platform import Rollout
from spec.revision import spec_digest

# Beyond the time to start: the successor is sized to the live load, and traffic moves.
AWAIT_MARGIN_S = 120


def await_s(spec: EndpointSpec, rollout: Rollout, nodes: int = 1) -> int:
    """Seconds that the stack waits for `Ready` and, on removal, for the last pod's end: workers go after the leader."""
    ends_s = grace_s(spec, nodes) * (2 if nodes > 1 else 1)
    return max(rollout.start_timeout_s, ends_s) + AWAIT_MARGIN_S


def endpoint_object(spec: EndpointSpec, served: Served, model_registry: str, rollout: Rollout) -> Manifest:
    """The custom resource; `rollout` are the settings in force. The stack waits for `Ready` of this very spec.

    The provider takes a condition only if its `observedGeneration` has reached the object's generation, so a
    `Ready` left from the spec before does not count.
    """
    content = _spec(spec, served, model_registry, rollout)
    return manifest(
        names.API_VERSION,
        names.KIND,
        spec.endpoint,
        namespace=names.team_namespace(spec.team),
        labels=_labels(spec),
        annotations={
            names.ANNOTATION_SPEC_DIGEST: spec_digest(content),
            "pulumi.com/waitFor": "condition=Ready",
            "pulumi.com/timeoutSeconds": str(await_s(spec, rollout, served.nodes)),
        },
        spec=content,
    )


def pod_template(spec: EndpointSpec, served: Served, model_registry: str, rollout: Rollout) -> Manifest:
    """The pods of the revision that is declared; any change of it makes another revision."""
    if isinstance(served, ServedImage):
        return image_pod.pod_template(spec, served, rollout)
    return model_pod.pod_template(spec, served, model_registry, rollout)


def _spec(spec: EndpointSpec, served: Served, model_registry: str, rollout: Rollout) -> Manifest:
    latency = {"latency": {"p95Ms": spec.latency.p95_ms}} if spec.latency is not None else {}
    nodes = {"nodes": served.nodes} if served.nodes > 1 else {}
    paths = {"paths": list(spec.container.paths)} if spec.container is not None and spec.container.paths else {}
    return {
        "team": spec.team,
        "model": {"uri": served.uri, "version": served.version, "sha256": served.sha256},
        "runtime": {"name": served.runtime, "initialLimit": served.first_limit},
        "podTemplate": pod_template(spec, served, model_registry, rollout),
        **nodes,
        "concurrency": {"min": spec.concurrency.min, "max": spec.concurrency.max},
        "routing": {
            "deadlineMs": spec.deadline_ms,
            "queueMax": spec.queue_max,
            "queueTimeoutMs": spec.queue_timeout_ms,
            **paths,
            **_affinity(spec, served),
        },
        "access": {"teams": list(spec.allowed_teams)},
        "rollout": {"holdS": rollout.hold_s, "startTimeoutS": rollout.start_timeout_s},
    } | latency


def _affinity(spec: EndpointSpec, served: Served) -> Manifest:
    """What the file says, else what the model gains by; nothing where requests go to the least busy replica."""
    wanted = spec.affinity == names.AFFINITY_PREFIX or (spec.affinity is None and served.caches_prefixes)
    return {"affinity": names.AFFINITY_PREFIX} if wanted else {}


def service_account(spec: EndpointSpec, pull_secrets: Sequence[str] = ()) -> Manifest:
    """An identity of the model's own, with no token and no right."""
    return identity_of(spec.endpoint, names.team_namespace(spec.team), _labels(spec), pull_secrets)


def service(spec: EndpointSpec) -> Manifest:
    """No address of its own: one DNS name under which a scraper finds every pod, loading ones too."""
    return manifest(
        "v1",
        "Service",
        spec.endpoint,
        namespace=names.team_namespace(spec.team),
        labels=_labels(spec),
        annotations=SKIP_AWAIT,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _selector(spec),
            "ports": [{"name": "http", "protocol": "TCP", "port": port_of(spec), "targetPort": "http"}],
        },
    )


def doors(spec: EndpointSpec, model_registry: str) -> Manifest:
    """In: the gateway, and the controllers that read metrics. Out: names, the model registry, and what the file says.

    Pods of groups reach each other, on ports that their engine chooses. That stands open whatever the file says of
    nodes: one that goes back to a single node finds groups that serve until its new pods do.
    """
    inside = [system_pods(names.COMPONENT_GATEWAY), system_pods(names.COMPONENT_CONTROLLERS)]
    in_group = {"matchExpressions": [{"key": names.LABEL_GROUP_INDEX, "operator": "Exists"}]}
    each_other = [{"podSelector": {"matchLabels": _selector(spec)} | in_group}]
    return network_policy(
        spec.endpoint,
        names.team_namespace(spec.team),
        _labels(spec),
        _selector(spec),
        ingress=[{"from": inside, "ports": ports(port_of(spec))}, {"from": each_other}],
        egress=[to_dns(), *map(to_url, (model_registry, *spec.egress)), {"to": each_other}],
    )


def disruption_budget(spec: EndpointSpec) -> Manifest:
    """One pod at a time, a worker too: with it goes its whole group, and no other one before that is back."""
    return one_at_a_time(spec.endpoint, names.team_namespace(spec.team), _labels(spec), _selector(spec))


def _labels(spec: EndpointSpec) -> dict[str, str]:
    return names.endpoint_labels(spec.endpoint, spec.team)


def _selector(spec: EndpointSpec) -> dict[str, str]:
    return {names.LABEL_ENDPOINT: spec.endpoint}
