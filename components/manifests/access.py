"""Owns how a right is written: rules, roles, and who holds them.

Leaves to `gateway` and `controllers` which rights those are. One idea: a right names its group, its kinds and its
verbs, and there is no word here for "all".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.manifests.objects import Manifest, manifest

RBAC = "rbac.authorization.k8s.io"


def right(group: str, resources: str, verbs: str, *, only: Sequence[str] = ()) -> Manifest:
    """`resources` and `verbs` are words apart by spaces; `only` names the objects that it reaches."""
    reach: Manifest = {"resourceNames": list(only)} if only else {}
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **reach}


def cluster_role(name: str, labels: Mapping[str, str], rules: Sequence[Manifest]) -> Manifest:
    return manifest(f"{RBAC}/v1", "ClusterRole", name, labels=labels, rules=list(rules))


def role(name: str, namespace: str, labels: Mapping[str, str], rules: Sequence[Manifest]) -> Manifest:
    return manifest(f"{RBAC}/v1", "Role", name, namespace=namespace, labels=labels, rules=list(rules))


def granted_everywhere(role_name: str, account: Manifest) -> Manifest:
    """Binds a ClusterRole to a ServiceAccount for all namespaces."""
    return manifest(
        f"{RBAC}/v1",
        "ClusterRoleBinding",
        role_name,
        labels=account["metadata"]["labels"],
        roleRef=_reference("ClusterRole", role_name),
        subjects=[_subject(account)],
    )


def granted_in(namespace: str, kind: str, role_name: str, account: Manifest, labels: Mapping[str, str]) -> Manifest:
    """Binds a Role or ClusterRole (`kind`) to a ServiceAccount inside one namespace."""
    return manifest(
        f"{RBAC}/v1",
        "RoleBinding",
        role_name,
        namespace=namespace,
        labels=labels,
        roleRef=_reference(kind, role_name),
        subjects=[_subject(account)],
    )


def _reference(kind: str, name: str) -> Manifest:
    return {"apiGroup": RBAC, "kind": kind, "name": name}


def _subject(account: Manifest) -> Manifest:
    metadata = account["metadata"]
    return {"kind": "ServiceAccount", "name": metadata["name"], "namespace": metadata["namespace"]}
