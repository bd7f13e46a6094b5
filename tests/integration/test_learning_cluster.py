"""On the running platform: knees that are known are learnt, a step of twenty is absorbed, its decider killed too.

Takes some fourteen minutes, so it has a target of its own: `make test-learning`.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from controllers.kube.fields import condition, seconds
from spec import names
from spec.sizing import floor_replicas, replicas_for
from stacks.cli import mlflow_env, workspace
from tests.integration.test_platform_faults import kill_container
from tests.platform_lab.command import ROOT, wait_until
from tests.platform_lab.learning import Course, Courses, Look, table, watch
from tests.platform_lab.load import Load
from tests.platform_lab.paced import Answer, Paced, Stage
from tests.platform_lab.suite import ENVIRONMENT, INSTANCE, Suite, sleeping

pytestmark = [pytest.mark.cluster, pytest.mark.learning, pytest.mark.timeout(1800)]

LEARN_S = 600.0
START_S = 60.0  # so long a signal may still tell of the pod's own start
STAYS = 7  # looks in a row, two epochs
CYCLE_S = 5.0
STAMP_S = 1.0  # the resolution of times in a status
TARGET = 0.8  # of a limit, as the suite's platform has it
FLOOR = floor_replicas(1, TARGET)  # of a limit of one


@dataclass(frozen=True)
class Known:
    """An endpoint whose knee is known, its limit four times too high at first or more, and who presses it how."""

    endpoint: str
    model: str
    cpu: str
    memory: str
    knee: int
    maximum: int
    clients: int
    seconds: float
    pause_s: float = 0.0

    def is_learnt(self, seen: Look) -> bool:
        """Within a fifth, or by half a request where that is more; and in force at every pod."""
        near = seen.knee is not None and abs(seen.knee - self.knee) <= max(0.2 * self.knee, 0.5)
        return near and abs(seen.limit - self.knee) <= 0.2 * self.knee and set(seen.maxconn.values()) == {seen.limit}


# What is asked for of the node's two cores is a fifth of the quotas: at most 2 x 620m, 3 x 40m and 4 x 80m. Six without
# a pause, as many as two replicas should carry, would now and then be a third one.
SLOTS = Known("slots", "models:/slow/1", "3100m", "1500Mi", 4, 16, clients=6, seconds=0.5, pause_s=0.05)
BURNING = Known("burner", "models:/busy/1", "200m", "600Mi", 1, 4, clients=2, seconds=0.05)
STEPPED = Known("stepped", "models:/brief/1", "400m", "600Mi", 1, 8, clients=3, seconds=0.2)
ALL = (SLOTS, BURNING, STEPPED)


@pytest.fixture(scope="module")
def declared(suite: Suite) -> Suite:
    place = workspace.from_process(ENVIRONMENT, INSTANCE)
    script = ROOT / "tests" / "platform_lab" / "learning_models.py"
    mlflow_env.run_script(place, script, suite.instance.mlflow_uri)
    for each in ALL:
        limits = {"cpu": each.cpu, "memory": each.memory}
        suite.declare(each.endpoint, model=each.model, concurrency={"min": 1, "max": each.maximum}, resources=limits)
    suite.up(*(each.endpoint for each in ALL))
    return suite


@pytest.fixture(scope="module")
def learnt(declared: Suite) -> Courses:
    """All three under load at once, until all are learnt and stay so, ten minutes at most."""
    with contextlib.ExitStack() as loads:
        for each in ALL:
            target = declared.target(each.endpoint)
            loads.enter_context(Load(target, sleeping(each.seconds), each.clients, each.pause_s, LEARN_S + 60))
        found = watch(declared, [each.endpoint for each in ALL], _stay, LEARN_S)
    print("", *(table(endpoint, course) for endpoint, course in found.items()), sep="\n")
    return found


def _stay(courses: Courses) -> bool:
    return all(_stays(each, courses[each.endpoint]) for each in ALL)


def _stays(known: Known, course: Course) -> bool:
    return len(course) > STAYS and all(known.is_learnt(seen) for seen in course[-STAYS:])


@pytest.mark.case("autoscaler-I8")
@pytest.mark.parametrize("known", ALL, ids=lambda known: known.endpoint)
def test_a_limit_four_times_too_high_or_more_becomes_the_knee_within_ten_minutes_and_maxconn_follows(
    known: Known, learnt: Courses
) -> None:
    course = learnt[known.endpoint]
    assert set(course[0].maxconn.values()) == {known.maximum}
    assert _stays(known, course), table(known.endpoint, course)


def test_a_model_at_its_cpu_quota_is_known_by_its_cpu(learnt: Courses) -> None:
    course = [seen for seen in learnt[BURNING.endpoint] if seen.at_s > START_S]
    assert any(seen.cpu is not None and 0.75 < seen.cpu < 1.3 for seen in course), table(BURNING.endpoint, course)
    words = [seen.why.partition(": ") for seen in course]
    assert any(reason == "PastTheKnee" and "cpu" in signals.split(", ") for reason, _, signals in words), "and used"


def test_a_model_that_sleeps_is_learnt_without_cpu(learnt: Courses) -> None:
    course = learnt[SLOTS.endpoint]
    assert course[-1].cpu is not None and course[-1].cpu < 0.3
    assert not any("cpu" in seen.why for seen in course), table(SLOTS.endpoint, course)


# A step

CALM = Stage(rps=1.2, seconds=90)  # a checkpoint is written every 60 s
STEP = Stage(rps=20 * CALM.rps, seconds=120)
SECONDS = 0.2
LATE_S = 1.5 * SECONDS  # an answer above the latency that the platform keeps to
NEEDED = replicas_for(STEP.rps * SECONDS, TARGET)
DRAIN_S = 5.0  # a backlog is to be gone by then
NOISE = 1  # replicas, by the W that two runs of one load measure
DECIDED_S = 6.0  # from a step until replicas start


@dataclass(frozen=True)
class Step:
    """One step, from its first request on. Times are Unix seconds, `started_s` from a pod's making to its readiness."""

    began_s: float
    answers: list[Answer]
    decisions: list[dict[str, Any]]
    ready_at_s: float
    started_s: float

    @property
    def lost_s(self) -> float:
        """So many seconds of this load were refused, failed or late."""
        return sum(each.status != 200 or each.seconds > LATE_S for each in self.before) / STEP.rps

    @property
    def before(self) -> list[Answer]:
        return [each for each in self.answers if each.sent_s < self.ready_at_s + DRAIN_S]

    @property
    def after(self) -> list[Answer]:
        return [each for each in self.answers if each.sent_s >= self.ready_at_s + DRAIN_S]

    def asked(self, at_s: float) -> int:
        """What was asked for at a time, by the decisions that stand in the status, the newest first."""
        told = [decision for decision in self.decisions if (seconds(decision["at"]) or 0.0) <= at_s]
        return int(told[0]["to"] if told else self.decisions[-1]["from"])

    def __str__(self) -> str:
        changes = ", ".join(
            f"{each['from']} -> {each['to']} ({each['reason']}) at {(seconds(each['at']) or 0) - self.began_s:.0f} s"
            for each in reversed(self.decisions)
        )
        late = sum(each.seconds > LATE_S for each in self.after)
        bad = sum(each.status != 200 for each in self.before)
        return (
            f"{changes}; {NEEDED} ready at {self.ready_at_s - self.began_s:.0f} s, a start {self.started_s:.0f} s; "
            f"of {len(self.answers)} requests {bad} refused, {self.lost_s:.1f} s of the load lost, "
            f"afterwards {late} of {len(self.after)} late"
        )


