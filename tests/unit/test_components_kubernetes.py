"""Every rendered object against Kubernetes' own schemas, and against what a cluster or an operator would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from components.manifests import crd
from spec import names

RECORDED = Path(__file__).parents[1] / "goldens" / "recorded"
KUBERNETES = "1.35"


def all_objects() -> list[tuple[str, dict[str, Any]]]:
    """Every object of every golden with a name for the test, and each endpoint's pods as a Deployment."""
    found = []
    for path in sorted(RECORDED.glob("*.json")):
        for resource in json.loads(path.read_text())["resources"]:
            obj = resource["inputs"]
            if "kind" in obj:
                found.append((f"{path.stem}:{obj['kind']}:{resource['name']}", obj))
            if obj.get("kind") == names.KIND:
                found.append((f"{path.stem}:pods", as_deployment(obj)))
    return found


def as_deployment(endpoint: dict[str, Any]) -> dict[str, Any]:
    template = endpoint["spec"]["podTemplate"]
    spec = {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}


OBJECTS = all_objects()
NATIVE = [(name, obj) for name, obj in OBJECTS if obj["kind"] != names.KIND]
ENDPOINTS = [(name, obj) for name, obj in OBJECTS if obj["kind"] == names.KIND]
PODS = [(name, obj["spec"]["template"]["spec"]) for name, obj in OBJECTS if obj["kind"] == "Deployment"]


def each(rows: list[tuple[str, Any]]) -> Any:
    return pytest.mark.parametrize("subject", [pytest.param(obj, id=name) for name, obj in rows])


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


