"""One endpoint's stack on a real API server, by the real engine and provider."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from components.manifests import endpoint
from components.manifests.served import ServedModel
from controllers.kube.fields import covers
from controllers.rollout.objects import deployment_object
from runtimes.selection import Wish, select
from runtimes.selection_card import Card
from spec.endpoint import load_endpoint
from spec.platform import Rollout
from spec.revision import revision_of

pytestmark = pytest.mark.process
NAMESPACE = "team-alpha"
BESIDE = [
    f"{group}/namespaces/team-beta/{kind}"
    for group, kind in [
        ("api/v1", "services"),
        ("api/v1", "serviceaccounts"),
        ("apis/networking.k8s.io/v1", "networkpolicies"),
        ("apis/policy/v1", "poddisruptionbudgets"),
    ]
]


NOWHERE = "127.0.0.1:9"


def without_cluster(engine: Any, cluster: Any, name: str) -> Any:
    """The same engine, told of a cluster that does not answer."""
    kubeconfig = engine.folder / f"{name}.kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.url, f"https://{NOWHERE}"))
    facts = json.loads((engine.folder / "cluster.json").read_text()) | {"kubeconfig": str(kubeconfig)}
    (engine.folder / f"{name}.json").write_text(json.dumps(facts))
    return replace(engine, variables={**engine.variables, "KNOBLESS_CLUSTER": str(engine.folder / f"{name}.json")})


def op(steps: list[dict[str, Any]], kind: str) -> set[str]:
    return {step["op"] for step in steps if f":{kind}::" in step["urn"]}


@pytest.fixture(scope="module")
def wine(engine: Any, platform: str) -> Iterator[str]:
    """The stack of an endpoint that is up."""
    stack = engine.made(engine.endpoint("alpha", "wine"))
    ran = engine.up(stack)
    assert ran.code == 0, ran.output
    yield stack


def test_up_ends_when_the_endpoint_is_ready_and_tells_where_it_is(engine: Any, wine: str, cluster: Any) -> None:
    outputs = json.loads(engine.run("stack", "output", "-s", wine, "--json").output)
    assert outputs["url"] == "https://127.0.0.1:8443/serving-endpoints/wine/invocations"
    assert outputs["modelVersion"] == "1"
    assert cluster.endpoint(NAMESPACE, "wine")["status"]["observedGeneration"] == 1


@pytest.mark.case("pulumi-G1")
def test_a_second_up_changes_nothing(engine: Any, wine: str) -> None:
    ran = engine.up(wine, "--expect-no-changes")
    assert ran.code == 0, ran.output


@pytest.mark.case("pulumi-H9")
def test_endpoints_created_at_once_do_not_touch_each_other(engine: Any, platform: str, cluster: Any) -> None:
    names = [f"twin-{number}" for number in range(4)]
    stacks = [engine.made(engine.endpoint("beta", name)) for name in names]
    running = [engine.start("up", "-s", stack, "--yes", "--skip-preview") for stack in stacks]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(names), outputs
    for name, stack in zip(names, stacks, strict=True):
        assert cluster.endpoint("team-beta", name)["metadata"]["name"] == name
        assert json.loads(engine.run("stack", "output", "-s", stack, "--json").output)["url"].count(name) == 1


@pytest.mark.case("pulumi-G2")
def test_the_state_is_small_and_holds_no_credential(engine: Any, wine: str) -> None:
    state = engine.run("stack", "export", "-s", wine, "--show-secrets").output
    assert len(state) < 200_000
    assert "of-this-test" not in state


@pytest.mark.case("pulumi-A8")
def test_our_apply_owns_what_the_manifest_states_and_nothing_of_the_status(
    engine: Any, wine: str, cluster: Any
) -> None:
    fields = cluster.endpoint(NAMESPACE, "wine")["metadata"]["managedFields"]
    ours = [entry for entry in fields if entry["manager"].startswith("pulumi-kubernetes")]
    assert len(ours) == 1
    owned = ours[0]["fieldsV1"]
    assert set(owned) == {"f:metadata", "f:spec"}
    assert set(owned["f:metadata"]) == {"f:annotations", "f:labels"}
    assert set(owned["f:spec"]) == {
        "f:access", "f:concurrency", "f:model", "f:podTemplate", "f:rollout", "f:routing", "f:runtime", "f:team",
    }  # fmt: skip
    assert "knobless-rollout" in {entry["manager"] for entry in fields}


@pytest.mark.case("pulumi-E2")
@pytest.mark.parametrize(
    ("changed", "restarts"),
    [
        ({"concurrency": "{min: 1, max: 9}"}, False),
        ({"access": "{teams: [beta]}"}, False),
        ({"queue": "{max: 9}"}, False),
        ({"rollout": "{hold_s: 1, start_timeout_s: 20}"}, False),
        ({"model": "models:/wine/2"}, True),
        ({"resources": '{cpu: "1"}'}, True),
        ({"deadline_s": "30"}, True),
    ],
)
def test_every_change_updates_the_endpoint_object_alone_and_replaces_nothing(
    engine: Any, wine: str, changed: dict[str, str], restarts: bool
) -> None:
    engine.endpoint("alpha", "wine", **changed)
    steps = engine.steps(wine)
    engine.endpoint("alpha", "wine")
    assert op(steps, "ModelEndpoint") == {"update"}
    assert [step["urn"] for step in steps if "kubernetes:" in step["urn"]] == [
        step["urn"] for step in steps if ":ModelEndpoint::" in step["urn"] and "kubernetes:" in step["urn"]
    ]
    (step,) = [step for step in steps if "kubernetes:knobless.dev" in step["urn"]]
    assert any(path.startswith("spec.podTemplate") for path in step["detailedDiff"]) is restarts


@pytest.mark.case("pulumi-F1")
@pytest.mark.parametrize(
    "edited",
    [{"proxy-url": "http://127.0.0.1:1"}, {"tls-server-name": "other"}, {"certificate-authority-data": "QQ=="}],
)
def test_an_edited_kubeconfig_replaces_nothing(engine: Any, wine: str, cluster: Any, edited: dict[str, str]) -> None:
    before = cluster.kubeconfig.read_text()
    config = json.loads(before)
    config["clusters"][0]["cluster"] |= edited
    cluster.kubeconfig.write_text(json.dumps(config))
    try:
        ran = engine.run("preview", "-s", wine, "--json")
    finally:
        cluster.kubeconfig.write_text(before)
    if ran.code == 0:
        steps = json.loads(ran.output[ran.output.index("{") : ran.output.rindex("}") + 1])["steps"]
        assert {step["op"] for step in steps} <= {"same", "update", "refresh"}
    else:
        assert "error" in ran.output, "a cluster that can't be reached so is an error, not an empty one"
    assert engine.steps(wine) == [], "nothing has left the state"


@pytest.mark.case("pulumi-F1")
def test_a_kubeconfig_that_moved_updates_the_provider_and_nothing_else(engine: Any, wine: str, cluster: Any) -> None:
    moved = engine.folder / "moved"
    moved.write_text(cluster.kubeconfig.read_text())
    facts = json.loads((engine.folder / "cluster.json").read_text())
    (engine.folder / "cluster.json").write_text(json.dumps(facts | {"kubeconfig": str(moved)}))
    try:
        steps = engine.steps(wine)
    finally:
        (engine.folder / "cluster.json").write_text(json.dumps(facts))
    assert [(step["op"], step["urn"].rsplit("::", 1)[1]) for step in steps] == [("update", "cluster")]


@pytest.mark.case("pulumi-B1", "pulumi-B2")
def test_what_a_person_changed_is_seen_and_comes_back(engine: Any, wine: str, cluster: Any) -> None:
    path = f"/apis/knobless.dev/v1alpha1/namespaces/{NAMESPACE}/modelendpoints/wine"
    cluster.merge(path, {"spec": {"concurrency": {"max": 7}}}).raise_for_status()
    seen = engine.run("preview", "-s", wine, "--refresh", "--expect-no-changes")
    assert seen.code == 7, seen.output
    corrected = engine.up(wine, "--refresh")
    assert corrected.code == 0, corrected.output
    assert cluster.endpoint(NAMESPACE, "wine")["spec"]["concurrency"]["max"] == 8


def test_ready_of_an_older_spec_does_not_end_the_wait(
    engine: Any, platform: str, cluster: Any, stand_in: Any, until: Any
) -> None:
    stack = engine.made(engine.endpoint("alpha", "slow"))
    assert engine.up(stack).code == 0
    stand_in.held.add("slow")
    engine.endpoint("alpha", "slow", concurrency="{min: 2, max: 8}")
    running = engine.start("up", "-s", stack, "--yes", "--skip-preview")
    until(lambda: cluster.endpoint(NAMESPACE, "slow")["metadata"]["generation"] == 2, 30, "the second spec")
    # The status is written once more and says Ready, but of the first spec.
    stand_in.say_ready(cluster.endpoint(NAMESPACE, "slow"), generation=1)
    with pytest.raises(TimeoutError):
        until(lambda: running.poll() is not None, 3, "the end of a wait that must not end")
    stand_in.held.discard("slow")
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 0, output


def exported(engine: Any, stack: str) -> dict[str, dict[str, Any]]:
    """The state's resources by the kind of their objects."""
    found = json.loads(engine.run("stack", "export", "-s", stack).output)["deployment"]["resources"]
    return {each["inputs"]["kind"]: each for each in found if "kind" in each.get("inputs", {})}


