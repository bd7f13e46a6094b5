"""Pod statuses -> a reason and the moment from which it is a failure."""

import pytest

from controllers.kube import Object
from controllers.kube.fields import seconds
from controllers.rollout.pods import worst_problem
from spec import names

BORN = "2026-01-01T00:00:00Z"
BORN_S = seconds(BORN) or 0.0
PATIENCE_S = 300.0


def pod(*containers: Object, init: Object | None = None, **more: Object) -> Object:
    status: Object = {"containerStatuses": [{"name": "server"} | c for c in containers]} | more
    if init is not None:
        status["initContainerStatuses"] = [{"name": "model"} | init]
    return {"metadata": {"name": "p", "creationTimestamp": BORN}, "status": status}


def waiting(reason: str, message: str = "", **more: object) -> Object:
    return {"state": {"waiting": {"reason": reason, "message": message}}, **more}


def ended(code: int, message: str = "", reason: str = "Error") -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def unschedulable() -> Object:
    return {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
        "lastTransitionTime": BORN,
    }


CRASHED = waiting("CrashLoopBackOff", "back-off", lastState=ended(3, "no module named 'lightgbm'\n"), restartCount=2)


@pytest.mark.parametrize(
    ("given", "reason", "says", "after_s"),
    [
        (pod(waiting("ImagePullBackOff", "not found")), "ImagePullBackOff", "not found", 30.0),
        (pod(waiting("ErrImagePull", "timeout")), "ImagePullBackOff", "timeout", 30.0),
        (pod(waiting("InvalidImageName", "bad")), "ImagePullBackOff", "bad", 0.0),
        (pod(waiting("CreateContainerConfigError", "secret")), "ContainerConfigError", "secret", 30.0),
        (pod(CRASHED), "ModelLoadFailed", "container server: no module named 'lightgbm'", 0.0),
        (
            pod(init=waiting("CrashLoopBackOff", lastState=ended(2, "digest differs"))),
            "ModelLoadFailed",
            "container model: digest differs",
            0.0,
        ),
        (pod({"state": ended(1), "restartCount": 1}), "ModelLoadFailed", "exit code 1", 0.0),
        (
            pod(waiting("CrashLoopBackOff", lastState=ended(137, reason="OOMKilled"))),
            "ModelLoadFailed",
            "resources.memory is too small",
            0.0,
        ),
        (pod(conditions=[unschedulable()]), "Unschedulable", "Insufficient cpu", PATIENCE_S),
    ],
)
def test_a_trouble_has_a_reason_a_person_can_use(given: Object, reason: str, says: str, after_s: float) -> None:
    problem = worst_problem([given], {}, PATIENCE_S)
    assert problem is not None
    assert problem.reason == reason
    assert says in problem.message
    assert problem.fatal_at_s - BORN_S == after_s


@pytest.mark.parametrize(
    "given",
    [
        pod({"state": {"running": {}}}),
        pod(waiting("ContainerCreating")),
        pod(waiting("PodInitializing")),
        pod({"state": ended(1, "once"), "restartCount": 0}),
        pod(init={"state": ended(0)}),
    ],
    ids=["running", "creating", "initializing", "first crash", "init done"],
)
def test_what_is_on_its_way_is_no_problem(given: Object) -> None:
    assert worst_problem([given], {}, PATIENCE_S) is None


@pytest.mark.case("autoscaler-C3")
def test_a_terminating_pod_tells_nothing() -> None:
    leaving = pod(CRASHED)
    leaving["metadata"]["deletionTimestamp"] = BORN
    assert worst_problem([leaving], {}, PATIENCE_S) is None


def test_pods_that_a_quota_forbids_are_told_in_its_words() -> None:
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": "exceeded quota: team",
        "lastTransitionTime": BORN,
    }
    problem = worst_problem([], {"status": {"conditions": [failure]}}, PATIENCE_S)
    assert problem is not None
    assert (problem.reason, problem.message) == ("Unschedulable", "exceeded quota: team")


def test_the_problem_that_is_a_failure_first_is_told() -> None:
    problem = worst_problem([pod(conditions=[unschedulable()]), pod(CRASHED)], {}, PATIENCE_S)
    assert problem is not None
    assert problem.reason == "ModelLoadFailed"


def test_a_message_is_one_line_of_bounded_length() -> None:
    said = "Traceback\n  File x\n" + "e" * 9000
    problem = worst_problem([pod(waiting("CrashLoopBackOff", lastState=ended(1, said)))], {}, PATIENCE_S)
    assert problem is not None
    assert len(problem.message) <= 500
    assert "\n" not in problem.message


SET: Object = {
    "kind": "LeaderWorkerSet",
    "metadata": {"creationTimestamp": BORN},
    "spec": {"leaderWorkerTemplate": {"size": 2}},
}


