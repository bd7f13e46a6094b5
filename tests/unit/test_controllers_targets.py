"""Pods -> what Prometheus is to read: addresses that answer /metrics, named by pod."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.targets import targets_of


def pod(component: str, ports: dict[str, int], ip: str | None = "198.18.0.9", phase: str = "Running") -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": component}
    if component == "model":
        labels |= {"knobless.dev/endpoint": "wine", "knobless.dev/revision": "wine-1234abcd"}
    listed = [{"name": name, "containerPort": number} for name, number in ports.items()]
    return {
        "metadata": {"namespace": "team-alpha", "name": "wine-x", "labels": labels},
        "spec": {"containers": [{"name": "server", "ports": listed}]},
        "status": {"phase": phase, "podIP": ip},
    }


def test_a_models_pod_is_read_at_its_one_port_and_named_as_the_kubelet_names_it() -> None:
    assert targets_of([pod("model", {"http": 8080})]) == [
        {
            "targets": ["198.18.0.9:8080"],
            "labels": {
                "component": "model",
                "endpoint": "wine",
                "revision": "wine-1234abcd",
                "namespace": "team-alpha",
                "pod": "wine-x",
            },
        }
    ]


def test_the_gateways_own_traffic_is_no_target_and_haproxy_tells_its_front_ends_only() -> None:
    ports = {"https": 8443, "stats": 8404, "metrics": 8405, "control": 8406}
    found = {group["targets"][0]: group["labels"].get("__param_scope") for group in targets_of([pod("gateway", ports)])}
    assert found == {"198.18.0.9:8405": "frontend", "198.18.0.9:8406": None}


@pytest.mark.parametrize(
    "other",
    [
        pod("model", {"http": 8080}, ip=None),
        pod("model", {"http": 8080}, phase="Pending"),
        pod("model", {"http": 8080}, phase="Failed"),
        pod("model", {}),
        pod("stranger", {"http": 8080}),
    ],
)
def test_what_does_not_answer_is_no_target(other: dict[str, Any]) -> None:
    assert targets_of([other]) == []


def test_the_order_of_the_pods_does_not_matter() -> None:
    pods = [pod("model", {"http": 8080}, ip=f"198.18.0.{n}") for n in range(3)]
    assert targets_of(pods) == targets_of(reversed(pods))


def test_an_address_of_the_sixth_version_gets_brackets() -> None:
    assert targets_of([pod("model", {"http": 8080}, ip="fd00::1")])[0]["targets"] == ["[fd00::1]:8080"]
