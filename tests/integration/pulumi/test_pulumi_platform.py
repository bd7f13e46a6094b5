"""The platform's stack on a real API server: order, the kind's rules, what a person may not lose by accident."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.process
KIND = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/modelendpoints.knobless.dev"
WRIT = "rbac.authorization.k8s.io/v1/namespaces/team-beta/rolebindings/knobless-controllers-team"
ENDPOINTS = "/apis/knobless.dev/v1alpha1/namespaces/team-alpha/modelendpoints"


@pytest.mark.case("pulumi-D1")
def test_an_endpoint_can_be_previewed_before_its_kind_is_there(engine: Any) -> None:
    """Runs first in this folder's order of need: no fixture of it has applied the platform."""
    stack = engine.made(engine.endpoint("alpha", "early"))
    steps = engine.steps(stack)
    assert {step["op"] for step in steps} == {"create"}


def test_the_whole_platform_is_previewed_by_the_server(engine: Any, platform: str) -> None:
    steps = engine.steps(platform)
    assert {(step["op"], step["urn"].rsplit("::", 1)[1]) for step in steps} == {
        ("create", "knobless-system/controllers"),
        ("create", "knobless-system/gateway"),
    }


def test_a_second_up_changes_nothing(engine: Any, platform: str) -> None:
    ran = engine.up(platform, "--exclude", "**Deployment**", "--expect-no-changes")
    assert ran.code == 0, ran.output


def test_every_object_satisfies_the_policy_pack(engine: Any, platform: str) -> None:
    packs = ("--policy-pack", "policies/pack")
    assert engine.steps(platform, *packs)
    assert engine.steps(engine.made(engine.endpoint("beta", "judged")), *packs)


@pytest.mark.case("pulumi-E1")
def test_a_team_that_leaves_the_file_keeps_its_namespace_until_it_was_meant(
    engine: Any, platform: str, cluster: Any, platform_text: str
) -> None:
    engine.write("platform.yaml", platform_text.replace("  beta: {}\n", ""))
    for path in (engine.folder / "stacks").glob("*/endpoints/beta/*"):
        path.unlink()
    ran = engine.up(platform, "--exclude", "**Deployment**")
    engine.write("platform.yaml", platform_text)
    assert ran.code != 0
    assert "team-beta" in ran.output
    assert "protect" in ran.output
    assert cluster.get("/api/v1/namespaces/team-beta")["status"]["phase"] == "Active"
    for kind in ("networking.k8s.io/v1/namespaces/team-beta/networkpolicies/default-deny", WRIT):
        assert cluster.get(f"/apis/{kind}") is not None, kind
    ran = engine.up(platform, "--exclude", "**Deployment**")
    assert ran.code == 0, ran.output


@pytest.mark.case("pulumi-F2")
def test_settings_change_in_place_and_nothing_of_any_endpoint(engine: Any, platform: str, platform_text: str) -> None:
    stack = engine.made(engine.endpoint("alpha", "untouched"))
    assert engine.up(stack).code == 0
    engine.write("platform.yaml", platform_text + "autoscaler: {down_window_s: 30}\n")
    steps = engine.steps(platform, "--exclude", "**Deployment**")
    of_endpoint = engine.steps(stack)
    engine.write("platform.yaml", platform_text)
    assert [(step["op"], step["urn"].rsplit("::", 1)[1]) for step in steps] == [
        ("update", "knobless-system/platform-settings")
    ]
    assert of_endpoint == []


def test_pull_secrets_reach_every_account_and_restart_no_pod(
    engine: Any, platform: str, platform_text: str, cluster: Any
) -> None:
    stack = engine.made(engine.endpoint("alpha", "pulling"))
    assert engine.up(stack).code == 0
    generation = cluster.endpoint("team-alpha", "pulling")["metadata"]["generation"]
    engine.write("platform.yaml", platform_text + "pull_secrets: [registry-login]\n")
    for each, more in ((platform, ("--exclude", "**Deployment**")), (stack, ())):
        ran = engine.up(each, *more)
        assert ran.code == 0, ran.output
    for account in ("team-alpha/serviceaccounts/pulling", "knobless-system/serviceaccounts/gateway"):
        assert cluster.get(f"/api/v1/namespaces/{account}")["imagePullSecrets"] == [{"name": "registry-login"}]
    engine.write("platform.yaml", platform_text)
    for each, more in ((platform, ("--exclude", "**Deployment**")), (stack, ())):
        assert engine.up(each, *more).code == 0
    assert "imagePullSecrets" not in cluster.get("/api/v1/namespaces/team-alpha/serviceaccounts/pulling")
    assert cluster.endpoint("team-alpha", "pulling")["metadata"]["generation"] == generation


