"""Each rule on one resource: a passing, a failing and an unknown case, with the field that is to blame."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from policies.declared import UNKNOWN, Declared, declared_manifest
from policies.rules import RULES, check_resource

DIGEST = "registry:5000/mlflow@sha256:" + "a" * 64
RESOURCES = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}


def container(name: str = "server", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "image": DIGEST,
        "resources": copy.deepcopy(RESOURCES),
        "startupProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "readinessProbe": {"httpGet": {"path": "/health", "port": 8080}},
        "lifecycle": {"preStop": {"sleep": {"seconds": 15}}},
        "securityContext": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    } | more


def pod_spec() -> dict[str, Any]:
    return {
        "terminationGracePeriodSeconds": 90,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [container("model")],
        "containers": [container()],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }


def endpoint() -> dict[str, Any]:
    return {
        "apiVersion": "knobless.dev/v1alpha1",
        "kind": "ModelEndpoint",
        "metadata": {"name": "iris", "namespace": "team-alpha"},
        "spec": {
            "concurrency": {"min": 1, "max": 64},
            "routing": {"deadlineMs": 60_000},
            "podTemplate": {"metadata": {}, "spec": pod_spec()},
        },
    }


def deployment(namespace: str | None = "team-alpha", **spec: Any) -> dict[str, Any]:
    place = {} if namespace is None else {"namespace": namespace}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "iris", **place},
        "spec": {"template": {"spec": pod_spec()}, **spec},
    }


def put(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with a value at a path such as `spec.containers.0.image`; `...` removes the field."""
    changed = copy.deepcopy(obj)
    *parents, last = path.split(".")
    place: Any = changed
    for key in parents:
        place = place[int(key)] if isinstance(place, list) else place.setdefault(key, {})
    if value is ...:
        del place[last]
    elif isinstance(place, list):
        place[int(last)] = value
    else:
        place[last] = value
    return changed


