"""Why a revision's pods don't start, read from their statuses. Pure.

Owns the translation of the kubelet's and the scheduler's words into our four reasons, and from when on each is a
failure: a pull may fail once, nodes may be on their way. Leaves to `core` what a failure leads to.

A group begins anew with the first crash of any of its pods, so none of them ever crashes twice. What tells a second
crash there is that the pod was made at another time than its group was asked for; those that are on their way out are
asked too, for the crash is theirs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from controllers.kube.fields import at, condition, items, number, seconds
from controllers.kube.resources import Object
from controllers.workloads import groups, leads, pods_each

UNSCHEDULABLE = "Unschedulable"
PODS_MISSING = "PodsMissing"
PULL_GRACE_S = 30.0
PODS_GRACE_S = 30.0
MESSAGE_MAX = 500
_FIRST_MADE_S = 10.0  # from when a group is asked for

_PULL = {"ErrImagePull", "ImagePullBackOff"}
_PULL_AT_ONCE = {"InvalidImageName", "ErrImageNeverPull"}
_CONFIG = {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}


@dataclass(frozen=True)
class Problem:
    """`reason` is a word for a condition; it is a failure once `fatal_at_s` (epoch) is reached."""

    reason: str
    message: str
    fatal_at_s: float


def worst_problem(pods: Iterable[Object], workload: Object, patience_s: float) -> Problem | None:
    """The problem that is a failure first. `patience_s`: how long room in the cluster may be awaited."""
    pods = list(pods)
    problems = [*_of_deployment(workload, PULL_GRACE_S)]
    if pods_each(workload) > 1:
        problems += _of_groups(pods, workload, patience_s)
    for pod in pods:
        if at(pod, "metadata", "deletionTimestamp") is None:
            problems += _of_pod(pod, patience_s)
    return min(problems, key=lambda problem: (problem.fatal_at_s, problem.reason), default=None)


def _of_groups(pods: list[Object], workload: Object, patience_s: float) -> Iterator[Problem]:
    """What no pod of its own tells: that others of its group were not made, and that it crashed and is gone for it."""
    asked_s, size = _asked_s(workload), pods_each(workload)
    if not pods:
        yield Problem(PODS_MISSING, _NONE_MADE, max(asked_s) + patience_s)
    led = [group for group in groups(pods).values() if any(map(leads, group))]  # others are what is left of a replica
    for group in led:
        leader = next((pod for pod in group if leads(pod) and at(pod, "metadata", "deletionTimestamp") is None), None)
        if leader is not None and len(group) < size:
            few = f"{len(group)} of {size} pods of {at(leader, 'metadata', 'name')} were made so far: {_REFUSED}"
            yield Problem(PODS_MISSING, few, _made_s(leader) + 2 * PODS_GRACE_S)
    crashes = [(pod, where, ended) for group in led for pod in group for where, ended in _restarts(pod)]
    for pod, where, ended in sorted(
        crashes, key=lambda crash: str(crash[2].get("finishedAt"))
    ):  # the cause comes first
        first_of_s = [at_s for at_s in asked_s if at_s <= _made_s(pod) <= at_s + _FIRST_MADE_S]
        fatal_at_s = max(first_of_s) + patience_s if first_of_s else min(asked_s)
        yield Problem("ModelLoadFailed", _short(f"{where}: {_last_words(ended)}"), fatal_at_s)


_REFUSED = "a quota or an admission rule may refuse the others"
_NONE_MADE = (
    "no pod was made so far: a quota or an admission rule may refuse it, or LeaderWorkerSet's controller does not run"
)


def _asked_s(workload: Object) -> list[float]:
    """When groups were asked for, as far as it is known: as it was made, and as its replicas were last set."""
    setting = [entry for entry in items(workload, "metadata", "managedFields") if _sets_replicas(entry)]
    return [_made_s(workload), *(at_s for entry in setting if (at_s := seconds(entry.get("time"))) is not None)]


def _sets_replicas(entry: Object) -> bool:
    return at(entry, "fieldsV1", "f:spec", "f:replicas") is not None


def _made_s(obj: Object) -> float:
    return seconds(at(obj, "metadata", "creationTimestamp")) or 0.0


def _restarts(pod: Object) -> Iterator[tuple[str, Object]]:
    """Containers that had to begin anew after a failure: where, and how the one before ended."""
    for status in _statuses(pod):
        ended = at(status, "lastState", "terminated")
        if ended is not None and number(status, "restartCount") and number(ended, "exitCode"):
            yield _where(pod, status), ended


def _of_deployment(deployment: Object, grace_s: float) -> Iterator[Problem]:
    """Pods that may not even be created: a quota, an admission rule."""
    failure = condition(deployment, "ReplicaFailure")
    if failure.get("status") == "True":
        since_s = seconds(failure.get("lastTransitionTime")) or 0.0
        yield Problem(UNSCHEDULABLE, _short(str(failure.get("message"))), since_s + grace_s)


def _of_pod(pod: Object, patience_s: float) -> Iterator[Problem]:
    created_s = _made_s(pod)
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        since_s = seconds(scheduled.get("lastTransitionTime")) or created_s
        yield Problem(UNSCHEDULABLE, _short(str(scheduled.get("message"))), since_s + patience_s)
    for status in _statuses(pod):
        yield from _of_container(_where(pod, status), status, created_s)


def _statuses(pod: Object) -> list[Object]:
    return items(pod, "status", "initContainerStatuses") + items(pod, "status", "containerStatuses")


def _where(pod: Object, status: Object) -> str:
    return f"pod {at(pod, 'metadata', 'name')}, container {status.get('name')}"


def _of_container(where: str, status: Object, created_s: float) -> Iterator[Problem]:
    waiting = str(at(status, "state", "waiting", "reason") or "")
    message = _short(f"{where}: {at(status, 'state', 'waiting', 'message') or waiting}")
    if waiting in _PULL_AT_ONCE:
        yield Problem("ImagePullBackOff", message, created_s)
    elif waiting in _PULL:
        yield Problem("ImagePullBackOff", message, created_s + PULL_GRACE_S)
    elif waiting in _CONFIG:
        yield Problem("ContainerConfigError", message, created_s + PULL_GRACE_S)
    elif ended := _crash(status):
        yield Problem("ModelLoadFailed", _short(f"{where}: {_last_words(ended)}"), created_s)


def _crash(status: Object) -> Object | None:
    """The last end of a container that has crashed twice: once may be chance, and the kubelet tries at once."""
    ended: Object | None = at(status, "state", "terminated") or at(status, "lastState", "terminated")
    crashing = at(status, "state", "waiting", "reason") == "CrashLoopBackOff"
    again = at(status, "state", "terminated") is not None and number(status, "restartCount") >= 1
    if not (crashing or again) or ended is None or (number(ended, "exitCode") == 0 and not crashing):
        return None
    return ended


def _last_words(ended: Object) -> str:
    """What the container wrote to its termination log, or how it ended."""
    if ended.get("reason") == "OOMKilled":
        return "killed for lack of memory (OOMKilled); resources.memory is too small for this model"
    said = str(ended.get("message") or "").strip()
    return said or f"ended with exit code {number(ended, 'exitCode')} ({ended.get('reason') or 'no reason'})"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 3] + "..."
