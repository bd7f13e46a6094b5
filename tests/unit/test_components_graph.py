"""The whole graph that the program registers, with its options: goldens, and what must hold in every one of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOLDENS = Path(__file__).parents[1] / "goldens"
RECORDED = sorted((GOLDENS / "recorded").glob("*.json"))
STACKS = [path.stem for path in RECORDED]
ENDPOINT_STACKS = [stack for stack in STACKS if stack.count(".") == 2]
PROTECTED = {"CustomResourceDefinition", "ModelEndpoint", "Namespace"}


def resources(stack: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((GOLDENS / "recorded" / f"{stack}.json").read_text())["resources"]
    return found


def objects(stack: str) -> list[dict[str, Any]]:
    """The registrations that are Kubernetes objects."""
    return [resource for resource in resources(stack) if "kind" in resource["inputs"]]


def contains_key(value: Any, key: str) -> bool:
    if isinstance(value, dict):
        return key in value or any(contains_key(item, key) for item in value.values())
    return isinstance(value, list) and any(contains_key(item, key) for item in value)


@pytest.fixture(scope="module")
def recorded_now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graphs of this checkout."""
    folder = tmp_path_factory.mktemp("recorded")
    command = [sys.executable, str(GOLDENS / "write.py"), str(folder)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return folder


@pytest.mark.process
@pytest.mark.parametrize("stack", STACKS)
def test_the_program_registers_what_the_golden_says(stack: str, recorded_now: Path) -> None:
    golden = (GOLDENS / "recorded" / f"{stack}.json").read_text()
    now = (recorded_now / f"{stack}.json").read_text()
    assert json.loads(now) == json.loads(golden), "if this change is meant: python tests/goldens/write.py"


@pytest.mark.process
@pytest.mark.case("pulumi-F3")
def test_what_is_rendered_depends_on_no_cluster_that_happens_to_be_configured(tmp_path: Path) -> None:
    command = [sys.executable, str(GOLDENS / "record_graph.py"), "local.alpha.wine", str(GOLDENS.parents[1] / "stacks")]
    broken = tmp_path / "broken"
    broken.write_text("{")
    recorded = {
        subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        for env in ({}, {"KUBECONFIG": str(broken)}, {"KUBECONFIG": "/nowhere", "HOME": "/elsewhere"})
    }
    assert [json.loads(text)["resources"] for text in recorded] == [resources("local.alpha.wine")]


@pytest.mark.process
@pytest.mark.parametrize("left", [True, False])
def test_what_makes_groups_stays_while_any_is_left_whatever_the_files_say(left: bool, tmp_path: Path) -> None:
    """A file that went back to one node has groups that serve until its new pods do, or for good where these fail."""
    told = json.loads((GOLDENS / "local.cluster.json").read_text())
    facts = tmp_path / "cluster.json"
    facts.write_text(json.dumps(told | {"authority": str(GOLDENS / "authority.pem"), "groups": left}))
    command = [sys.executable, str(GOLDENS / "record_graph.py"), "local.platform", str(GOLDENS.parents[1] / "stacks")]
    recorded = json.loads(subprocess.run([*command, str(facts)], capture_output=True, check=True).stdout)
    names = {resource["name"] for resource in recorded["resources"]}
    assert ("knobless-system/leaderworkerset" in names) is left


@pytest.mark.process
def test_every_recorded_stack_has_a_golden(recorded_now: Path) -> None:
    assert sorted(path.name for path in recorded_now.glob("*.json")) == [path.name for path in RECORDED]


@pytest.mark.parametrize("stack", STACKS)
def test_what_holds_data_or_serves_is_protected_and_nothing_else_is(stack: str) -> None:
    protected = {resource["inputs"]["kind"] for resource in objects(stack) if resource["protect"]}
    unprotected = {resource["inputs"]["kind"] for resource in objects(stack) if not resource["protect"]}
    assert protected <= PROTECTED
    assert not unprotected & PROTECTED


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_has_a_component_above_it_and_the_stack_s_own_provider(stack: str) -> None:
    for resource in objects(stack):
        assert "$knobless:serving:" in resource["parent"], resource["name"]
        assert resource["provider"] == "cluster", resource["name"]


@pytest.mark.case("pulumi-E1")
@pytest.mark.parametrize("stack", STACKS)
def test_the_logical_name_of_an_object_is_its_name_in_the_cluster(stack: str) -> None:
    for resource in objects(stack):
        metadata = resource["inputs"]["metadata"]
        assert resource["name"] == "/".join(filter(None, [metadata.get("namespace"), metadata["name"]]))


@pytest.mark.case("pulumi-A9")
@pytest.mark.parametrize("stack", STACKS)
def test_no_option_hides_a_difference_or_replaces_by_deleting(stack: str) -> None:
    for resource in resources(stack):
        assert not resource["ignoreChanges"], resource["name"]
        assert not resource["deleteBeforeReplace"], resource["name"]
        assert not resource["retainOnDelete"], resource["name"]
        assert not resource["type"].endswith("Patch"), resource["name"]


@pytest.mark.case("autoscaler-E3")
@pytest.mark.case("pulumi-A6")
@pytest.mark.parametrize("stack", STACKS)
def test_no_manifest_states_replicas_of_anything_that_serves(stack: str) -> None:
    stating = {resource["name"] for resource in objects(stack) if contains_key(resource["inputs"], "replicas")}
    assert stating <= {"knobless-system/controllers"}


@pytest.mark.case("pulumi-G1")
@pytest.mark.parametrize("stack", ENDPOINT_STACKS)
def test_an_endpoint_stack_stays_small(stack: str) -> None:
    assert len(resources(stack)) + 1 < 25


@pytest.mark.parametrize("stack", ENDPOINT_STACKS)
def test_the_endpoint_object_comes_after_everything_beside_it(stack: str) -> None:
    beside = {r["name"] + r["inputs"]["kind"] for r in objects(stack) if r["inputs"]["kind"] != "ModelEndpoint"}
    (endpoint,) = [r for r in objects(stack) if r["inputs"]["kind"] == "ModelEndpoint"]
    after = {urn.rsplit("::", 1)[1] + urn.rsplit("::", 1)[0].rsplit(":", 1)[1] for urn in endpoint["after"]}
    assert after == beside


@pytest.mark.parametrize("stack", ENDPOINT_STACKS)
def test_an_endpoint_stack_owns_only_what_carries_the_endpoint_s_name(stack: str) -> None:
    _, team, endpoint = stack.split(".")
    assert {resource["name"] for resource in objects(stack)} == {f"team-{team}/{endpoint}"}


@pytest.mark.case("pulumi-G2")
@pytest.mark.parametrize("stack", STACKS)
def test_no_secret_and_no_credential_enters_a_state(stack: str) -> None:
    assert not [resource["name"] for resource in objects(stack) if resource["inputs"]["kind"] == "Secret"]
    (provider,) = [resource for resource in resources(stack) if resource["type"] == "pulumi:providers:kubernetes"]
    assert provider["inputs"]["kubeconfig"].startswith("/"), "a path, never the content"


def test_what_lies_in_a_team_s_namespace_goes_with_it_or_stays_with_it() -> None:
    for resource in objects("local.platform"):
        team = resource["inputs"]["metadata"].get("namespace", "")
        gone_with = resource["deletedWith"].rsplit("::", 1)[-1]
        assert gone_with == (team if team.startswith("team-") else "")


@pytest.mark.case("pulumi-F1")
@pytest.mark.parametrize("stack", STACKS)
def test_the_provider_is_known_by_the_cluster_s_name_and_not_by_its_kubeconfig(stack: str) -> None:
    (provider,) = [resource for resource in resources(stack) if resource["type"] == "pulumi:providers:kubernetes"]
    assert provider["inputs"]["clusterIdentifier"] in ("local/embedded", "cloud/prod-eu", "groups/embedded")


@pytest.mark.case("pulumi-C4")
@pytest.mark.parametrize("stack", STACKS)
def test_no_service_is_waited_for_but_a_cloud_s_load_balancer(stack: str) -> None:
    waited = [
        resource["inputs"]["spec"].get("type")
        for resource in objects(stack)
        if resource["inputs"]["kind"] == "Service"
        and "pulumi.com/skipAwait" not in resource["inputs"]["metadata"].get("annotations", {})
    ]
    assert set(waited) <= {"LoadBalancer"}


@pytest.mark.case("pulumi-A10")
@pytest.mark.parametrize("stack", STACKS)
def test_git_takes_back_what_lies_in_a_namespace_of_the_platform_and_nothing_else(stack: str) -> None:
    for resource in objects(stack):
        metadata = resource["inputs"]["metadata"]
        ours = metadata.get("namespace", "").startswith(("team-", "knobless-system"))
        assert ("pulumi.com/patchForce" in metadata.get("annotations", {})) is ours, resource["name"]


@pytest.mark.case("pulumi-D1")
def test_a_stack_that_holds_endpoints_never_holds_their_kind() -> None:
    for stack in ENDPOINT_STACKS:
        assert "CustomResourceDefinition" not in {resource["inputs"]["kind"] for resource in objects(stack)}


@pytest.mark.case("pulumi-D2")
def test_the_platform_waits_until_the_kind_is_established() -> None:
    (kind,) = [r for r in objects("local.platform") if r["inputs"]["kind"] == "CustomResourceDefinition"]
    assert kind["inputs"]["metadata"]["annotations"]["pulumi.com/waitFor"] == "condition=Established"


def test_only_a_cluster_of_more_nodes_has_a_standby_of_the_controllers() -> None:
    def replicas(stack: str) -> int | None:
        (found,) = [
            r for r in objects(stack)
            if r["inputs"]["kind"] == "Deployment" and r["name"].endswith("/controllers")
        ]  # fmt: skip
        stated: int | None = found["inputs"]["spec"].get("replicas")
        return stated

    assert replicas("local.platform") is None
    assert replicas("cloud.platform") == 2


def test_the_stack_tells_a_person_where_the_endpoint_is_and_what_serves() -> None:
    outputs = json.loads((GOLDENS / "recorded" / "local.alpha.wine.json").read_text())["outputs"]
    assert outputs["url"] == "https://198.18.0.1:8443/serving-endpoints/wine/invocations"
    assert outputs["namespace"] == "team-alpha"
    assert outputs["modelVersion"] == "1"
    assert outputs["revision"].startswith("wine-")