def found(obj: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    resource = declared_manifest(obj)
    resource = Declared(resource.type, resource.name, resource.object, **more)
    return [(violation.rule, violation.field) for violation in check_resource(resource)]


POD = "spec.podTemplate.spec"
SERVER = f"{POD}.containers.0"
SERVER_SHOWN = f"{POD}.containers[0]"


@pytest.mark.parametrize("obj", [endpoint(), deployment()], ids=["endpoint", "deployment"])
def test_an_object_that_holds_to_every_rule_has_no_violation(obj: dict[str, Any]) -> None:
    assert found(obj) == []


@pytest.mark.parametrize(
    "path,value,rule,field",
    [
        (f"{SERVER}.resources", ..., "resources", f"{SERVER_SHOWN}.resources.requests.cpu"),
        (f"{SERVER}.resources.limits.memory", ..., "resources", f"{SERVER_SHOWN}.resources.limits.memory"),
        (f"{SERVER}.resources.requests", {"cpu": "1"}, "resources", f"{SERVER_SHOWN}.resources.requests.memory"),
        (f"{SERVER}.resources.limits.cpu", UNKNOWN, "resources", f"{SERVER_SHOWN}.resources.limits.cpu"),
        (f"{POD}.initContainers.0.resources", {}, "resources", f"{POD}.initContainers[0].resources.requests.cpu"),
        (f"{SERVER}.readinessProbe", ..., "probes", f"{SERVER_SHOWN}.readinessProbe"),
        (f"{SERVER}.readinessProbe", UNKNOWN, "probes", f"{SERVER_SHOWN}.readinessProbe"),
        (f"{SERVER}.startupProbe", ..., "probes", f"{SERVER_SHOWN}.startupProbe"),
        (f"{SERVER}.startupProbe", UNKNOWN, "probes", f"{SERVER_SHOWN}.startupProbe"),
        (f"{POD}.containers", [], "probes", f"{POD}.containers"),
        (f"{SERVER}.image", "mlflow:latest", "image-digest", f"{SERVER_SHOWN}.image"),
        (f"{SERVER}.image", "mlflow@sha256:abc", "image-digest", f"{SERVER_SHOWN}.image"),
        (f"{SERVER}.image", ..., "image-digest", f"{SERVER_SHOWN}.image"),
        (f"{SERVER}.image", UNKNOWN, "image-digest", f"{SERVER_SHOWN}.image"),
        (f"{POD}.initContainers.0.image", "x:1", "image-digest", f"{POD}.initContainers[0].image"),
        (f"{POD}.ephemeralContainers", [container(image="x:1")], "image-digest", f"{POD}.ephemeralContainers[0].image"),
        (f"{POD}.hostNetwork", True, "host-access", f"{POD}.hostNetwork"),
        (f"{POD}.hostPID", True, "host-access", f"{POD}.hostPID"),
        (f"{POD}.hostIPC", UNKNOWN, "host-access", f"{POD}.hostIPC"),
        (f"{POD}.volumes.0.hostPath", {"path": "/"}, "host-access", f"{POD}.volumes[0].hostPath"),
        (f"{POD}.volumes", UNKNOWN, "host-access", f"{POD}.volumes[*].hostPath"),
        (f"{SERVER}.ports", [{"hostPort": 80}], "host-access", f"{SERVER_SHOWN}.ports[0].hostPort"),
        (f"{SERVER}.securityContext.privileged", True, "unprivileged", f"{SERVER_SHOWN}.securityContext.privileged"),
        (f"{SERVER}.securityContext.privileged", UNKNOWN, "unprivileged", f"{SERVER_SHOWN}.securityContext.privileged"),
        (
            f"{SERVER}.securityContext.allowPrivilegeEscalation",
            ...,
            "unprivileged",
            f"{SERVER_SHOWN}.securityContext.allowPrivilegeEscalation",
        ),
        (
            f"{SERVER}.securityContext.readOnlyRootFilesystem",
            False,
            "unprivileged",
            f"{SERVER_SHOWN}.securityContext.readOnlyRootFilesystem",
        ),
        (
            f"{SERVER}.securityContext.capabilities.drop",
            ["NET_RAW"],
            "unprivileged",
            f"{SERVER_SHOWN}.securityContext.capabilities.drop",
        ),
        (
            f"{SERVER}.securityContext.capabilities.drop",
            UNKNOWN,
            "unprivileged",
            f"{SERVER_SHOWN}.securityContext.capabilities.drop",
        ),
        (
            f"{SERVER}.securityContext.capabilities.add",
            ["SYS_ADMIN"],
            "unprivileged",
            f"{SERVER_SHOWN}.securityContext.capabilities.add",
        ),
        (
            f"{SERVER}.securityContext.runAsNonRoot",
            False,
            "unprivileged",
            f"{SERVER_SHOWN}.securityContext.runAsNonRoot",
        ),
        (f"{SERVER}.securityContext.runAsUser", 0, "unprivileged", f"{SERVER_SHOWN}.securityContext.runAsUser"),
        (f"{SERVER}.securityContext.runAsUser", 0.0, "unprivileged", f"{SERVER_SHOWN}.securityContext.runAsUser"),
        (
            f"{SERVER}.securityContext.seccompProfile",
            {"type": "Unconfined"},
            "unprivileged",
            f"{SERVER_SHOWN}.securityContext.seccompProfile.type",
        ),
        (f"{POD}.terminationGracePeriodSeconds", 75, "graceful-end", f"{POD}.terminationGracePeriodSeconds"),
        (f"{POD}.terminationGracePeriodSeconds", ..., "graceful-end", f"{POD}.terminationGracePeriodSeconds"),
        (f"{POD}.terminationGracePeriodSeconds", UNKNOWN, "graceful-end", f"{POD}.terminationGracePeriodSeconds"),
        ("spec.routing.deadlineMs", 75_000, "graceful-end", f"{POD}.terminationGracePeriodSeconds"),
        ("spec.routing.deadlineMs", UNKNOWN, "graceful-end", "spec.routing.deadlineMs"),
        ("spec.routing", ..., "graceful-end", "spec.routing.deadlineMs"),
        (f"{SERVER}.lifecycle", ..., "graceful-end", f"{POD}.containers"),
        (
            f"{SERVER}.lifecycle.preStop.sleep.seconds",
            UNKNOWN,
            "graceful-end",
            f"{SERVER_SHOWN}.lifecycle.preStop.sleep.seconds",
        ),
        (f"{SERVER}.env", [{"name": "API_TOKEN", "value": "x"}], "plain-secrets", f"{SERVER_SHOWN}.env[0].value"),
        (f"{SERVER}.env", [{"name": "DB_PASSWORD", "value": UNKNOWN}], "plain-secrets", f"{SERVER_SHOWN}.env[0].value"),
        (f"{SERVER}.env", [{"name": UNKNOWN, "value": "x"}], "plain-secrets", f"{SERVER_SHOWN}.env[0].value"),
        (f"{SERVER}.env", [{"name": "A", "value": UNKNOWN}], "plain-secrets", f"{SERVER_SHOWN}.env[0].value"),
        (f"{SERVER}.env", UNKNOWN, "plain-secrets", f"{SERVER_SHOWN}.env[*].value"),
        (
            f"{SERVER}.env",
            [{"name": "MLFLOW_TRACKING_URI", "value": "https://me:pw@mlflow"}],
            "plain-secrets",
            f"{SERVER_SHOWN}.env[0].value",
        ),
        ("spec.concurrency.min", 0, "concurrency", "spec.concurrency.min"),
        ("spec.concurrency.min", 65, "concurrency", "spec.concurrency.min"),
        ("spec.concurrency.min", 1.5, "concurrency", "spec.concurrency.min"),
        ("spec.concurrency.max", UNKNOWN, "concurrency", "spec.concurrency.max"),
        ("spec.concurrency.max", "64", "concurrency", "spec.concurrency.max"),
        ("spec.replicas", 2, "replicas", "spec.replicas"),
        (f"{POD}.replicas", 2, "replicas", f"{POD}.replicas"),
    ],
)
def test_a_broken_or_unknown_field_is_a_violation_that_names_it(path: str, value: Any, rule: str, field: str) -> None:
    assert (rule, field) in found(put(endpoint(), path, value))


@pytest.mark.parametrize(
    "path,value",
    [
        (f"{SERVER}.env", [{"name": "API_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
        (f"{SERVER}.env", [{"name": "API_TOKEN", "value": ""}]),
        (f"{SERVER}.env", [{"name": "KEYBOARD", "value": "x"}, {"name": "URL", "value": "http://mlflow:5500/a@b"}]),
        (f"{SERVER}.securityContext.privileged", ...),
        (f"{SERVER}.securityContext.capabilities.add", []),
        (f"{SERVER}.securityContext.seccompProfile", {"type": "Localhost", "localhostProfile": "x"}),
        (f"{SERVER}.ports", [{"containerPort": 8080}]),
        (f"{POD}.hostNetwork", False),
        (f"{POD}.terminationGracePeriodSeconds", 76.0),
        ("spec.concurrency", {"min": 64.0, "max": 64.0}),
        (f"{POD}.containers", [container(), {k: v for k, v in container("control").items() if k != "readinessProbe"}]),
    ],
)
def test_a_field_that_holds_to_the_rules_is_no_violation(path: str, value: Any) -> None:
    assert found(put(endpoint(), path, value)) == []


def test_security_of_the_pod_holds_for_its_containers_and_a_container_may_not_weaken_it() -> None:
    assert ("unprivileged", f"{SERVER_SHOWN}.securityContext.runAsNonRoot") in found(
        put(endpoint(), f"{POD}.securityContext.runAsNonRoot", ...)
    )
    assert ("unprivileged", f"{POD}.securityContext.seccompProfile.type") in found(
        put(endpoint(), f"{POD}.securityContext.seccompProfile.type", UNKNOWN)
    )


POD_KINDS = {
    "Pod": "spec",
    "PodTemplate": "template.spec",
    "Deployment": "spec.template.spec",
    "ReplicaSet": "spec.template.spec",
    "StatefulSet": "spec.template.spec",
    "DaemonSet": "spec.template.spec",
    "Job": "spec.template.spec",
    "CronJob": "spec.jobTemplate.spec.template.spec",
    "LeaderWorkerSet": "spec.leaderWorkerTemplate.workerTemplate.spec",
    "ModelEndpoint": "spec.podTemplate.spec",
}


@pytest.mark.parametrize("kind,path", POD_KINDS.items())
def test_a_bad_pod_is_found_in_every_kind_that_declares_one(kind: str, path: str) -> None:
    obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "namespace": "team-alpha"}}
    violations = found(put(obj, path, put(pod_spec(), "containers.0.image", "x:1")))
    assert ("image-digest", f"{path}.containers[0].image") in violations


WORKER, LEADER = (f"spec.leaderWorkerTemplate.{name}Template.spec" for name in ("worker", "leader"))
GROUP = put({"apiVersion": "v1", "kind": "LeaderWorkerSet", "metadata": {"name": "x"}}, WORKER, pod_spec())


def test_of_a_group_the_pod_that_leads_is_looked_at_as_those_that_work() -> None:
    assert found(GROUP) == []
    assert found(put(GROUP, LEADER, pod_spec())) == []
    bad = pod_spec() | {"hostPID": True}
    assert found(put(GROUP, WORKER, bad)) == [("host-access", f"{WORKER}.hostPID")]
    assert found(put(GROUP, LEADER, bad)) == [("host-access", f"{LEADER}.hostPID")]
    unknown = {rule for rule, _ in found(put(GROUP, LEADER.removesuffix(".spec"), UNKNOWN))}
    assert {"resources", "probes", "image-digest", "unprivileged"} <= unknown
    assert found(put(GROUP, "spec.replicas", 2)) == [("replicas", "spec.replicas")]


def test_a_bad_pod_is_found_in_a_list_of_objects() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [put(deployment(), "spec.template.spec.hostPID", True)]}
    assert found(listed) == [("host-access", "items[0].spec.template.spec.hostPID")]


@pytest.mark.parametrize("path", ["spec", "spec.podTemplate", POD, f"{POD}.containers"])
def test_an_unknown_part_fails_every_rule_that_had_to_look_inside(path: str) -> None:
    rules = {rule for rule, _ in found(put(endpoint(), path, UNKNOWN))}
    assert {"resources", "probes", "image-digest", "unprivileged", "graceful-end", "plain-secrets"} <= rules


def test_an_unknown_kind_may_hold_a_pod_and_fails_the_rules_on_pods() -> None:
    resource = Declared("kubernetes:x/v1:X", "x", {"apiVersion": "x/v1", "kind": UNKNOWN, "metadata": {"name": "x"}})
    rules = {violation.rule for violation in check_resource(resource)}
    assert {"resources", "image-digest", "host-access", "unprivileged"} <= rules


def test_an_object_that_does_not_say_its_kind_has_the_kind_of_its_type() -> None:
    obj = {key: value for key, value in deployment().items() if key != "kind"}
    resource = Declared("kubernetes:apps/v1:Deployment", "x", put(obj, "spec.template.spec.hostPID", True))
    assert [violation.rule for violation in check_resource(resource)] == ["host-access"]


@pytest.mark.parametrize("restarts", ["Always", UNKNOWN])
def test_an_init_container_that_goes_on_running_says_when_it_has_started(restarts: Any) -> None:
    bare = {key: value for key, value in container().items() if not key.endswith("Probe")}
    beside = put(endpoint(), f"{POD}.initContainers", [bare | {"name": "own", "restartPolicy": restarts}])
    assert ("probes", f"{POD}.initContainers[0].startupProbe") in found(beside)
    assert found(put(endpoint(), f"{POD}.initContainers", [bare | {"name": "once"}])) == []


def test_a_job_needs_no_probe() -> None:
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "team-alpha"}}
    bare = {key: value for key, value in container().items() if not key.endswith("Probe")}
    assert found(put(job, "spec.template.spec", pod_spec() | {"containers": [bare]})) == []