def step(suite: Suite, endpoint: str, meanwhile: Callable[[float], None] = lambda began_s: None) -> Step:
    """Of an endpoint without a past, whose replicas are known to take one request: what is kept ready for bursts that
    were seen would be no floor. `meanwhile` begins with the step."""
    limits = {"cpu": "400m", "memory": "600Mi"}
    suite.declare(endpoint, model="models:/brief/1", concurrency={"min": 1, "max": 8}, parallelism=1, resources=limits)
    suite.up(endpoint)
    assert suite.status(endpoint)["autoscaler"]["desiredReplicas"] == FLOOR
    with Paced(suite.target(endpoint), sleeping(SECONDS), (CALM, STEP)) as load:
        began_s = load.wait_for(stage=1)
        meanwhile(began_s)
        load.wait_for_the_end()
    needed = starts(suite, endpoint)[:NEEDED]
    assert len(needed) == NEEDED, f"replicas follow: {len(needed)} of {NEEDED}"
    decisions = suite.status(endpoint)["autoscaler"]["decisions"]
    made = Step(
        began_s=began_s,
        answers=[each for each in load.answers if each.sent_s >= began_s],
        decisions=[each for each in decisions if (seconds(each["at"]) or 0.0) >= began_s - STAMP_S],
        ready_at_s=needed[-1][0],
        started_s=max(ready_s - made_s for ready_s, made_s in needed if made_s >= began_s - STAMP_S),
    )
    print(f"\nstep: {made}")
    return made


