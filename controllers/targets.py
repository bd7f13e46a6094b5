"""Which pods Prometheus is to read, in the form of its HTTP service discovery. Pure.

Its one idea: the controllers know every pod of ours already, so a Prometheus anywhere needs one address and no rights
in the cluster.
"""

from collections.abc import Iterable
from typing import Any, Final

from controllers.kube.fields import at, items, mapping
from controllers.kube.resources import Object
from spec import names

# Component -> the names of its ports that answer /metrics, with what is asked there beside the path.
_PORTS: Final[dict[str, dict[str, dict[str, str]]]] = {
    names.COMPONENT_MODEL: {"http": {}},
    # HAProxy's own numbers; those of each back end and server are thousands.
    names.COMPONENT_GATEWAY: {"metrics": {"__param_scope": "frontend"}, "control": {}},
}
_LABELS: Final = {
    "component": names.LABEL_COMPONENT,
    "endpoint": names.LABEL_ENDPOINT,
    "revision": names.LABEL_REVISION,
}


def targets_of(pods: Iterable[Object]) -> list[dict[str, Any]]:
    """Target groups of the pods that have an address, in the order of the addresses."""
    groups = [group for pod in pods if at(pod, "status", "phase") == "Running" for group in _groups(pod)]
    return sorted(groups, key=lambda group: str(group["targets"]))


def _groups(pod: Object) -> Iterable[dict[str, Any]]:
    address, said = at(pod, "status", "podIP"), mapping(pod, "metadata", "labels")
    wanted = _PORTS.get(str(said.get(names.LABEL_COMPONENT)), {})
    labels = {label: str(said[key]) for label, key in _LABELS.items() if key in said} | {
        "namespace": str(pod["metadata"]["namespace"]),
        "pod": str(pod["metadata"]["name"]),
    }
    for container in items(pod, "spec", "containers"):
        for port in items(container, "ports"):
            if address and port.get("name") in wanted:
                host = f"[{address}]" if ":" in address else address
                targets = [f"{host}:{port['containerPort']}"]
                yield {"targets": targets, "labels": labels | wanted[port["name"]]}