@pytest.mark.case("autoscaler-E3")
@pytest.mark.parametrize("replicas", [2, 2.0, 0, UNKNOWN])
@pytest.mark.parametrize("namespace", ["team-alpha", None])
def test_a_deployment_of_a_team_states_no_replicas(namespace: str | None, replicas: Any) -> None:
    assert found(deployment(namespace, replicas=replicas)) == [("replicas", "spec.replicas")]


def test_a_deployment_whose_namespace_is_unknown_counts_as_a_teams() -> None:
    assert found(put(deployment(replicas=2), "metadata.namespace", UNKNOWN)) == [("replicas", "spec.replicas")]


def test_a_deployment_of_the_platform_may_state_replicas() -> None:
    assert found(deployment("knobless-system", replicas=2)) == []


def test_another_autoscaler_in_a_team_namespace_is_a_violation() -> None:
    scaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"namespace": "team-a"}}
    assert found(scaler) == [("replicas", "kind")]


def service(namespace: Any, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": namespace}, "spec": spec}


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort", "ExternalName", UNKNOWN])
@pytest.mark.parametrize("namespace", ["team-alpha", "default", UNKNOWN])
def test_a_service_outside_of_the_system_namespace_opens_no_port_to_the_outside(namespace: Any, kind: Any) -> None:
    assert found(service(namespace, type=kind)) == [("exposure", "spec.type")]


@pytest.mark.parametrize("obj", [service("knobless-system", type="NodePort"), service("team-alpha", clusterIP="None")])
def test_the_gateways_service_and_inner_services_are_no_violation(obj: dict[str, Any]) -> None:
    assert found(obj) == []


@pytest.mark.parametrize("kind", ["Ingress", "HTTPRoute"])
@pytest.mark.parametrize("namespace,fields", [("team-alpha", ["kind"]), (UNKNOWN, ["kind"]), ("knobless-system", [])])
def test_a_way_in_beside_the_gateway_is_a_violation(kind: str, namespace: Any, fields: list[str]) -> None:
    entry = {"apiVersion": "networking.k8s.io/v1", "kind": kind, "metadata": {"name": "x", "namespace": namespace}}
    assert [field for _, field in found(entry)] == fields


def test_a_service_that_takes_addresses_is_a_violation_everywhere() -> None:
    assert found(service("knobless-system", externalIPs=["10.0.0.1"])) == [("exposure", "spec.externalIPs")]


@pytest.mark.parametrize(
    "rule,field",
    [
        ({"verbs": ["*"], "resources": ["pods"], "apiGroups": [""]}, "rules[0].verbs[0]"),
        ({"verbs": ["get"], "resources": ["pods", "*"], "apiGroups": [""]}, "rules[0].resources[1]"),
        ({"verbs": ["get"], "resources": ["*/scale"], "apiGroups": [""]}, "rules[0].resources[0]"),
        ({"verbs": ["get"], "resources": ["pods"], "apiGroups": ["*"]}, "rules[0].apiGroups[0]"),
        ({"verbs": ["get"], "nonResourceURLs": ["/metrics*"]}, "rules[0].nonResourceURLs[0]"),
        ({"verbs": ["escalate"], "resources": ["roles"], "apiGroups": ["x"]}, "rules[0].verbs[0]"),
        ({"verbs": UNKNOWN, "resources": ["pods"], "apiGroups": [""]}, "rules[0].verbs[*]"),
    ],
)
def test_a_right_that_is_not_spelled_out_is_a_violation(rule: dict[str, Any], field: str) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}}
    assert found(role | {"rules": [rule]}) == [("rights", field)]
    assert found(role | {"rules": [{"verbs": ["get"], "resources": ["pods"], "apiGroups": [""]}]}) == []