def ids(engine: Any, stack: str) -> dict[str, str]:
    return {kind: each["id"] for kind, each in exported(engine, stack).items()}


PATHS = {
    "ModelEndpoint": "/apis/knobless.dev/v1alpha1/namespaces/team-alpha/modelendpoints/wine",
    "Service": "/api/v1/namespaces/team-alpha/services/wine",
    "ServiceAccount": "/api/v1/namespaces/team-alpha/serviceaccounts/wine",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/team-alpha/networkpolicies/wine",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/team-alpha/poddisruptionbudgets/wine",
}


@pytest.mark.case("pulumi-B9", "pulumi-F4")
def test_after_up_the_cluster_has_each_field_of_what_the_manifests_say(engine: Any, wine: str, cluster: Any) -> None:
    """The manifests are rendered here as a review would: by the same functions, from the same file."""
    path = engine.folder / "stacks" / wine.split(".")[0] / "endpoints" / "alpha" / "wine.yaml"
    spec = load_endpoint(path.read_bytes(), "wine.yaml", "alpha")
    facts = json.loads((engine.folder / "cluster.json").read_text())
    image = exported(engine, wine)["ModelEndpoint"]["inputs"]["spec"]["podTemplate"]["spec"]["containers"][0]["image"]
    model = ServedModel("models:/wine/1", "1", "ab" * 32, image, image, select(Card("sklearn", pyfunc=True), Wish()))
    rendered = [
        endpoint.endpoint_object(spec, model, facts["model_registry"], Rollout()),
        endpoint.service(spec),
        endpoint.service_account(spec),
        endpoint.doors(spec, facts["model_registry"]),
        endpoint.disruption_budget(spec),
    ]
    assert {obj["kind"] for obj in rendered} == set(PATHS) == set(exported(engine, wine))
    for obj in rendered:
        assert covers(cluster.get(PATHS[obj["kind"]]), obj), obj["kind"]


