"""Replicas follow the load, each step with its reason; Pulumi fights nobody; a range changes without a restart."""

from __future__ import annotations

import pytest

from spec import names
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import DOWN_WINDOW_S, Suite

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def desired(suite: Suite, endpoint: str) -> int:
    return int(suite.status(endpoint).get("autoscaler", {}).get("desiredReplicas") or 0)


def kubectl_line(suite: Suite, endpoint: str) -> list[str]:
    return suite.kubectl("get", "mep", "-n", names.team_namespace("alpha"), endpoint, "--no-headers").out.split()


def test_replicas_rise_within_30_s_of_a_load_and_fall_after_the_down_window_and_each_step_has_a_reason(
    suite: Suite,
) -> None:
    suite.declare("scaled", concurrency={"min": 1, "max": 400}, resources={"cpu": "200m", "memory": "600Mi"})
    suite.up("scaled")
    with suite.load("scaled", clients=120, sleep_s=0.02) as tally:
        wait_until(lambda: desired(suite, "scaled") >= 2, 30, "more replicas under load")
        wait_until(lambda: (suite.status("scaled")["autoscaler"].get("readyReplicas") or 0) >= 2, 60, "ready replicas")
        said = suite.up("scaled")
        assert "suite.alpha.scaled: no change" in said.text
        assert desired(suite, "scaled") >= 2
        assert tally.total > 0
    most = desired(suite, "scaled")
    wait_until(lambda: desired(suite, "scaled") == 1, DOWN_WINDOW_S + 90, "one replica again after the load")
    decisions = suite.status("scaled")["autoscaler"]["decisions"]
    assert {decision["reason"] for decision in decisions} and all(each["reason"] for each in decisions)
    assert any(each["to"] > each["from"] for each in decisions) and any(each["to"] < each["from"] for each in decisions)
    assert most >= 2 and len(decisions) <= 10
    line = ["scaled", "1", "1", "1"]
    wait_until(lambda: kubectl_line(suite, "scaled")[:4] == line, 60, f"kubectl says {line}")
    target = suite.status("scaled")["autoscaler"]["targetConcurrency"]  # the load may have taught another one
    wait_until(lambda: kubectl_line(suite, "scaled")[4] == f"{target:g}", 30, f"kubectl says {target:g}")


def test_no_manager_but_the_autoscaler_owns_replicas(suite: Suite) -> None:
    suite.declare("owned")
    suite.up("owned")
    deployments = suite.deployments("owned")
    assert deployments
    for deployment in deployments:
        owners = {
            field["manager"]
            for field in deployment["metadata"]["managedFields"]
            if "f:replicas" in field.get("fieldsV1", {}).get("f:spec", {})
        }
        # The second is the API server's own name for what stood before anybody applied: nobody writes under it.
        assert owners - {"before-first-apply"} == {names.MANAGER_AUTOSCALER}


def test_a_changed_maximum_takes_effect_with_the_same_pods(suite: Suite) -> None:
    suite.declare("ranged", concurrency={"min": 1, "max": 64})
    suite.up("ranged")
    before = {pod["metadata"]["uid"] for pod in suite.pods("ranged")}
    revision = suite.status("ranged")["trafficRevision"]
    suite.declare("ranged", concurrency={"min": 1, "max": 8})
    said = suite.up("ranged")
    assert "no pod of a model restarts" in said.text
    wait_until(lambda: suite.status("ranged")["gateway"]["limits"].get(revision) == 8, 15, "the limit at the gateway")
    assert {pod["metadata"]["uid"] for pod in suite.pods("ranged")} == before