@each(NATIVE)
def test_kubernetes_knows_every_field(subject: dict[str, Any]) -> None:
    kubernetes_validate.validate(subject, KUBERNETES, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found() -> None:
    name, pods = next((name, obj) for name, obj in NATIVE if obj["kind"] == "Deployment")
    wrong = json.loads(json.dumps(pods))
    wrong["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)
    assert name


@each(PODS)
def test_a_pod_meets_the_restricted_standard(subject: dict[str, Any]) -> None:
    assert subject["securityContext"]["runAsNonRoot"] is True
    assert subject["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & subject.keys()
    for container in containers(subject):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["privileged"] is False
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert not any("hostPort" in port for port in container.get("ports", []))
    assert not any("hostPath" in volume for volume in subject["volumes"])


@each(PODS)
def test_every_container_has_requests_and_limits(subject: dict[str, Any]) -> None:
    for container in containers(subject):
        for part in ("requests", "limits"):
            assert set(container["resources"][part]) - {"nvidia.com/gpu"} == {"cpu", "memory"}, container["name"]


@each(PODS)
def test_every_image_is_named_by_its_digest(subject: dict[str, Any]) -> None:
    assert all("@sha256:" in container["image"] for container in containers(subject))


@each(PODS)
def test_every_container_that_stays_is_probed(subject: dict[str, Any]) -> None:
    sidecars = [each for each in subject.get("initContainers", []) if each.get("restartPolicy") == "Always"]
    for container in (*sidecars, *subject["containers"]):
        assert "livenessProbe" in container, container["name"]
        assert "startupProbe" in container, container["name"]


@each(PODS)
def test_a_token_reaches_only_the_containers_that_mount_it(subject: dict[str, Any]) -> None:
    assert subject["automountServiceAccountToken"] is False
    holders = {c["name"] for c in containers(subject) for m in c["volumeMounts"] if m["name"] == "kube-api-access"}
    assert holders in (set(), {"controllers"}, {"leaderworkerset"}, {"render", "control"})


@each(PODS)
def test_every_mount_has_its_volume_and_every_volume_a_bound(subject: dict[str, Any]) -> None:
    volumes = {volume["name"]: volume for volume in subject["volumes"]}
    mounted = {mount["name"] for container in containers(subject) for mount in container["volumeMounts"]}
    assert mounted == set(volumes)
    assert all("sizeLimit" in volume["emptyDir"] for volume in volumes.values() if "emptyDir" in volume)


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as the API server takes it under strict validation: what is not named is refused."""
    result = {key: value for key, value in schema.items() if not key.startswith("x-")}
    if "properties" in schema:
        result["properties"] = {name: closed(value) for name, value in schema["properties"].items()}
        result.setdefault("additionalProperties", False)
    if isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = closed(schema["additionalProperties"])
    if "items" in schema:
        result["items"] = closed(schema["items"])
    return result


def endpoint_schema() -> dict[str, Any]:
    schema = crd.endpoint_kind()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    strict = closed(schema)
    strict["properties"]["metadata"] = {"type": "object"}
    return strict


@each(ENDPOINTS)
def test_an_endpoint_object_is_what_its_kind_says(subject: dict[str, Any]) -> None:
    jsonschema.validate(subject, endpoint_schema())


STATUS = {
    "observedGeneration": 3,
    "declaredRevision": "wine-00000002",
    "trafficRevision": "wine-00000001",
    "modelVersion": "1",
    "readySpecDigest": "ab" * 32,
    "revisions": [
        {
            "name": "wine-00000001",
            "phase": "Serving",
            "modelVersion": "1",
            "since": "2026-01-01T00:00:00Z",
            "reason": "",
            "message": "",
        }
    ],
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "observedGeneration": 3,
            "reason": "ImagePullBackOff",
            "message": "the image can't be pulled",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "autoscaler": {
        "desiredReplicas": 2,
        "readyReplicas": 1,
        "targetConcurrency": 51.2,
        "demand": 60.5,
        "lastDecision": "1 -> 2: demand",
        "decidedAt": "2026-01-01T00:00:00Z",
        "revisions": {"wine-00000001": {"limit": 64, "target": 51.2, "desired": 2, "sized": True}},
        "decisions": [
            {
                "at": "2026-01-01T00:00:00Z",
                "revision": "wine-00000001",
                "from": 1,
                "to": 2,
                "reason": "demand",
                "detail": "60.5 in flight over 51.2",
            }
        ],
    },
    "gateway": {
        "generation": 3,
        "trafficRevision": "wine-00000001",
        "backends": {"wine-00000001": "b00012"},
        "limits": {"wine-00000001": 64},
        "readyServers": {"wine-00000001": 1},
        "at": "2026-01-01T00:00:00Z",
    },
}


def test_the_kind_holds_every_field_that_the_controllers_write() -> None:
    _, endpoint = ENDPOINTS[0]
    jsonschema.validate(endpoint | {"status": STATUS}, endpoint_schema())


@pytest.mark.parametrize(
    "broken",
    [
        {"desired": 2},
        {"gateway": {"at": 5}},
        {"revisions": [{"name": "a", "phase": "Sleeping"}]},
        {"conditions": [{"type": "Ready", "status": "Maybe", "reason": "x", "lastTransitionTime": "x"}]},
    ],
)
def test_the_kind_refuses_a_status_of_another_shape(broken: dict[str, Any]) -> None:
    _, endpoint = ENDPOINTS[0]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(endpoint | {"status": broken}, endpoint_schema())


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, value in schema.get("properties", {}).items():
        yield from nodes(value, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}[]")


def test_every_string_and_list_of_the_spec_is_bounded_so_that_rules_have_a_price() -> None:
    schema = crd.endpoint_kind()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for path, node in nodes(schema):
        if node.get("type") == "string":
            assert "maxLength" in node or "format" in node, path
        if node.get("type") == "array":
            assert "maxItems" in node, path


def test_lists_that_writers_share_are_maps_by_their_key() -> None:
    schema = crd.endpoint_kind()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    keys = {name: schema["properties"][name]["x-kubernetes-list-map-keys"] for name in ("conditions", "revisions")}
    assert keys == {"conditions": ["type"], "revisions": ["name"]}


def test_kubectl_shows_version_replicas_target_and_decision_in_one_line() -> None:
    version = crd.endpoint_kind()["spec"]["versions"][0]
    shown = [column["name"] for column in version["additionalPrinterColumns"] if not column.get("priority")]
    wide = [column["name"] for column in version["additionalPrinterColumns"] if column.get("priority")]
    assert shown == ["Version", "Ready", "Desired", "Target", "Decision", "Status", "Age"]
    assert wide == ["Model", "Reason"]
    assert version["subresources"] == {"status": {}}


def rules(kind: str) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{name}", rule)
        for name, obj in OBJECTS
        if obj["kind"] in ("Role", "ClusterRole") and name.startswith(kind)
        for rule in obj["rules"]
    ]


@each(rules("groups.platform"))
def test_a_right_names_what_it_reaches(subject: dict[str, Any]) -> None:
    words = [*subject["apiGroups"], *subject["resources"], *subject["verbs"]]
    assert "*" not in words
    assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(subject["verbs"])


def test_only_the_gateway_reads_a_secret_and_only_the_one_with_the_keys() -> None:
    reading = [rule for _, rule in rules("groups.platform") if "secrets" in rule["resources"]]
    assert [rule["resourceNames"] for rule in reading] == [["gateway-keys"]]


def test_nobody_may_write_in_every_namespace_but_the_gateway_its_part_of_a_status() -> None:
    bound = {obj["roleRef"]["name"] for _, obj in OBJECTS if obj["kind"] == "ClusterRoleBinding"}
    writing = [
        (obj["metadata"]["name"], resource)
        for name, obj in OBJECTS
        if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] in bound and name.startswith("groups")
        for rule in obj["rules"]
        if set(rule["verbs"]) - {"get", "list", "watch"}
        for resource in rule["resources"]
    ]
    assert writing == [("knobless-gateway", "modelendpoints/status")]