@pytest.mark.case("pulumi-A1", "pulumi-A2")
def test_replicas_that_the_autoscaler_set_stay_through_plans_and_changes_of_the_pods(
    engine: Any, wine: str, cluster: Any
) -> None:
    found = cluster.endpoint(NAMESPACE, "wine")
    name = revision_of("wine", found["spec"]["podTemplate"])
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}"
    cluster.apply(path, deployment_object(found, name), manager="knobless-rollout").raise_for_status()
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, "spec": {"replicas": 7}}
    cluster.apply(f"{path}/scale", scale, manager="knobless-autoscaler").raise_for_status()
    assert engine.up(wine, "--expect-no-changes").code == 0
    engine.endpoint("alpha", "wine", model="models:/wine/2", resources='{cpu: "1"}')
    changed = engine.up(wine)
    engine.endpoint("alpha", "wine")
    assert changed.code == 0, changed.output
    assert cluster.get(path)["spec"]["replicas"] == 7
    assert engine.up(wine).code == 0
    assert cluster.get(path)["spec"]["replicas"] == 7


@pytest.mark.case("pulumi-B3")
def test_a_cluster_that_cannot_be_reached_is_an_error_that_names_it_and_nothing_leaves_the_state(
    engine: Any, wine: str, cluster: Any
) -> None:
    before, reachable = ids(engine, wine), cluster.kubeconfig.read_text()
    cluster.kubeconfig.write_text(reachable.replace(cluster.url, f"https://{NOWHERE}"))
    try:
        for arguments in (("refresh", "--yes"), ("up", "--yes", "--skip-preview"), ("preview",)):
            ran = engine.run(*arguments, "-s", wine)
            assert ran.code != 0, ran.output
            assert NOWHERE in ran.output, "the address that does not answer"
    finally:
        cluster.kubeconfig.write_text(reachable)
    assert ids(engine, wine) == before
    assert engine.up(wine, "--expect-no-changes").code == 0