def test_a_namespace_that_was_made_for_its_pull_secret_is_taken_over_by_its_team(
    engine: Any, platform: str, platform_text: str, cluster: Any
) -> None:
    from stacks.cli.pull_secrets import LABELS, MANAGER

    path = "/api/v1/namespaces/team-waiting"
    made = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-waiting", "labels": LABELS}}
    cluster.apply(path, made, manager=MANAGER, force=False).raise_for_status()
    engine.write("platform.yaml", platform_text + "  waiting: {}\n")
    ran = engine.up(platform, "--exclude", "**Deployment**")
    assert ran.code == 0, ran.output
    assert cluster.get(path)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    engine.write("platform.yaml", platform_text)
    urn = f"urn:pulumi:{platform}::knobless::knobless:serving:Team$kubernetes:core/v1:Namespace::team-waiting"
    assert engine.run("state", "unprotect", urn, "-s", platform, "--yes").code == 0
    assert engine.up(platform, "--exclude", "**Deployment**").code == 0


@pytest.mark.case("pulumi-D3")
def test_a_changed_kind_is_updated_and_keeps_its_endpoints(engine: Any, platform: str, cluster: Any) -> None:
    stack = engine.made(engine.endpoint("alpha", "kept"))
    assert engine.up(stack).code == 0
    uid = cluster.endpoint("team-alpha", "kept")["metadata"]["uid"]
    found = cluster.get(KIND)
    found["spec"]["versions"][0]["additionalPrinterColumns"] = []
    cluster.merge(KIND, {"spec": found["spec"]}).raise_for_status()
    ran = engine.up(platform, "--refresh", "--exclude", "**Deployment**")
    assert ran.code == 0, ran.output
    assert cluster.get(KIND)["spec"]["versions"][0]["additionalPrinterColumns"]
    assert cluster.endpoint("team-alpha", "kept")["metadata"]["uid"] == uid


@pytest.fixture
def declared(cluster: Any, platform: str) -> dict[str, Any]:
    """A right endpoint object, as the program renders it."""
    from components.manifests.endpoint import endpoint_object
    from components.manifests.served import ServedModel
    from runtimes.selection import Wish, select
    from runtimes.selection_card import Card
    from spec.endpoint import load_endpoint
    from spec.platform import Rollout

    text = "endpoint: asked\nmodel: models:/wine/1\nconcurrency: {min: 1, max: 8}\n"
    spec = load_endpoint(text, "stacks/x/endpoints/alpha/asked.yaml", "alpha")
    image = "registry/model@sha256:" + "0" * 64
    model = ServedModel("models:/wine/1", "1", "ab" * 32, image, image, select(Card("sklearn", pyfunc=True), Wish()))
    return endpoint_object(spec, model, "http://192.0.2.1:5500", Rollout())


def asked(cluster: Any, obj: dict[str, Any]) -> str:
    """What the server says to a dry run: empty where it takes the object."""
    answer = cluster.client.post(
        ENDPOINTS, params={"dryRun": "All", "fieldValidation": "Strict"}, content=json.dumps(obj),
        headers={"Content-Type": "application/json"},
    )  # fmt: skip
    return "" if answer.status_code == 201 else str(answer.json()["message"])


def changed(obj: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(obj))
    *parents, last = path.split(".")
    place = copy
    for key in parents:
        place = place[key]
    place[last] = value
    return copy


def test_the_server_takes_what_the_program_renders(cluster: Any, declared: dict[str, Any]) -> None:
    assert asked(cluster, declared) == ""


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec.concurrency.min", 9, "concurrency.min may not be above concurrency.max"),
        ("spec.concurrency.min", 0, "greater than or equal to 1"),
        ("spec.access.teams", ["beta"], "access.teams must hold the endpoint's own team"),
        ("spec.access.teams", ["alpha", "alpha"], "Duplicate value"),
        ("spec.model.sha256", "AB" * 32, "should match"),
        ("metadata.name", "a" * 37, "the name of an endpoint has at most 36 characters"),
        ("spec.replicas", 3, "unknown field"),
        ("spec.routing.deadlineMs", 297_001, "less than or equal to 297000"),
        ("spec.routing.affinity", "session", 'supported values: "prefix"'),
    ],
)
def test_the_server_refuses_what_no_endpoint_may_say(
    cluster: Any, declared: dict[str, Any], path: str, value: Any, said: str
) -> None:
    assert said in asked(cluster, changed(declared, path, value))


