"""What the platform's own Prometheus tells of a model's pod, and what goes on without it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import embedded
from controllers.autoscaler.prometheus import ask_prometheus, read
from controllers.autoscaler.signals import signals_of
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from spec import names
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import Suite

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

NAMESPACE = names.team_namespace("alpha")
# A minute's window, in which the pod's own start is still seen.
KNOWN_BOUND_S = 90


def signals_now(suite: Suite, pod: str) -> Signals:
    return signals_of(read(ask_prometheus(suite.instance.prometheus))).get((NAMESPACE, pod), UNKNOWN)


def the_pod(suite: Suite, endpoint: str) -> str:
    (pod,) = suite.pods(endpoint)
    return str(pod["metadata"]["name"])


def controllers_metric(suite: Suite, name: str) -> Callable[[], float]:
    def value() -> float:
        """Asked of the process itself, so that it answers while Prometheus is gone."""
        (pod,) = suite.system_pods(names.COMPONENT_CONTROLLERS)
        path = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/pods/{pod['metadata']['name']}:8407/proxy/metrics"
        lines = suite.kubectl("get", "--raw", path).out.splitlines()
        return float(next(line.split()[-1] for line in lines if line.startswith(name)))

    return value


def test_a_pods_cpu_is_read_as_a_share_of_its_quota_and_so_are_memory_latency_and_self_test(suite: Suite) -> None:
    suite.declare("burning", concurrency={"min": 1, "max": 8}, resources={"cpu": "300m", "memory": "700Mi"})
    suite.up("burning")
    pod = the_pod(suite, "burning")
    (idle,) = wait_until(lambda: _idle(signals_now(suite, pod)), KNOWN_BOUND_S, "signals of an idle pod")
    assert idle.memory is not None and 0.05 < idle.memory < 1
    assert idle.self_test_ms is not None and idle.self_test_ms > 0
    assert idle.io_wait is not None
    assert (idle.p95_ms, idle.gpu_utilization, idle.kv_cache) == (None, None, None)
    with suite.load("burning", clients=4, sleep_s=0.0):
        (busy,) = wait_until(lambda: _busy(signals_now(suite, pod)), KNOWN_BOUND_S, "a pod at its quota")
    assert busy.cpu is not None and busy.cpu < 1.3
    assert busy.p95_ms is not None and 1 < busy.p95_ms < 5000
    assert busy.cpu_pressure is not None and busy.cpu_pressure > 0.1


def test_the_controllers_know_their_prometheus_and_tell_when_it_is_gone(suite: Suite) -> None:
    up = controllers_metric(suite, "knobless_autoscaler_prometheus_up")
    wait_until(lambda: up() == 1, 60, "the controllers hear Prometheus")
    embedded.stop_component(suite.instance, "prometheus")
    try:
        wait_until(lambda: up() == 0, 60, "the controllers say that it is gone")
        suite.declare("unsignalled")
        suite.up("unsignalled")
        wait_until(lambda: suite.condition("unsignalled", "Scaled")["status"] == "True", 30, "decisions without it")
    finally:
        embedded.start_component(suite.instance, "prometheus")
    wait_until(lambda: up() == 1, 60, "the controllers hear it again")


def test_every_part_that_tells_numbers_is_read(suite: Suite) -> None:
    suite.declare("read")
    suite.up("read")
    ask = ask_prometheus(suite.instance.prometheus)
    wanted = {"node", "kubelet", "controllers", names.COMPONENT_MODEL, names.COMPONENT_GATEWAY}

    def read_now() -> set[str]:
        """A job is read where all its targets are, a component where one is: a pod may be about to leave."""
        whole = {series["metric"]["job"] for series in ask("min by (job) (up) == 1") or ()}
        parts = {series["metric"].get("component", "") for series in ask("group by (component) (up == 1)") or ()}
        return wanted & (whole | parts)

    wait_until(lambda: read_now() == wanted, 60, "all parts are read")
    metrics = "haproxy_frontend_status", "knobless_gateway_endpoints", "knobless_autoscaler_demand"
    wait_until(lambda: all(ask(metric) for metric in metrics), 30, "the gateway's and the controllers' numbers")


def _idle(signals: Signals) -> list[Signals]:
    known = None not in (signals.memory, signals.self_test_ms, signals.io_wait)
    return [signals] if known and signals.cpu is not None and signals.cpu < 0.3 else []


def _busy(signals: Signals) -> list[Signals]:
    return [signals] if signals.cpu is not None and signals.cpu > 0.7 and signals.p95_ms is not None else []