def test_unknown_rules_and_aggregated_rules_are_violations() -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}}
    assert {rule for rule, _ in found(role | {"rules": UNKNOWN})} == {"rights"}
    assert found(role | {"aggregationRule": {"clusterRoleSelectors": []}}) == [("rights", "aggregationRule")]


@pytest.mark.parametrize(
    "role,subject,fields",
    [
        ("knobless-gateway", "gateway", []),
        ("cluster-admin", "gateway", ["roleRef.name"]),
        (UNKNOWN, "gateway", ["roleRef.name"]),
        ("x", "system:unauthenticated", ["subjects[0].name"]),
        ("x", "system:masters", ["subjects[0].name"]),
        ("x", UNKNOWN, ["subjects[0].name"]),
    ],
)
def test_a_binding_gives_a_named_right_to_a_named_account(role: Any, subject: Any, fields: list[str]) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "b"},
        "roleRef": {"name": role},
        "subjects": [{"name": subject}],
    }
    assert [field for _, field in found(binding)] == fields


@pytest.mark.case("pulumi-A9")
@pytest.mark.parametrize("token", ["kubernetes:apps/v1:DeploymentPatch", "kubernetes:helm.sh/v3:Release"])
def test_what_hides_or_takes_over_objects_is_a_violation(token: str) -> None:
    violations = check_resource(Declared(token, "x", {"metadata": {"name": "x", "namespace": "knobless-system"}}))
    assert "visible" in {violation.rule for violation in violations}


