"""What runs a revision: a Deployment, or a LeaderWorkerSet where a replica is a group of pods. Pure.

Owns how the two differ for whoever only counts replicas: where the template is, how many pods one has, which pod is the
one that takes requests. Leaves their making to `rollout`. Its one idea: a replica is its leader, and a pod alone leads.
"""

from collections.abc import Iterable
from typing import Final

from controllers.kube.fields import at, mapping, number
from controllers.kube.resources import DEPLOYMENTS, LEADER_WORKER_SETS, Gvr, Object
from spec import names

KINDS: Final = (DEPLOYMENTS, LEADER_WORKER_SETS)


def gvr_of(workload: Object) -> Gvr:
    return LEADER_WORKER_SETS if workload.get("kind") == LEADER_WORKER_SETS.kind else DEPLOYMENTS


def template_of(workload: Object) -> Object:
    """The pod template; a group's leader has the workers'."""
    if gvr_of(workload) == LEADER_WORKER_SETS:
        return mapping(workload, "spec", "leaderWorkerTemplate", "workerTemplate")
    return mapping(workload, "spec", "template")


def pods_each(workload: Object) -> int:
    """Pods of one replica."""
    return number(workload, "spec", "leaderWorkerTemplate", "size") or 1


def group_of(pod: Object) -> str | None:
    """The number of the pod's group, None for a pod of its own."""
    found = str(at(pod, "metadata", "labels", names.LABEL_GROUP_INDEX))
    return found if found.isdecimal() else None


def leads(pod: Object) -> bool:
    return at(pod, "metadata", "labels", names.LABEL_WORKER_INDEX) in (None, names.LEADER_INDEX)


def groups(pods: Iterable[Object]) -> dict[str, list[Object]]:
    """By number; pods of their own are in none."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        if (group := group_of(pod)) is not None:
            found.setdefault(group, []).append(pod)
    return found
