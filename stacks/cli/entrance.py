"""Where clients reach a gateway on a cluster of one's own: from nodes, the Service and the certificate to one URL.

Pure. Leaves asking to `context_cluster`. One idea: a URL must be one that the certificate is for, so the certificate
chooses between the address that the cluster gives and the name that its owner gave.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from spec import names

Object = Mapping[str, Any]
CLUSTER_NAMES = (f"{names.COMPONENT_GATEWAY}.{names.SYSTEM_NAMESPACE}.svc", "localhost")


def node_addresses(nodes: Iterable[Object]) -> list[str]:
    """Addresses of the nodes that take traffic, those for the world before those inside."""
    ready = [node for node in nodes if _is_ready(node)]
    found: list[str] = []
    for kind in ("ExternalIP", "InternalIP"):
        for node in sorted(ready, key=lambda node: str(node["metadata"]["name"])):
            found += [str(a["address"]) for a in node["status"].get("addresses") or () if a["type"] == kind]
    return list(dict.fromkeys(found))


def _is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def balancer_addresses(service: Object) -> list[str]:
    """What the cloud gave the Service so far: names or addresses."""
    given = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [str(each.get("hostname") or each.get("ip")) for each in given if each.get("hostname") or each.get("ip")]


def certificate_of(secret: Object) -> x509.Certificate | None:
    """The certificate in a TLS Secret; None where what is in it is none."""
    try:
        return x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
    except (KeyError, TypeError, ValueError, binascii.Error):
        return None


def certificate_hosts(certificate: x509.Certificate) -> list[str]:
    """The names and addresses that a certificate is for, as text."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    names_in = found.get_values_for_type(x509.DNSName)
    return [*names_in, *map(str, found.get_values_for_type(x509.IPAddress))]


def public_host(addresses: Sequence[str], hosts: Sequence[str]) -> str | None:
    """The first address that the certificate is for; else the first whole name of the certificate; else an address."""
    covered = [address for address in addresses if any(_is_for(host, address) for host in hosts)]
    named = [host for host in hosts if not host.startswith("*.") and host not in CLUSTER_NAMES and not _numeric(host)]
    return next(iter([*covered, *(named if addresses else []), *addresses]), None)


def _is_for(host: str, address: str) -> bool:
    if host.startswith("*."):
        return not _numeric(address) and address.partition(".")[2].lower() == host[2:].lower()
    return host.lower() == address.lower()


def _numeric(host: str) -> bool:
    return ":" in host or host.replace(".", "").isdigit()


def url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}" if port == 443 else f"https://{shown}:{port}"


def issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
