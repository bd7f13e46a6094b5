"""Owns how a permitted connection is written: who may come in, who may be reached, on which ports.

Leaves to the other modules which connections there are. One idea: a NetworkPolicy is a list of peers with ports;
what no list names is closed. (The embedded cluster's bridge stores these objects and does not enforce them.)
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from components.manifests.objects import Manifest, manifest
from spec import names

DNS_PORT = 53


def ports(*numbers: int, protocols: Sequence[str] = ("TCP",)) -> list[Manifest]:
    return [{"protocol": protocol, "port": number} for number in numbers for protocol in protocols]


def system_pods(component: str) -> Manifest:
    """The platform's own pods of one component, seen from any namespace."""
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": names.SYSTEM_NAMESPACE}},
        "podSelector": {"matchLabels": {names.LABEL_COMPONENT: component}},
    }


def to_dns() -> Manifest:
    """Name resolution, wherever the cluster keeps it: in a pod, on the node, or behind a link-local address."""
    return {"ports": ports(DNS_PORT, protocols=("UDP", "TCP"))}


def to_url(url: str) -> Manifest:
    """The one port of an address; the one host too where the address is numeric.

    A NetworkPolicy can't say a name, so a host that has one is opened by its port alone.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    opened: Manifest = {"ports": ports(port)}
    try:
        address = ipaddress.ip_address(parts.hostname or "")
    except ValueError:
        return opened
    return {"to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}], **opened}


def network_policy(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    selector: Mapping[str, str],
    *,
    ingress: Sequence[Manifest],
    egress: Sequence[Manifest] | None = None,
) -> Manifest:
    """What may reach the selected pods and, unless `egress` is None, what they may reach."""
    spec: Manifest = {
        "podSelector": {"matchLabels": dict(selector)},
        "policyTypes": ["Ingress"],
        "ingress": list(ingress),
    }
    if egress is not None:
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": list(egress)}
    return manifest("networking.k8s.io/v1", "NetworkPolicy", name, namespace=namespace, labels=labels, spec=spec)