def starts(suite: Suite, endpoint: str) -> list[tuple[float, float]]:
    """When each pod became ready and when it was made, in the order of their readiness."""
    pods = [(condition(pod, "Ready"), pod["metadata"]) for pod in suite.pods(endpoint)]
    times = [
        (ready["lastTransitionTime"], pod["creationTimestamp"]) for ready, pod in pods if ready["status"] == "True"
    ]
    return sorted((seconds(ready) or 0.0, seconds(made) or 0.0) for ready, made in times)


@pytest.fixture(scope="module")
def undisturbed(declared: Suite) -> Step:
    return step(declared, "stepped-on")


def test_of_a_step_of_twenty_no_more_is_lost_than_a_start_takes_and_then_all_is_answered(undisturbed: Step) -> None:
    assert undisturbed.asked(undisturbed.ready_at_s) >= NEEDED
    assert undisturbed.lost_s <= undisturbed.started_s + DECIDED_S + DRAIN_S, undisturbed
    assert len(undisturbed.after) > 20 * STEP.rps, undisturbed
    assert {each.status for each in undisturbed.after} == {200}, undisturbed


def lease(suite: Suite) -> dict[str, Any]:
    said = suite.kubectl("get", "lease", "-n", names.SYSTEM_NAMESPACE, names.LEASE_CONTROLLERS, "-o", "json")
    return dict(json.loads(said.out)["spec"])


@pytest.mark.case("autoscaler-G1")
def test_killed_in_mid_step_it_asks_for_what_it_would_have_within_a_cycle_of_its_lease(
    declared: Suite, undisturbed: Step
) -> None:
    killed: dict[str, Any] = {}

    def kill(began_s: float) -> None:
        holder = lease(declared)["holderIdentity"]
        kill_container(declared, names.COMPONENT_CONTROLLERS, "controllers", signal.SIGKILL)
        wait_until(lambda: lease(declared)["holderIdentity"] != holder, 60, "somebody holds the lease again")
        killed["after"] = (seconds(lease(declared)["acquireTime"]) or 0.0) - began_s
        killed["up"] = declared.up("stepped-twice").text

    disturbed = step(declared, "stepped-twice", kill)
    by_s = killed["after"] + CYCLE_S + STAMP_S
    print(f"the lease was held again {killed['after']:.1f} s after the step began")
    assert disturbed.asked(disturbed.began_s + killed["after"] - STAMP_S) < NEEDED, "it was killed in mid-step"
    least, most = (undisturbed.asked(undisturbed.began_s + at_s) for at_s in (by_s - CYCLE_S, by_s + CYCLE_S))
    assert least - NOISE <= disturbed.asked(disturbed.began_s + by_s) <= most + NOISE, disturbed
    assert "suite.alpha.stepped-twice: no change" in killed["up"]
    assert disturbed.lost_s <= killed["after"] + disturbed.started_s + DECIDED_S + DRAIN_S, disturbed
    assert {each.status for each in disturbed.after} == {200}, disturbed
