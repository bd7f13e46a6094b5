"""A new version, a new limit and a revert under load: no failed request, traffic moves only to what is ready."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import HOLD_S, Suite

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


# A replaced revision is drained once the longest request that it may have is over: ten seconds here.
FIELDS: dict[str, Any] = {"concurrency": {"min": 1, "max": 64}, "deadline_s": 10}


def phases(suite: Suite, endpoint: str) -> dict[str, str]:
    return {each["name"]: each["phase"] for each in suite.status(endpoint).get("revisions") or []}


def test_a_version_a_limit_and_a_revert_under_load_fail_no_request(suite: Suite) -> None:
    suite.declare("rolled", model="models:/sleeper/1", **FIELDS)
    suite.up("rolled")
    first = suite.status("rolled")["trafficRevision"]
    with suite.load("rolled", clients=6, sleep_s=0.03, pause_s=0.02) as tally:
        suite.declare("rolled", model="models:/sleeper/2", **FIELDS)
        said = suite.up("rolled")
        assert "new revision" in said.text
        second = suite.status("rolled")["trafficRevision"]
        assert second != first and suite.status("rolled")["modelVersion"] == "2"
        wait_until(lambda: phases(suite, "rolled").get(first) == "Held", 60, "the old revision is held")

        started_s = time.monotonic()
        suite.declare("rolled", model="models:/sleeper/1", **FIELDS)
        uids = {pod["metadata"]["uid"] for pod in suite.pods("rolled")}
        suite.up("rolled")
        assert suite.status("rolled")["trafficRevision"] == first
        assert {pod["metadata"]["uid"] for pod in suite.pods("rolled")} <= uids, "a revert starts no pod"
        took_s = time.monotonic() - started_s

        suite.declare("rolled", **FIELDS, resources={"cpu": "600m", "memory": "1Gi"})
        suite.up("rolled")
        third = suite.status("rolled")["trafficRevision"]
        assert third not in (first, second)
    assert not tally.failed, (tally.failed, tally.failures)
    assert tally.total > 200
    print(f"the revert took {took_s:.1f} s, `up` included; {tally.total} requests")
    wait_until(lambda: set(phases(suite, "rolled")) == {third}, HOLD_S + 90, "replaced revisions are removed")
    assert {deployment["metadata"]["name"] for deployment in suite.deployments("rolled")} == {third}
