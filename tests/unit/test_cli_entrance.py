"""The gateway's URL on a cluster of one's own: an address of the cluster, or the name that the certificate is for."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from stacks.cli import entrance, tls

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def node(name: str, *addresses: tuple[str, str], ready: str = "True") -> dict[str, Any]:
    status = {
        "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
        "addresses": [{"type": kind, "address": address} for kind, address in addresses],
    }
    return {"metadata": {"name": name}, "status": status}


def test_nodes_are_reached_from_the_world_before_from_inside_and_in_a_fixed_order() -> None:
    nodes = [
        node("b", ("Hostname", "b"), ("InternalIP", "10.0.0.2"), ("ExternalIP", "5.6.7.8")),
        node("a", ("InternalIP", "10.0.0.1")),
    ]
    assert entrance.node_addresses(nodes) == ["5.6.7.8", "10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_takes_no_traffic_has_no_address(ready: str) -> None:
    assert entrance.node_addresses([node("a", ("InternalIP", "10.0.0.1"), ready=ready)]) == []
    assert entrance.node_addresses([{"metadata": {"name": "new"}}]) == []


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, []),
        ({"status": {"loadBalancer": {}}}, []),
        ({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}}, ["1.2.3.4"]),
        ({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.cloud", "ip": "1.2.3.4"}]}}}, ["lb.cloud"]),
        ({"status": {"loadBalancer": {"ingress": [{"ports": []}]}}}, []),
    ],
)
def test_a_load_balancer_is_where_its_cloud_says(status: dict[str, Any], expected: list[str]) -> None:
    assert entrance.balancer_addresses(status) == expected


@pytest.mark.parametrize(
    ("addresses", "hosts", "expected"),
    [
        (["10.0.0.1"], ["10.0.0.1", "localhost"], "10.0.0.1"),
        (["10.0.0.1", "10.0.0.2"], ["10.0.0.2"], "10.0.0.2"),
        (["lb.cloud"], ["LB.cloud"], "lb.cloud"),
        (["lb.eu.cloud"], ["*.eu.cloud"], "lb.eu.cloud"),
        (["a.lb.eu.cloud"], ["*.eu.cloud", "models.example"], "models.example"),
        (["1.2.3.4"], ["*.2.3.4", "models.example"], "models.example"),
        (
            ["1.2.3.4"],
            ["localhost", "gateway.knobless-system.svc", "5.6.7.8", "::1", "models.example"],
            "models.example",
        ),
        (["1.2.3.4"], ["*.example"], "1.2.3.4"),
        (["1.2.3.4"], [], "1.2.3.4"),
        ([], ["models.example"], None),
        ([], [], None),
    ],
)
def test_the_host_is_one_that_the_certificate_is_for(
    addresses: list[str], hosts: list[str], expected: str | None
) -> None:
    assert entrance.public_host(addresses, hosts) == expected


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ("10.0.0.1", 30443, "https://10.0.0.1:30443"),
        ("models.example", 443, "https://models.example"),
        ("fd00::1", 8443, "https://[fd00::1]:8443"),
        ("fd00::1", 443, "https://[fd00::1]"),
    ],
)
def test_a_url_has_its_port_where_it_is_not_the_usual_one(host: str, port: int, expected: str) -> None:
    assert entrance.url(host, port) == expected


def test_a_certificate_says_whom_it_is_for_and_whose_it_is(tmp_path: Path) -> None:
    mine, other = tls.authority(tmp_path / "a", NOW), tls.authority(tmp_path / "b", NOW)
    pem, _ = tls.issue(mine, ["models.example", "10.0.0.1", "fd00::1"], NOW)
    found = entrance.certificate_of({"data": {"tls.crt": base64.b64encode(pem).decode()}})
    assert found is not None
    assert entrance.certificate_hosts(found) == ["models.example", "10.0.0.1", "fd00::1"]
    assert entrance.issued_by(found, mine.certificate)
    assert not entrance.issued_by(found, other.certificate)
    assert entrance.certificate_hosts(mine.certificate) == []


@pytest.mark.parametrize("secret", [{}, {"data": None}, {"data": {"tls.crt": "!"}}, {"data": {"tls.crt": "aGVsbG8="}}])
def test_what_is_no_certificate_is_none(secret: dict[str, Any]) -> None:
    assert entrance.certificate_of(secret) is None
