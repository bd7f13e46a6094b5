"""Owns where pods are declared: one walk through every kind that carries a pod's spec.

Leaves judging them to the rules. One idea: a rule on pods can't be escaped by another kind around the pod.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from policies.declared import UNKNOWN, Declared, Field
from spec import names

_TEMPLATE: Final = ("spec", "template", "spec")
_GROUP: Final = "LeaderWorkerSet"
_LEADER: Final = ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec")
_POD_AT: Final[dict[str, tuple[str, ...]]] = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "Deployment": _TEMPLATE,
    "ReplicaSet": _TEMPLATE,
    "ReplicationController": _TEMPLATE,
    "StatefulSet": _TEMPLATE,
    "DaemonSet": _TEMPLATE,
    "Job": _TEMPLATE,
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    _GROUP: ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
    names.KIND: ("spec", "podTemplate", "spec"),
}
SERVING: Final = frozenset(
    {"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", _GROUP, names.KIND}
)


@dataclass(frozen=True)
class PodDeclared:
    """The spec of a pod, the kind that declares it, and that kind's whole object."""

    kind: str
    spec: Field
    owner: Field

    @property
    def serving(self) -> bool:
        """Whether it runs until it is told to end, so that it has to say when it is ready."""
        return self.kind in SERVING

    def staying(self) -> Iterator[Field]:
        """Containers that run as long as the pod: init containers too that go on beside the others, or may do so."""
        for container in self.containers("initContainers"):
            restarts = container.at("restartPolicy")
            if restarts.unknown or restarts.text == "Always":
                yield container
        yield from self.containers("containers")

    def containers(self, *lists: str) -> Iterator[Field]:
        """Containers of the named lists, all of them by default."""
        for name in lists or ("initContainers", "containers", "ephemeralContainers"):
            yield from self.spec.at(name).items()


def pods_of(resource: Declared) -> Iterator[PodDeclared]:
    """Every pod that a resource declares; a `List` is looked into. A kind that isn't known yet may hold one."""
    yield from _pods_in(resource.root, Field("kind", resource.kind))


def _pods_in(obj: Field, kind: Field) -> Iterator[PodDeclared]:
    if kind.unknown:
        yield PodDeclared("", Field(kind.path, UNKNOWN), obj)
    elif kind.text in _POD_AT:
        yield PodDeclared(kind.text, obj.at(*_POD_AT[kind.text]), obj)
        if kind.text == _GROUP and not obj.at(*_LEADER[:-1]).absent:  # without one it has the workers'
            yield PodDeclared(kind.text, obj.at(*_LEADER), obj)
    elif (kind.text or "").endswith("List"):
        for item in obj.at("items").items():
            yield from _pods_in(item, item.at("kind"))
