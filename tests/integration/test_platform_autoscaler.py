"""The autoscaler on the running platform: a person's hold, the explanation, the records, and its death in mid-step."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from spec import names
from tests.integration.test_platform_faults import kill_container, restarts
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import Suite

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def asked(suite: Suite, endpoint: str) -> int:
    return int(suite.status(endpoint).get("autoscaler", {}).get("desiredReplicas") or 0)


@pytest.fixture(scope="module")
def held(suite: Suite) -> Suite:
    suite.declare("held", concurrency={"min": 1, "max": 400}, resources={"cpu": "100m", "memory": "600Mi"})
    suite.up("held")
    return suite


def test_a_person_sets_replicas_for_a_while_an_up_is_no_change_and_a_resume_ends_it(held: Suite) -> None:
    said = held.must("scale", "held", "--replicas", "2", "--for", "10m")
    assert "held gets 2 replicas until" in said.out
    wait_until(lambda: asked(held, "held") == 2, 15, "two replicas")
    wait_until(lambda: held.condition("held", "Overridden").get("status") == "True", 15, "the condition")
    assert "suite.alpha.held: no change" in held.up("held").text
    assert asked(held, "held") == 2
    text = held.must("explain", "held").out
    assert "2 asked for (Overridden)" in text and "a person asked for 2 replicas until" in text
    held.must("resume", "held")
    wait_until(lambda: held.condition("held", "Overridden") == {}, 15, "the end of the hold")
    assert "held by nobody" in held.must("explain", "held").out.lower()


def test_the_explanation_is_json_too_and_one_of_nobody_is_not_found(held: Suite) -> None:
    plain = json.loads(held.must("explain", "held", "--json").out)
    assert (plain["endpoint"], plain["range_replicas"]) == ("held", [1, 8])
    assert held.knobless("explain", "nobody").code == 6


def test_the_records_of_an_endpoint_are_read_and_decide_the_same_again(held: Suite, tmp_path: Path) -> None:
    lines = held.must("explain", "held", "--records").out.splitlines()
    kinds = {json.loads(line)["kind"] for line in lines}
    assert "change" in kinds
    assert held.must("explain", "held", "--records", "--last", "1").out.splitlines() == lines[-1:]
    path = tmp_path / "records.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert held.must("replay", str(path)).out == f"{len(lines)} records decide the same\n"


@pytest.mark.case("autoscaler-G1")
def test_the_autoscaler_killed_in_mid_step_goes_on_where_it_was(held: Suite) -> None:
    before = restarts(held, names.COMPONENT_CONTROLLERS, "controllers")
    with held.load("held", clients=120, sleep_s=0.02) as tally:
        wait_until(lambda: asked(held, "held") >= 2, 40, "the first step")
        step = asked(held, "held")
        kill_container(held, names.COMPONENT_CONTROLLERS, "controllers", signal.SIGKILL)
        wait_until(lambda: restarts(held, names.COMPONENT_CONTROLLERS, "controllers") > before, 60, "it runs again")
        assert "suite.alpha.held: no change" in held.up("held").text
        assert asked(held, "held") >= step, "nothing is lowered"
        wait_until(lambda: (held.status("held")["autoscaler"].get("readyReplicas") or 0) >= 2, 90, "ready replicas")
        assert tally.total > 0
    shards = held.kubectl("get", "configmap", "-n", names.SYSTEM_NAMESPACE, names.checkpoint_object(0), "-o", "json")
    assert "team-alpha.held" in json.loads(shards.out)["data"]
