"""Pods of a revision by owner and phase: what starts, what fails to, and how long it took."""

from typing import Any

import pytest

from controllers.autoscaler.starts import Past, Starts, starts_of
from controllers.kube.resources import Object
from spec import names


def pod(
    uid: str, ready: bool = False, phase: str = "Running", leaving: bool = False, took_s: int = 12, **status: Any
) -> Object:
    metadata: Object = {
        "uid": uid,
        "labels": {names.LABEL_REVISION: "iris-a"},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    at = f"2026-01-01T00:{took_s // 60:02d}:{took_s % 60:02d}Z"
    conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": at}]
    return {"metadata": metadata, "status": {"phase": phase, "conditions": conditions, **status}}


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"restartCount": 0, "state": {"waiting": {"reason": reason}}}]}


def restarted(times: int) -> dict[str, Any]:
    return {"containerStatuses": [{"restartCount": times, "state": {"running": {}}}]}


def starts(*pods: Object, past: Past = Past()) -> Starts:  # noqa: B008 - it is frozen
    return starts_of(pods, past, {"iris-a": 2})[0].get("iris-a", Starts())


@pytest.mark.parametrize(
    ("each", "counts"),
    [
        (pod("a", ready=True), (1, 0, 0)),
        (pod("a", phase="Pending"), (0, 1, 0)),
        (pod("a", phase="Pending", **waiting("ContainerCreating")), (0, 1, 0)),
        (pod("a", phase="Pending", **waiting("ErrImagePull")), (0, 1, 0)),
        (pod("a", phase="Pending", **waiting("ImagePullBackOff")), (0, 0, 1)),
        (pod("a", **waiting("CrashLoopBackOff")), (0, 0, 1)),
        (pod("a", **restarted(1)), (0, 1, 0)),
        (pod("a", **restarted(2)), (0, 0, 1)),
        (pod("a", ready=True, leaving=True), (0, 0, 0)),
        (pod("a", phase="Failed", reason="Evicted"), (0, 0, 0)),
        (pod("a", phase="Succeeded"), (0, 0, 0)),
    ],
)
@pytest.mark.case("autoscaler-C1")
@pytest.mark.case("autoscaler-C2")
@pytest.mark.case("autoscaler-C3")
def test_a_pod_is_ready_starting_failing_or_none_of_them(each: Object, counts: tuple[int, int, int]) -> None:
    found = starts(each)
    assert (found.ready, found.starting, found.failing) == counts


def test_a_pod_that_was_ready_once_has_started_whatever_becomes_of_it() -> None:
    _, past = starts_of([pod("a", ready=True)], Past())
    assert starts(pod("a", **restarted(5)), past=past).failing == 0


def test_pods_that_are_gone_are_forgotten() -> None:
    _, past = starts_of([pod("b")], Past(frozenset({"a"})))
    assert past == Past()


def test_the_time_to_ready_is_the_median_of_clean_starts() -> None:
    took = [pod(str(n), ready=True, took_s=seconds) for n, seconds in enumerate((10, 12, 60))]
    assert starts(*took).start_s == 12.0
    assert starts(pod("a", ready=True, took_s=300, **restarted(1))).start_s is None
    assert starts(pod("a")).start_s is None


def member(index: int, ready: bool = False, leaving: bool = False, group: int = 0, **status: Any) -> Object:
    made = pod(f"{group}-{index}-{leaving}", ready=ready, leaving=leaving, **status)
    made["metadata"]["labels"] |= {names.LABEL_GROUP_INDEX: str(group), names.LABEL_WORKER_INDEX: str(index)}
    return made


@pytest.mark.parametrize(
    ("pods", "counts"),
    [
        ([member(0, ready=True), member(1, ready=True)], (1, 0, 0)),
        ([member(0), member(1, ready=True)], (0, 1, 0)),  # a worker is ready long before its group
        ([member(0), member(1, **waiting("ImagePullBackOff"))], (0, 0, 1)),
        ([member(0), member(1, **restarted(1))], (0, 0, 1)),
        ([member(0, ready=True), member(0, group=1)], (1, 1, 0)),
        ([member(1)], (0, 0, 0)),
        ([member(0, leaving=True), member(1, leaving=True)], (0, 0, 0)),
    ],
)
def test_a_group_of_pods_counts_as_one_that_its_leader_stands_for(
    pods: list[Object], counts: tuple[int, int, int]
) -> None:
    found = starts(*pods)
    assert (found.ready, found.starting, found.failing) == counts


def after(past: Past, *pods: Object) -> tuple[Starts, Past]:
    found, now = starts_of(pods, past, {"iris-a": 2})
    return found.get("iris-a", Starts()), now


def test_a_group_that_began_anew_after_a_crash_goes_on_failing_until_it_is_ready() -> None:
    """All its pods are new ones then, and none of them knows of the crash; for a moment there are none."""
    _, crashed = after(Past(), member(0, leaving=True), member(1, leaving=True, **restarted(1)))
    none, still = after(crashed)
    assert (none.starting, none.failing) == (0, 1)
    anew, still = after(still, member(0), member(1))
    assert (anew.starting, anew.failing) == (0, 1)
    ready, past = after(still, member(0, ready=True), member(1, ready=True))
    assert (ready.ready, ready.failing, past.failed) == (1, 0, frozenset())


def test_a_group_that_served_and_begins_anew_is_no_failed_start() -> None:
    _, served = after(Past(), member(0, ready=True), member(1, ready=True))
    assert after(served, member(0), member(1, **restarted(1)))[1].failed == frozenset()


def test_a_group_that_is_scaled_away_has_not_failed_though_its_worker_ends_with_the_leader() -> None:
    """A worker is told to end by its leader, and is begun anew until its own deletion comes."""
    _, past = after(Past(), member(0, ready=True), member(1, ready=True))
    leaving, worker = member(0, leaving=True), member(1, **restarted(1))
    leaving["metadata"]["uid"] = member(0)["metadata"]["uid"]
    for pods in ([leaving, member(1)], [leaving, worker], [worker]):
        _, past = after(past, *pods)
        assert past.failed == frozenset()


def test_a_revision_that_is_gone_has_no_past() -> None:
    failed = Past(failed=frozenset({("iris-a", "0")}))
    assert starts_of([], failed, {"iris-b": 2})[1] == Past()


def test_a_group_that_is_not_wanted_any_more_is_no_failed_start() -> None:
    _, past = after(Past(), member(0, group=1), member(1, group=1, **restarted(1)))
    assert past.failed == {("iris-a", "1")}
    found, now = starts_of([], past, {"iris-a": 1})
    assert (found, now) == ({}, Past())