def test_an_endpoint_cannot_change_its_team(cluster: Any, declared: dict[str, Any]) -> None:
    path = f"{ENDPOINTS}/asked"
    assert cluster.apply(path, declared).status_code == 201
    moved = changed(changed(declared, "spec.team", "beta"), "spec.access.teams", ["beta"])
    answer = cluster.apply(path, moved)
    cluster.client.delete(path)
    assert answer.status_code == 422
    assert "an endpoint belongs to its team for life" in answer.json()["message"]


def test_each_controller_applies_its_part_of_the_status_and_keeps_the_others(
    cluster: Any, declared: dict[str, Any]
) -> None:
    path = f"{ENDPOINTS}/asked"
    cluster.apply(path, declared).raise_for_status()
    identity = {"apiVersion": declared["apiVersion"], "kind": declared["kind"], "metadata": {"name": "asked"}}

    def condition(kind: str) -> dict[str, Any]:
        return {"type": kind, "status": "True", "reason": "Fine", "lastTransitionTime": "2026-01-01T00:00:00Z"}

    for manager, status in {
        "knobless-autoscaler": {"autoscaler": {"desiredReplicas": 2}, "conditions": [condition("Scaled")]},
        "knobless-gateway": {"gateway": {"generation": 1}, "conditions": [condition("Routed")]},
        "another-rollout": {"declaredRevision": "asked-00000000", "conditions": [condition("Available")]},
    }.items():
        cluster.apply(f"{path}/status", identity | {"status": status}, manager, force=False).raise_for_status()
    found = cluster.get(path)["status"]
    cluster.client.delete(path)
    assert {"Scaled", "Routed", "Available"} <= {each["type"] for each in found["conditions"]}
    assert (found["autoscaler"]["desiredReplicas"], found["gateway"]["generation"]) == (2, 1)


def allowed(cluster: Any, account: str, verb: str, what: str, namespace: str, name: str = "") -> bool:
    """What the API server's authorizer says of one of the platform's ServiceAccounts."""
    group, _, named = what.rpartition("/")
    resource, _, sub = named.partition(".")
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": namespace}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:knobless-system:{account}",
            "resourceAttributes": attributes | {"name": name},
        },
    }
    answer = cluster.client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", json=review)
    answer.raise_for_status()
    return bool(answer.json()["status"]["allowed"])


@pytest.mark.parametrize(
    ("account", "verb", "what", "namespace", "name", "may"),
    [
        ("controllers", "watch", "apps/deployments", "", "", True),
        ("controllers", "patch", "apps/deployments", "team-alpha", "", True),
        ("controllers", "patch", "apps/deployments.scale", "team-alpha", "", True),
        ("controllers", "delete", "services", "team-beta", "", True),
        ("controllers", "create", "events", "team-alpha", "", True),
        ("controllers", "patch", "knobless.dev/modelendpoints.status", "team-alpha", "", True),
        ("controllers", "update", "coordination.k8s.io/leases", "knobless-system", "knobless-controllers", True),
        ("controllers", "update", "coordination.k8s.io/leases", "knobless-system", "another", False),
        ("controllers", "patch", "apps/deployments", "knobless-system", "gateway", False),
        ("controllers", "delete", "apps/deployments", "default", "", False),
        ("controllers", "patch", "knobless.dev/modelendpoints", "team-alpha", "", False),
        ("controllers", "list", "secrets", "knobless-system", "", False),
        ("controllers", "create", "pods", "team-alpha", "", False),
        ("gateway", "watch", "discovery.k8s.io/endpointslices", "", "", True),
        ("gateway", "patch", "knobless.dev/modelendpoints.status", "team-alpha", "", True),
        ("gateway", "watch", "secrets", "knobless-system", "gateway-keys", True),
        ("gateway", "list", "secrets", "knobless-system", "", False),
        ("gateway", "get", "secrets", "knobless-system", "gateway-tls", False),
        ("gateway", "patch", "knobless.dev/modelendpoints", "team-alpha", "", False),
        ("gateway", "patch", "apps/deployments", "team-alpha", "", False),
    ],
)
def test_each_account_may_do_its_work_and_no_more(
    cluster: Any, platform: str, account: str, verb: str, what: str, namespace: str, name: str, may: bool
) -> None:
    assert allowed(cluster, account, verb, what, namespace, name) is may