@pytest.mark.case("pulumi-B5")
def test_one_cluster_that_is_down_fails_its_own_stacks_and_no_others(engine: Any, wine: str, cluster: Any) -> None:
    down = without_cluster(engine, cluster, "down")
    stacks = [engine.made(engine.endpoint("beta", "of-the-other")), wine]
    running = [one.start("up", "-s", stack, "--yes") for one, stack in zip((down, engine), stacks, strict=True)]
    outputs = [process.communicate()[0] for process in running]
    assert running[0].returncode != 0, outputs[0]
    assert running[1].returncode == 0, outputs[1]


@pytest.mark.case("pulumi-B6")
def test_an_interrupted_up_is_taken_up_by_the_next_one(
    engine: Any, platform: str, cluster: Any, stand_in: Any, until: Any
) -> None:
    stand_in.held.add("stuck")
    stack = engine.made(engine.endpoint("alpha", "stuck"))
    running = engine.start("up", "-s", stack, "--yes", "--skip-preview")
    until(lambda: cluster.endpoint(NAMESPACE, "stuck") is not None, 60, "the endpoint object")
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode != 0
    uid = cluster.endpoint(NAMESPACE, "stuck")["metadata"]["uid"]
    stand_in.held.discard("stuck")
    ran = engine.up(stack)
    assert ran.code == 0, ran.output
    assert cluster.endpoint(NAMESPACE, "stuck")["metadata"]["uid"] == uid
    assert engine.up(stack, "--expect-no-changes").code == 0


def test_removal_is_refused_until_it_was_meant_and_then_leaves_nothing(
    engine: Any, platform: str, cluster: Any
) -> None:
    stack = engine.made(engine.endpoint("beta", "gone"))
    assert engine.up(stack).code == 0
    refused = engine.run("destroy", "-s", stack, "--yes", "--skip-preview")
    assert refused.code != 0
    assert "protect" in refused.output
    assert cluster.endpoint("team-beta", "gone") is not None
    for path in BESIDE:
        assert cluster.get(f"/{path}/gone") is not None, path
    # The file may be gone by then: neither command runs the program.
    (engine.folder / "stacks" / stack.split(".")[0] / "endpoints" / "beta" / "gone.yaml").unlink()
    assert engine.run("state", "unprotect", "--all", "-s", stack, "--yes").code == 0
    ran = engine.run("destroy", "-s", stack, "--yes", "--skip-preview")
    assert ran.code == 0, ran.output
    assert cluster.endpoint("team-beta", "gone") is None
    for path in BESIDE:
        assert cluster.get(f"/{path}/gone") is None, path


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "models:/wine/9"}, "model: models:/wine/9 is not in the model registry"),
        ({"model": "models:/wine/9"}, "versions of 'wine' that exist: 1, 2"),
        ({"model": "models:/wine/8"}, "knobless/model:missing is not in the registry: run `knobless build`"),
        ({"concurrency": "{min: 9, max: 8}"}, "concurrency.max: 8 is below min 9"),
    ],
)
def test_what_cannot_be_declared_is_one_message_and_nothing_is_applied(
    engine: Any, wine: str, changed: dict[str, str], said: str
) -> None:
    engine.endpoint("alpha", "wine", **changed)
    ran = engine.up(wine)
    engine.endpoint("alpha", "wine")
    assert ran.code != 0
    assert said in ran.output
    assert "Traceback" not in ran.output
    assert "non-zero exit code" not in ran.output
    assert "1 problem in what Git declares" in ran.output
    assert engine.steps(wine) == []
