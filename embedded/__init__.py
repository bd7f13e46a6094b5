"""The embedded cluster: one real Kubernetes node in namespaces of its own, its registry and its MLflow server.

Its names are imported when they are first used, so that `embedded.toolchain` starts on a plain Python: it runs before
there is an environment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from embedded.instance import Instance
    from embedded.node import Cluster, cluster_of, down, purge, start_component, status, stop_component, up
    from embedded.startup import NodeError

_HOMES: Final = {
    "Cluster": "node",
    "Instance": "instance",
    "NodeError": "startup",
    "cluster_of": "node",
    "down": "node",
    "purge": "node",
    "start_component": "node",
    "status": "node",
    "stop_component": "node",
    "up": "node",
}

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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
