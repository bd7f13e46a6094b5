"""One endpoint judged from a manifest, a preview and a state: the same verdicts, and unknown is never a pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from pulumi_policy import proxy

from policies.declared import UNKNOWN, declared_manifest
from policies.rules import check_stack
from policies.sources import declared_in_preview, declared_in_state, known

TOKEN = "kubernetes:apps/v1:Deployment"
URN = f"urn:pulumi:t::knobless::{TOKEN}::team-alpha/iris"
OBJECT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "iris", "namespace": "team-alpha"},
    "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "server", "image": "mlflow:2"}]}}},
}
SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}


def state(inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"urn": URN, "type": TOKEN, "inputs": inputs} | more


@pytest.mark.case("pulumi-H5")
def test_a_manifest_a_preview_and_a_state_get_the_same_verdicts() -> None:
    expected = check_stack([declared_manifest(OBJECT)])
    assert {violation.rule for violation in expected} >= {"replicas", "image-digest", "resources"}
    assert check_stack(declared_in_preview([{"op": "create", "urn": URN, "newState": state(OBJECT)}])) == expected
    assert check_stack(declared_in_state([state(OBJECT, outputs={"spec": {}})])) == expected


@pytest.mark.parametrize("value", [proxy.UNKNOWN_STRING_VALUE, SECRET], ids=["unknown", "secret"])
def test_a_value_that_the_json_hides_fails_the_rule_that_gates_it(value: Any) -> None:
    inputs = copy.deepcopy(OBJECT)
    inputs["spec"]["template"]["spec"]["containers"][0]["image"] = value
    told = [violation.message for violation in check_stack(declared_in_state([state(inputs)]))]
    assert any("is not known before the run" in message for message in told)


def test_every_placeholder_of_pulumi_is_unknown() -> None:
    placeholders = [value for name, value in vars(proxy).items() if name.startswith("UNKNOWN_")]
    assert len(placeholders) == 7
    assert all(known(value) is UNKNOWN for value in placeholders)


def test_what_a_run_removes_is_not_judged() -> None:
    steps = [{"op": "delete", "urn": URN, "oldState": state(OBJECT)}, {"op": "delete-replaced", "newState": None}]
    assert declared_in_preview(steps) == []


def test_an_object_that_is_replaced_in_three_steps_is_judged_once() -> None:
    steps = [{"op": op, "newState": state(OBJECT)} for op in ("create-replacement", "replace")]
    assert len(declared_in_preview([*steps, {"op": "delete-replaced", "newState": state(OBJECT)}])) == 1


def test_what_is_no_kubernetes_object_is_passed_over() -> None:
    stack = {"urn": "urn:pulumi:t::knobless::pulumi:pulumi:Stack::knobless-t", "type": "pulumi:pulumi:Stack"}
    assert declared_in_state([stack]) == []


def test_protection_is_read_from_the_state() -> None:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "knobless-system"}}
    resource = {"urn": URN, "type": "kubernetes:core/v1:Namespace", "inputs": namespace}
    assert [violation.rule for violation in check_stack(declared_in_state([resource]))] == ["protected"]
    assert check_stack(declared_in_state([resource | {"protect": True}])) == []
