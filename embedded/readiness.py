"""Owns the questions that tell whether a cluster works, asked from the host: node Ready, DNS answers.

Also applies the few role bindings without which it can't. Leaves to `node` how long to wait.
"""

from __future__ import annotations

import datetime
import http.client
import json
import secrets
import socket
import ssl
import struct
from typing import Any, Final

from embedded import monitoring
from embedded.configs import CLUSTER_DOMAIN
from embedded.instance import Instance

TIMEOUT_S: Final = 5.0
DNS_TIMEOUT_S: Final = 1.0
FIELD_MANAGER: Final = "knobless-embedded"
RBAC: Final = "rbac.authorization.k8s.io"


class Api:
    """The API server as the cluster's administrator; no proxy of the user's is asked."""

    def __init__(self, instance: Instance) -> None:
        self._host, self._port = str(instance.node_address), 6443
        self._context = ssl.create_default_context(cafile=f"{instance.pki}/ca.crt")
        self._context.load_cert_chain(f"{instance.pki}/admin.crt", f"{instance.pki}/admin.key")

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and decoded answer. Raises OSError where there is none."""
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=self._context)
        try:
            kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
            connection.request(method, path, body and json.dumps(body), {"Content-Type": kind})
            response = connection.getresponse()
            data = response.read()
        except http.client.HTTPException as error:
            raise OSError(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(data) if is_json else data.decode()

    def apply(self, path: str, value: Any) -> None:
        """Server-side apply: creates, corrects, or changes nothing."""
        status, answer = self.request("PATCH", f"{path}?fieldManager={FIELD_MANAGER}&force=true", value)
        if status not in (http.HTTPStatus.OK, http.HTTPStatus.CREATED):
            raise OSError(f"apply {path}: {status} {answer}")


def bindings() -> tuple[tuple[str, dict[str, Any]], ...]:
    """Path and object of what the node's own clients may do beyond Kubernetes' defaults."""
    reads = ["list", "watch"]
    dns_rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": reads},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": reads},
    ]
    prometheus_rules = [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {
            "apiGroups": [""],
            "resources": ["services/proxy"],
            "resourceNames": [monitoring.CONTROLLERS],
            "verbs": ["get"],
        },
    ]
    return (
        _cluster_role("knobless:coredns", dns_rules),
        _cluster_role_binding("knobless:coredns", "knobless:coredns", "knobless:coredns"),
        _cluster_role(monitoring.USER, prometheus_rules),
        _cluster_role_binding(monitoring.USER, monitoring.USER, monitoring.USER),
        _cluster_role_binding("knobless:kubelet-client", "system:kubelet-api-admin", "kube-apiserver-kubelet-client"),
    )


def _cluster_role(name: str, rules: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    return f"/apis/{RBAC}/v1/clusterroles/{name}", role


def _cluster_role_binding(name: str, role: str, user: str) -> tuple[str, dict[str, Any]]:
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }
    return f"/apis/{RBAC}/v1/clusterrolebindings/{name}", binding


def apply_bindings(instance: Instance) -> None:
    api = Api(instance)
    for path, value in bindings():
        api.apply(path, value)


def node_problem(instance: Instance) -> str | None:
    """Why the node can't take a pod now, or None where it can. What was said before this start does not count."""
    try:
        api = Api(instance)
        status, node = api.request("GET", f"/api/v1/nodes/{instance.node_name}")
        account, _ = api.request("GET", "/api/v1/namespaces/default/serviceaccounts/default")
    except OSError as error:
        return f"the API server does not answer: {error}"
    if status != http.HTTPStatus.OK:
        return f"the kubelet has not registered its node ({status})"
    if account != http.HTTPStatus.OK:
        return "the controller manager has not made the default service account"
    started_s = int(instance.specification.stat().st_mtime)
    return condition_problem(node, datetime.datetime.fromtimestamp(started_s, datetime.UTC))


def condition_problem(node: dict[str, Any], started: datetime.datetime) -> str | None:
    """From the node object: Ready must be True, said since the start, and no taint may keep pods away."""
    conditions = {condition["type"]: condition for condition in node["status"].get("conditions", ())}
    ready = conditions.get("Ready", {"status": "missing"})
    if "lastHeartbeatTime" in ready and datetime.datetime.fromisoformat(ready["lastHeartbeatTime"]) < started:
        return "the kubelet has not reported since the start"
    if ready["status"] != "True":
        return f"the node is not Ready: {ready.get('message', ready['status'])}"
    taints = [taint["key"] for taint in node["spec"].get("taints", ()) if taint["effect"] != "PreferNoSchedule"]
    return f"the node is tainted: {', '.join(taints)}" if taints else None


def dns_query(name: str, number: int) -> bytes:
    """An A question as RFC 1035 writes it, with recursion desired."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", 1, 1)


def dns_answer_problem(answer: bytes, number: int) -> str | None:
    if len(answer) < 12:
        return "DNS sent a truncated answer"
    got, flags, _, answers, _, _ = struct.unpack("!6H", answer[:12])
    if got != number:
        return "DNS answered another question"
    code = flags & 0xF
    return None if code == 0 and answers > 0 else f"DNS answered with code {code} and {answers} addresses"


def dns_problem(instance: Instance) -> str | None:
    """Why `kubernetes.default` can't be resolved now, or None where it can."""
    number = secrets.randbelow(0x10000)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(DNS_TIMEOUT_S)
        try:
            connection.connect((str(instance.node_address), 53))
            connection.send(dns_query(f"kubernetes.default.svc.{CLUSTER_DOMAIN}", number))
            return dns_answer_problem(connection.recv(512), number)
        except OSError as error:
            return f"DNS does not answer: {error}"
