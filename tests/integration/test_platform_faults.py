"""Under load, with each part of the platform failing in turn: no failed request."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest

from spec import names
from tests.platform_lab.command import wait_until
from tests.platform_lab.load import Tally
from tests.platform_lab.suite import Suite

pytestmark = [pytest.mark.cluster, pytest.mark.destructive, pytest.mark.timeout(600)]
SETTLE_S = 8.0
ENOUGH = 100


@pytest.fixture
def two_replicas(suite: Suite) -> Suite:
    """An endpoint whose floor is two replicas."""
    suite.declare("steady", concurrency={"min": 60, "max": 200})
    suite.up("steady")
    wait_until(lambda: suite.status("steady")["autoscaler"]["readyReplicas"] >= 2, 60, "two replicas")
    return suite


@pytest.fixture
def under_load(two_replicas: Suite) -> Iterator[Tally]:
    with two_replicas.load("steady", clients=6, sleep_s=0.02, pause_s=0.02) as tally:
        wait_until(lambda: tally.total > 20, 20, "load")
        before = tally.total
        yield tally
        time.sleep(SETTLE_S)
    assert tally.total > before + ENOUGH, "requests were answered while the part was gone and after it"
    assert not tally.failed, (tally.failed, tally.failures)


def kill_container(suite: Suite, component: str, container: str, number: int = signal.SIGKILL) -> None:
    """Signal a container's first process, from the node, as the kernel or a person would."""
    pod = next(p for p in suite.system_pods(component) if p["status"].get("phase") == "Running")
    status = next(each for each in pod["status"]["containerStatuses"] if each["name"] == container)
    suite.signal_container(str(status["containerID"]).rpartition("//")[2], number)


def restarts(suite: Suite, component: str, container: str) -> int:
    return sum(
        each["restartCount"]
        for pod in suite.system_pods(component)
        for each in pod["status"].get("containerStatuses") or []
        if each["name"] == container
    )


def test_the_controllers_killed(two_replicas: Suite, under_load: Tally) -> None:
    before = restarts(two_replicas, names.COMPONENT_CONTROLLERS, "controllers")
    kill_container(two_replicas, names.COMPONENT_CONTROLLERS, "controllers")
    wait_until(
        lambda: restarts(two_replicas, names.COMPONENT_CONTROLLERS, "controllers") > before, 60, "they run again"
    )


def test_the_gateways_control_plane_killed(two_replicas: Suite, under_load: Tally) -> None:
    before = restarts(two_replicas, names.COMPONENT_GATEWAY, "control")
    kill_container(two_replicas, names.COMPONENT_GATEWAY, "control")
    wait_until(lambda: restarts(two_replicas, names.COMPONENT_GATEWAY, "control") > before, 60, "it runs again")


def test_haproxy_reloaded(two_replicas: Suite, under_load: Tally) -> None:
    kill_container(two_replicas, names.COMPONENT_GATEWAY, "haproxy", signal.SIGUSR2)
    time.sleep(SETTLE_S)
    assert under_load.total > 100


def test_a_pod_deleted(two_replicas: Suite, under_load: Tally) -> None:
    pod = two_replicas.pods("steady")[0]["metadata"]
    said = two_replicas.kubectl("delete", "pod", "-n", pod["namespace"], pod["name"], "--wait=true", "--timeout=100s")
    assert said.code == 0, said.text


def test_the_api_server_stopped_for_20_s(two_replicas: Suite, under_load: Tally) -> None:
    before = under_load.total
    two_replicas.hold_api_server(20)
    assert under_load.total > before + 100
    wait_until(lambda: two_replicas.condition("steady", "Ready").get("status") == "True", 60, "Ready")