def member(index: int, *containers: Object, born_s: int = 1, leaving: bool = False, group: int = 0) -> Object:
    made = pod(*containers)
    made["metadata"] |= {
        "name": f"iris-a-{group}" if index == 0 else f"iris-a-{group}-{index}",
        "creationTimestamp": f"2026-01-01T00:{born_s // 60:02d}:{born_s % 60:02d}Z",
        "labels": {names.LABEL_GROUP_INDEX: str(group), names.LABEL_WORKER_INDEX: str(index)},
    }
    made["metadata"] |= {"deletionTimestamp": BORN} if leaving else {}
    return made


def began_anew(code: int, message: str, at_s: int, restarts: int = 1) -> Object:
    last = ended(code, message)
    last["terminated"] |= {"finishedAt": f"2026-01-01T00:{at_s // 60:02d}:{at_s % 60:02d}Z"}
    return {"state": {"running": {}}, "lastState": last, "restartCount": restarts}


RUNNING: Object = {"state": {"running": {}}}


@pytest.mark.parametrize(
    ("pods", "reason", "says", "after_s"),
    [
        ([member(0, RUNNING), member(1, waiting("ErrImagePull", "x"))], "ImagePullBackOff", "pod iris-a-0-1", 31.0),
        ([member(0, RUNNING), member(1, began_anew(3, "no GPU", 9))], "ModelLoadFailed", "iris-a-0-1, con", PATIENCE_S),
        (
            [member(0, RUNNING, born_s=40), member(1, began_anew(3, "no GPU", 50), born_s=41)],
            "ModelLoadFailed",
            "pod iris-a-0-1, container server: no GPU",
            0.0,
        ),
        (
            [
                member(0, began_anew(1, "lost a worker", 51), born_s=40, leaving=True),
                member(1, began_anew(3, "no GPU", 50), born_s=41, leaving=True),
            ],
            "ModelLoadFailed",
            "pod iris-a-0-1, container server: no GPU",
            0.0,
        ),
        ([member(0, RUNNING, born_s=40)], "PodsMissing", "1 of 2 pods of iris-a-0 were made so far", 100.0),
        ([], "PodsMissing", "no pod was made", PATIENCE_S),
    ],
    ids=["a worker's image", "first crash", "second crash", "the cause of two", "a refused worker", "none made"],
)
def test_what_keeps_a_group_from_starting_is_told_of_the_pod_that_it_is_about(
    pods: list[Object], reason: str, says: str, after_s: float
) -> None:
    problem = worst_problem(pods, SET, PATIENCE_S)
    assert problem is not None
    assert (problem.reason, problem.fatal_at_s - BORN_S) == (reason, after_s)
    assert says in problem.message


@pytest.mark.parametrize(
    ("made_s", "fatal_s"), [(100, 100 + PATIENCE_S), (109, 100 + PATIENCE_S), (111, 0.0), (99, 0.0)]
)
def test_the_first_crash_of_a_group_that_load_added_is_no_failure_yet(made_s: int, fatal_s: float) -> None:
    """While a model loads for minutes more groups of it are asked for, here after 100 s; an older group goes on."""
    sets = {"manager": "any", "time": "2026-01-01T00:01:40Z", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    grown = SET | {"metadata": SET["metadata"] | {"managedFields": [sets]}}
    pods = [member(0, RUNNING), member(1, RUNNING), member(0, RUNNING, born_s=made_s, group=1)]
    problem = worst_problem([*pods, member(1, began_anew(3, "x", 120), born_s=made_s, group=1)], grown, PATIENCE_S)
    assert problem is not None
    assert (problem.reason, problem.fatal_at_s - BORN_S) == ("ModelLoadFailed", fatal_s)
    none = worst_problem([], grown, PATIENCE_S)
    assert none is not None
    assert none.fatal_at_s - BORN_S == 100 + PATIENCE_S


@pytest.mark.parametrize(
    "pods",
    [
        [member(0, RUNNING), member(1, RUNNING)],
        [member(0, {"state": ended(143)}, born_s=40, leaving=True), member(1, RUNNING, born_s=41, leaving=True)],
        [member(0, began_anew(0, "", 50), born_s=40), member(1, RUNNING, born_s=41)],
        [member(0, RUNNING, born_s=40, leaving=True)],
        [member(0, RUNNING), member(1, RUNNING), member(1, began_anew(1, "no leader", 50), group=1, born_s=40)],
    ],
    ids=["running", "told to end", "ended well", "leaving, its worker gone", "left of one that was scaled away"],
)
def test_a_group_that_runs_or_leaves_has_no_problem(pods: list[Object]) -> None:
    assert worst_problem(pods, SET, PATIENCE_S) is None
