"""How a revision's pods start, read from their statuses: ready, starting, failing, and how long it took. Pure.

Owns what counts as a pod and as a failed start. Its one idea: by owner and phase. A pod on its way out, evicted or
finished is neither capacity nor a start; one that was ready before has started, whatever becomes of it. A group of
pods, which is one replica over several nodes, counts as the pod that leads it: that one is ready once all of it works,
and a group that begins anew since one of its pods has failed has new ones, so that it did fail is remembered.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from controllers.kube.fields import at, condition, items, mapping, number, seconds
from controllers.kube.resources import Object
from controllers.workloads import group_of, leads
from spec import names

_OVER = ("Failed", "Succeeded")
# The kubelet's words for a start that has failed more than once; the first failure may be chance.
_REPEATED = {"CrashLoopBackOff", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
_REPEATED |= {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_RESTARTS = 2
_GROUP_RESTARTS = 1  # with the first of any of its pods the whole group begins anew
_START_MAX_S = 7200.0
Group = tuple[str, str]


@dataclass(frozen=True)
class Starts:
    """One revision's pods. `start_s`: the median time from creation to ready of those ready, None where unknown.
    `numbers`: of the groups that are ready, in their order."""

    ready: int = 0
    starting: int = 0
    failing: int = 0
    start_s: float | None = None
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Past:
    """What is remembered: `started` are the uids of pods, leaving ones too, that have been ready at some time, `failed`
    the groups (revision, number) that failed to start and have not been ready since."""

    started: frozenset[str] = frozenset()
    failed: frozenset[Group] = frozenset()


def starts_of(
    pods: Iterable[Object], past: Past, replicas: Mapping[str, int] | None = None
) -> tuple[dict[str, Starts], Past]:
    """By revision; and the past from now on. `replicas`: what each revision is asked for, which its groups are numbered
    by: one that failed is a failed start of it while it is wanted, also for the moment in which it has no pod."""
    pods, wanted = list(pods), replicas or {}
    leaders = [pod for pod in pods if leads(pod)]
    started = frozenset(uid for pod in leaders if (uid := pod["metadata"]["uid"]) in past.started or _is_ready(pod))
    failed = frozenset(
        (revision, group)
        for revision, group in _failed(pods, started, past.failed)
        if int(group) < wanted.get(revision, 0)
    )
    found: dict[str, list[Object]] = defaultdict(list, {revision: [] for revision, _ in failed})
    for pod in leaders:
        if at(pod, "metadata", "deletionTimestamp") is None and at(pod, "status", "phase") not in _OVER:
            found[_revision(pod)].append(pod)
    return {name: _starts(name, those, started, failed) for name, those in found.items()}, Past(started, failed)


def _failed(pods: Iterable[Object], started: frozenset[str], before: frozenset[Group]) -> set[Group]:
    """Asked of pods on their way out too: the crash that a group begins anew for is theirs. Workers without a leader
    are what is left of a replica that was not wanted any more."""
    groups: dict[Group, list[Object]] = defaultdict(list)
    for pod in pods:
        if (group := _group(pod)) is not None:
            groups[group].append(pod)
    failed = set(before)
    for group, members in groups.items():
        of_leaders = {pod["metadata"]["uid"] for pod in members if leads(pod)}
        if of_leaders & started:
            failed.discard(group)
        elif of_leaders and any(_is_failing(pod, _GROUP_RESTARTS) for pod in members):
            failed.add(group)
    return failed


def _revision(pod: Object) -> str:
    return str(mapping(pod, "metadata", "labels").get(names.LABEL_REVISION))


def _group(pod: Object) -> Group | None:
    number_of = group_of(pod)
    return (_revision(pod), number_of) if number_of is not None else None


def _starts(revision: str, pods: list[Object], started: frozenset[str], failed: frozenset[Group]) -> Starts:
    ready = [pod for pod in pods if _is_ready(pod)]
    single = [pod for pod in pods if _group(pod) is None and pod["metadata"]["uid"] not in started]
    failing = [pod for pod in single if _is_failing(pod, _RESTARTS)]
    anew = [pod for pod in pods if _group(pod) in failed]
    took = [seconds_to_ready for pod in ready if (seconds_to_ready := _start_s(pod)) is not None]
    return Starts(
        ready=len(ready),
        starting=len(pods) - len(ready) - len(failing) - len(anew),
        failing=len(failing) + sum(group[0] == revision for group in failed),
        start_s=median(took) if took else None,
        numbers=tuple(sorted(int(number_of) for pod in ready if (number_of := group_of(pod)) is not None)),
    )


def _is_ready(pod: Object) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def _is_failing(pod: Object, restarts: int) -> bool:
    statuses = items(pod, "status", "initContainerStatuses") + items(pod, "status", "containerStatuses")
    return any(_has_failed(status, restarts) for status in statuses)


def _has_failed(status: Mapping[str, object], restarts: int) -> bool:
    again = number(status, "restartCount") >= restarts
    return at(status, "state", "waiting", "reason") in _REPEATED or again


def _start_s(pod: Object) -> float | None:
    """None for a container that had to begin anew: its time is a failure's, not a start's."""
    created_s = seconds(at(pod, "metadata", "creationTimestamp"))
    ready_s = seconds(condition(pod, "Ready").get("lastTransitionTime"))
    clean = all(number(status, "restartCount") == 0 for status in items(pod, "status", "containerStatuses"))
    if created_s is None or ready_s is None or not clean or not 0.0 <= ready_s - created_s <= _START_MAX_S:
        return None
    return ready_s - created_s
