"""How a revision's pods start, read from their statuses: ready, starting, failing, and how long it took. Pure.

Owns what counts as a pod and as a failed start. Its one idea: by owner and phase. A pod on its way out, evicted or
finished is neither capacity nor a start; one that was ready before has started, whatever becomes of it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from controllers.kube.fields import at, condition, items, mapping, number, seconds
from controllers.kube.resources import Object
from spec import names

_OVER = ("Failed", "Succeeded")
# The kubelet's words for a start that has failed more than once; the first failure may be chance.
_REPEATED = {"CrashLoopBackOff", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
_REPEATED |= {"CreateContainerConfigError", "CreateContainerError", "RunContainerError"}
_RESTARTS = 2
_START_MAX_S = 7200.0


@dataclass(frozen=True)
class Starts:
    """One revision's pods. `start_s`: the median time from creation to ready of those ready, None where unknown."""

    ready: int = 0
    starting: int = 0
    failing: int = 0
    start_s: float | None = None


def starts_of(pods: Iterable[Object], started: frozenset[str]) -> tuple[dict[str, Starts], frozenset[str]]:
    """By revision; and the uids of the living pods that have been ready at some time, of which `started` are known."""
    found: dict[str, list[Object]] = defaultdict(list)
    for pod in pods:
        if at(pod, "metadata", "deletionTimestamp") is None and at(pod, "status", "phase") not in _OVER:
            found[str(mapping(pod, "metadata", "labels").get(names.LABEL_REVISION))].append(pod)
    living = [pod for those in found.values() for pod in those]
    known = frozenset(uid for pod in living if (uid := pod["metadata"]["uid"]) in started or _is_ready(pod))
    return {revision: _starts(those, known) for revision, those in found.items()}, known


def _starts(pods: list[Object], started: frozenset[str]) -> Starts:
    ready = [pod for pod in pods if _is_ready(pod)]
    failing = [pod for pod in pods if pod["metadata"]["uid"] not in started and _is_failing(pod)]
    took = [seconds_to_ready for pod in ready if (seconds_to_ready := _start_s(pod)) is not None]
    return Starts(
        ready=len(ready),
        starting=len(pods) - len(ready) - len(failing),
        failing=len(failing),
        start_s=median(took) if took else None,
    )


def _is_ready(pod: Object) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def _is_failing(pod: Object) -> bool:
    statuses = items(pod, "status", "initContainerStatuses") + items(pod, "status", "containerStatuses")
    return any(_has_failed(status) for status in statuses)


def _has_failed(status: Mapping[str, object]) -> bool:
    again = number(status, "restartCount") >= _RESTARTS
    return at(status, "state", "waiting", "reason") in _REPEATED or again


def _start_s(pod: Object) -> float | None:
    """None for a container that had to begin anew: its time is a failure's, not a start's."""
    created_s = seconds(at(pod, "metadata", "creationTimestamp"))
    ready_s = seconds(condition(pod, "Ready").get("lastTransitionTime"))
    clean = all(number(status, "restartCount") == 0 for status in items(pod, "status", "containerStatuses"))
    if created_s is None or ready_s is None or not clean or not 0.0 <= ready_s - created_s <= _START_MAX_S:
        return None
    return ready_s - created_s
