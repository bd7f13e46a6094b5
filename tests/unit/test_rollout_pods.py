"""Pod statuses -> a reason and the moment from which it is a failure."""

import pytest

from controllers.kube import Object
from controllers.kube.fields import seconds
from controllers.rollout.pods import worst_problem

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
