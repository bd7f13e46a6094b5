"""The embedded cluster: one real Kubernetes node in namespaces of its own, its registry and its MLflow server."""

from __future__ import annotations

from embedded.instance import Instance
from embedded.node import Cluster, cluster_of, down, purge, start_component, status, stop_component, up
from embedded.startup import NodeError

__all__ = [
    "Cluster",
    "Instance",
    "NodeError",
    "cluster_of",
    "down",
    "purge",
    "start_component",
    "status",
    "stop_component",
    "up",
]
