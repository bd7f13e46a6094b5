"""Owns the place where the platform itself lives: its namespace, and the names of what stands outside the cluster.

Leaves to `crd`, `gateway` and `controllers` what goes into it. One idea: the platform obeys the Pod Security
Standard that it asks of its teams.
"""

from __future__ import annotations

from components.manifests.objects import Manifest, manifest
from components.manifests.team import restricted
from spec import names


def namespace() -> Manifest:
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY} | restricted()
    return manifest("v1", "Namespace", names.SYSTEM_NAMESPACE, labels=labels)


def local_registry(registry: str) -> Manifest:
    """Tells development tools where to push images that this cluster can pull.

    The name, the key and the place are the convention that local clusters share (Kubernetes enhancement 1755).
    """
    return manifest(
        "v1",
        "ConfigMap",
        "local-registry-hosting",
        namespace="kube-public",
        labels={names.LABEL_MANAGED_BY: names.MANAGED_BY},
        data={"localRegistryHosting.v1": f'host: "{registry}"\n'},
    )