@pytest.mark.parametrize("protect,violations", [(True, []), (None, []), (False, [("protected", "metadata.name")])])
@pytest.mark.parametrize(
    "obj",
    [
        endpoint(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-alpha"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knobless-system"}},
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"}},
    ],
    ids=["endpoint", "team", "system", "kind"],
)
def test_what_a_destroy_must_not_take_along_is_protected(
    obj: dict[str, Any], protect: bool | None, violations: list[tuple[str, str]]
) -> None:
    assert found(obj, protect=protect) == violations


def test_a_violation_names_rule_object_field_and_what_to_do() -> None:
    (violation,) = check_resource(declared_manifest(put(endpoint(), f"{SERVER}.image", "mlflow:2")))
    assert str(violation) == (
        "ModelEndpoint team-alpha/iris: spec.podTemplate.spec.containers[0].image: 'mlflow:2' can change: "
        "name the image by its digest, <image>@sha256:<64 hex> [image-digest]"
    )


def test_an_unknown_field_is_told_as_unknown() -> None:
    (violation,) = check_resource(declared_manifest(put(endpoint(), f"{SERVER}.image", UNKNOWN)))
    assert "is not known before the run" in violation.message


@pytest.mark.case("pulumi-H4")
def test_every_rule_has_a_name_of_its_own_and_says_what_it_demands() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES) >= 10
    assert all(rule.demands.endswith(".") for rule in RULES)


def test_no_rule_changes_what_it_looks_at() -> None:
    obj = endpoint()
    check_resource(declared_manifest(obj))
    assert obj == endpoint()
