"""Rules on operations: what serves or holds data is neither replaced nor deleted unannounced."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.operations import judge, read_steps, refused

TYPES = {
    "ModelEndpoint": "kubernetes:knobless.dev/v1alpha1:ModelEndpoint",
    "CustomResourceDefinition": "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition",
    "Namespace": "kubernetes:core/v1:Namespace",
    "Secret": "kubernetes:core/v1:Secret",
    "PersistentVolumeClaim": "kubernetes:core/v1:PersistentVolumeClaim",
    "Deployment": "kubernetes:apps/v1:Deployment",
    "Service": "kubernetes:core/v1:Service",
    "ConfigMap": "kubernetes:core/v1:ConfigMap",
    "ServiceAccount": "kubernetes:core/v1:ServiceAccount",
}


def urn(kind: str, name: str = "team-alpha/iris") -> str:
    token = TYPES.get(kind, kind)
    return f"urn:pulumi:local.alpha.iris::knobless::knobless:serving:ModelEndpoint${token}::{name}"


def step(operation: str, kind: str, name: str = "team-alpha/iris", namespace: str = "team-alpha") -> dict[str, Any]:
    state = {"type": TYPES.get(kind, kind), "inputs": {"kind": kind, "metadata": {"namespace": namespace}}}
    return {"op": operation, "urn": urn(kind, name), "oldState": state, "newState": state}


@pytest.mark.parametrize("operation", ["create", "update", "same", "refresh", "read", "import"])
@pytest.mark.parametrize("kind", TYPES)
def test_what_keeps_an_object_is_allowed_in_silence(operation: str, kind: str) -> None:
    assert judge([step(operation, kind)]) == []


@pytest.mark.case("pulumi-D3")
@pytest.mark.parametrize("operation", ["delete", "replace", "create-replacement", "delete-replaced"])
@pytest.mark.parametrize(
    "kind", ["ModelEndpoint", "CustomResourceDefinition", "Namespace", "Secret", "PersistentVolumeClaim"]
)
def test_what_serves_or_holds_data_is_not_replaced_or_deleted(operation: str, kind: str) -> None:
    (verdict,) = judge([step(operation, kind)])
    assert (verdict.allowed, verdict.kind, verdict.name) == (False, kind, "team-alpha/iris")
    assert verdict.operation == ("delete" if operation == "delete" else "replace")


@pytest.mark.case("pulumi-E1")
@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_a_named_object_that_serves_is_not_replaced_however_it_came_about(kind: str) -> None:
    steps = [step(operation, kind) for operation in ("create-replacement", "replace", "delete-replaced")]
    (verdict,) = judge(steps)
    assert (verdict.allowed, verdict.operation) == (False, "replace")


def test_a_part_of_the_platform_that_serves_is_not_deleted() -> None:
    (verdict,) = judge([step("delete", "Deployment", "knobless-system/gateway", "knobless-system")])
    assert not verdict.allowed


@pytest.mark.parametrize("kind", ["Deployment", "Service"])
def test_what_is_there_while_a_file_asks_for_it_is_deleted_with_the_file_and_never_replaced(kind: str) -> None:
    name = "knobless-system/leaderworkerset"
    deleted, replaced = (step(each, kind, name, "knobless-system") for each in ("delete", "replace"))
    for each in (deleted, replaced):
        each["urn"] = each["urn"].replace(":ModelEndpoint$", ":LeaderWorkerSets$")
    assert judge([deleted]) == []
    (verdict,) = judge([replaced])
    assert not verdict.allowed


@pytest.mark.parametrize(
    "kind,operation", [("ConfigMap", "replace"), ("ServiceAccount", "delete"), ("Service", "delete")]
)
def test_what_serves_nothing_itself_may_be_replaced_or_deleted(kind: str, operation: str) -> None:
    assert judge([step(operation, kind)]) == []


@pytest.mark.case("pulumi-F1")
def test_a_replaced_provider_is_refused_because_it_replaces_all_below_it() -> None:
    provider = "urn:pulumi:local.platform::knobless::pulumi:providers:kubernetes::cluster"
    (verdict,) = judge([{"op": "replace", "urn": provider, "oldState": {"inputs": {}}}])
    assert not verdict.allowed
    assert judge([{"op": "update", "urn": provider}]) == []


@pytest.mark.parametrize(
    "announced", [urn("ModelEndpoint"), "team-alpha/iris", "ModelEndpoint team-alpha/iris"], ids=["urn", "name", "kind"]
)
def test_an_announced_operation_is_allowed_and_still_told(announced: str) -> None:
    (verdict,) = judge([step("delete", "ModelEndpoint")], {announced})
    assert verdict.allowed
    assert str(verdict).startswith("announced: delete of ModelEndpoint team-alpha/iris: ")
    assert refused([verdict]) == []


@pytest.mark.parametrize("announced", ["iris", "team-alpha", "Namespace team-alpha/iris", "team-alpha/iris2", ""])
def test_an_announcement_of_something_else_does_not_help(announced: str) -> None:
    assert len(refused(judge([step("delete", "ModelEndpoint")], {announced}))) == 1


@pytest.mark.parametrize(
    "odd", [{}, {"op": "delete"}, {"urn": "x"}, {"op": 1, "urn": "x"}, {"op": "delete", "urn": None}]
)
def test_a_step_that_can_not_be_read_is_refused(odd: dict[str, Any]) -> None:
    assert len(refused(judge([odd]))) == 1


def test_an_operation_of_a_later_version_is_refused() -> None:
    (verdict,) = judge([step("transmute", "ConfigMap")])
    assert not verdict.allowed
    assert "unknown to the rules" in verdict.message


def test_a_step_without_state_is_judged_by_its_urn() -> None:
    (verdict,) = judge([{"op": "delete", "urn": urn("ModelEndpoint")}])
    assert verdict.kind == "ModelEndpoint"


def test_a_kind_that_is_hidden_in_the_name_does_not_confuse() -> None:
    assert judge([step("delete", "ConfigMap", "a::ModelEndpoint")]) == []
    assert judge([step("delete", "Secret", "a::b")])[0].name == "a::b"


def test_verdicts_keep_the_order_of_the_steps() -> None:
    steps = [step("delete", "Secret", "b"), step("same", "Secret", "x"), step("delete", "ModelEndpoint", "a")]
    assert [verdict.name for verdict in judge(steps)] == ["b", "a"]


def test_the_steps_of_a_preview_are_read_from_its_json() -> None:
    preview = {"config": {}, "steps": [step("same", "Secret")], "changeSummary": {"same": 1}}
    assert read_steps(json.dumps(preview)) == preview["steps"]
    assert read_steps("{}") == []


@pytest.mark.parametrize("text", ["", "error: no stack", "[]", '{"steps": 1}', '{"steps": [1]}'])
def test_what_is_no_preview_is_an_error_and_not_an_empty_plan(text: str) -> None:
    with pytest.raises(ValueError, match="pulumi preview --json"):
        read_steps(text)
