"""Whose knowledge is whose, and what the loop tells the learner."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controllers.autoscaler.learning import Epoch, Learnt, followed, key, known, learnt_from, limits, to_keep
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Revision, Role
from controllers.autoscaler.vertical.evidence import Point, Tally
from controllers.autoscaler.vertical.knowledge import Knowledge, Probe
from controllers.autoscaler.vertical.rules import Reason
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.signals import UNKNOWN, Signals
from controllers.autoscaler.view import Endpoint, Limit, endpoint_of
from controllers.kube import Object

SETTINGS = Settings()
NOW_S, WALL_S = 5_000.0, 1_700_000_000.0
IMAGE = "registry:5000/knobless/model@sha256:" + "0" * 64


def deployment(
    name: str = "iris-a",
    *,
    sha256: str = "1",
    image: str = IMAGE,
    limits: Mapping[str, str] | None = None,
    selector: Mapping[str, str] | None = None,
) -> Object:
    server = {"name": "server", "image": image, "resources": {"limits": dict(limits or {"cpu": "1", "memory": "1Gi"})}}
    pod = {
        "initContainers": [{"name": "model", "args": ["--uri", "models:/iris/1", "--sha256", sha256]}],
        "containers": [server],
        "nodeSelector": dict(selector or {}),
    }
    return {"metadata": {"namespace": "team-alpha", "name": name}, "spec": {"template": {"spec": pod}}}


def endpoint(
    told: Mapping[str, Object] | None = None, phases: Mapping[str, str] | None = None, **spec: Object
) -> Endpoint:
    return endpoint_of(
        {
            "metadata": {"namespace": "team-alpha", "name": "iris", "uid": "u1", "generation": 1},
            "spec": {"concurrency": {"min": 1, "max": 100}, "runtime": {"initialLimit": 64}} | spec,
            "status": {
                "trafficRevision": "iris-a",
                "revisions": [{"name": n, "phase": p} for n, p in (phases or {"iris-a": "Serving"}).items()],
                "autoscaler": {"revisions": {n: {"desired": 1} | t for n, t in (told or {}).items()}},
                "gateway": {"trafficRevision": "iris-a", "backends": {"iris-a": "b00000"}},
            },
        }
    )


def revision(name: str = "iris-a", role: Role = Role.TRAFFIC, *, ready: int = 2, limit: int = 64) -> Revision:
    return Revision(name, role, limit, limit * 0.8, live=2, ready=ready, asked=2)


def epoch(in_flight: float, service_s: float, signals: Signals = UNKNOWN, pods: int = 2) -> Epoch:
    load = Load(in_flight * pods, 0.0, 1.0, in_flight * pods / service_s, 0.0)
    busy_s = 30 * in_flight
    return Epoch(
        NOW_S,
        WALL_S,
        [LoadSample(NOW_S - second, load) for second in range(30)],
        {f"p{i}": Tally(NOW_S - 3600, 30.0, busy_s, busy_s / service_s) for i in range(pods)},
        lambda namespace, pod: signals,
    )


def after(learnt: Learnt, seen: Epoch, said: Endpoint | None = None, revisions: list[Revision] | None = None) -> Learnt:
    given = [deployment(), deployment("iris-b", sha256="2")]
    return learnt_from(learnt, said or endpoint(), given, revisions or [revision()], seen, SETTINGS)


def of(learnt: Learnt, given: Object | None = None, said: Endpoint | None = None) -> Knowledge:
    given = given or deployment()
    return known(learnt, said or endpoint(), [given])[given["metadata"]["name"]]


@pytest.mark.parametrize(
    "other",
    [
        deployment(sha256="2"),
        deployment(image=IMAGE.replace("000", "111")),
        deployment(limits={"cpu": "2", "memory": "1Gi"}),
        deployment(limits={"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}),
        deployment(selector={"node.kubernetes.io/instance-type": "m7i.large"}),
    ],
    ids=["model", "runtime", "limits", "accelerator", "class of CPU"],
)
def test_what_is_known_belongs_to_one_model_on_one_machine(other: Object) -> None:
    own = Knowledge(limit=9, knee=9.0)
    learnt = Learnt({str(key(endpoint(), deployment())): own})
    assert of(learnt) == own
    assert (of(learnt, other).knee, of(learnt, other).limit) == (None, 64)


def test_what_is_known_of_a_replica_belongs_to_so_many_nodes() -> None:
    one = deployment()
    wide = {
        size: one
        | {
            "kind": "LeaderWorkerSet",
            "spec": {"leaderWorkerTemplate": {"size": size, "workerTemplate": one["spec"]["template"]}},
        }
        for size in (2, 3)
    }
    keys = [key(endpoint(), each) for each in (one, wide[2], wide[3])]
    assert len({str(each) for each in keys}) == len({each.hardware for each in keys}) == 3


def test_beside_an_interface_what_is_known_belongs_to_the_container_that_works() -> None:
    def of_image(image: str, front: str) -> Object:
        proxy = {"name": "interface", "image": front, "resources": {"limits": {"cpu": "1"}}}
        own = {"name": "server", "image": image, "restartPolicy": "Always", "resources": {"limits": {"cpu": "4"}}}
        pod = {"initContainers": [own], "containers": [proxy]}
        return {"metadata": {"namespace": "team-alpha", "name": "iris-a"}, "spec": {"template": {"spec": pod}}}

    ours, newer, other = of_image("a@1", "f@1"), of_image("a@1", "f@2"), of_image("a@2", "f@1")
    assert key(endpoint(), ours) == key(endpoint(), newer) != key(endpoint(), other)


def test_a_revision_that_comes_back_finds_what_was_learnt_of_it() -> None:
    own = Knowledge(limit=9, knee=9.0)
    learnt = Learnt({str(key(endpoint(), deployment())): own})
    assert of(learnt, deployment("iris-returned")) == own


def test_a_successor_on_the_same_hardware_begins_with_the_limit_of_the_one_before_and_nothing_else() -> None:
    learnt = Learnt({str(key(endpoint(), deployment())): Knowledge(limit=9, knee=9.0)})
    successor = deployment("iris-b", sha256="2", image=IMAGE.replace("000", "111"))
    assert known(learnt, endpoint(), [deployment(), successor])["iris-b"] == Knowledge(limit=9)
    elsewhere = deployment("iris-b", sha256="2", limits={"cpu": "4", "memory": "8Gi"})
    assert known(learnt, endpoint(), [deployment(), elsewhere])["iris-b"] == Knowledge(limit=64)


@pytest.mark.case("autoscaler-G7")
def test_without_a_checkpoint_the_status_is_where_it_goes_on() -> None:
    said = endpoint({"iris-a": {"limit": 12, "knee": 11.5, "baselineMs": 250.0}})
    found = of(Learnt(), said=said)
    assert (found.limit, found.knee, found.floor_s) == (12, 11.5, 0.25)
    assert limits(Learnt(), said, [deployment()]) == {"iris-a": Limit(12, learnt=True)}
    assert limits(Learnt(), endpoint({"iris-a": {"limit": 0}}), [deployment()]) == {"iris-a": Limit(64)}


def test_who_does_not_lead_follows_what_the_leader_tells() -> None:
    stale = Learnt({str(key(endpoint(), deployment())): Knowledge(limit=64)})
    told = endpoint({"iris-a": {"limit": 12, "knee": 11.5}})
    fresh = followed(stale, told, [deployment()])
    assert of(fresh, said=told).limit == 12
    assert followed(fresh, told, [deployment()]) == fresh


def test_the_revision_with_the_traffic_learns_and_no_other() -> None:
    known_before = Learnt({str(key(endpoint(), deployment())): Knowledge(limit=64)})
    found = after(known_before, epoch(60.0, 2.0, Signals(cpu=0.99, self_test_ms=500.0)))
    assert set(found.advice) == {"iris-a"}
    assert found.advice["iris-a"].limit == 32
    assert found.due_at_s == NOW_S + 30
    assert limits(found, endpoint(), [deployment()]) == {"iris-a": Limit(32, learnt=True)}


@pytest.mark.case("autoscaler-D10")
@pytest.mark.parametrize("phase", ["Starting", "Ready", "Draining"])
def test_it_is_frozen_while_another_revision_starts_or_drains(phase: str) -> None:
    rolling = endpoint(phases={"iris-a": "Serving", "iris-b": phase})
    found = after(Learnt(), epoch(60.0, 2.0, Signals(cpu=0.99, self_test_ms=500.0)), rolling)
    assert (found.advice["iris-a"].limit, found.advice["iris-a"].reason) == (64, Reason.UNSETTLED)


@pytest.mark.case("autoscaler-D10")
def test_it_is_frozen_while_pods_that_were_asked_for_are_not_ready() -> None:
    starting = after(Learnt(), epoch(60.0, 2.0, Signals(cpu=0.99, self_test_ms=500.0)), revisions=[revision(ready=1)])
    assert starting.advice["iris-a"].reason is Reason.UNSETTLED


def test_the_declared_objective_and_maximum_reach_the_learner() -> None:
    said = endpoint(concurrency={"min": 1, "max": 40}, latency={"p95Ms": 300})
    assert said.objective_ms == 300
    found = after(Learnt(), epoch(20.0, 0.5, Signals(p95_ms=900.0, self_test_ms=500.0)), said)
    assert found.advice["iris-a"].reason is Reason.MAXIMUM
    assert found.advice["iris-a"].limit == 40


def test_without_a_revision_that_has_traffic_there_is_no_advice() -> None:
    found = after(Learnt(), epoch(1.0, 0.5), revisions=[revision(role=Role.SUCCESSOR)])
    assert found.advice == {}
    assert found.due_at_s == NOW_S + 30


@pytest.mark.case("autoscaler-I5")
def test_a_learner_that_is_not_called_shows_its_age() -> None:
    found = after(Learnt(), epoch(1.0, 0.5))
    assert found.age_s(NOW_S + 29, SETTINGS) == 29
    assert found.age_s(NOW_S + SETTINGS.overdue_s + 1, SETTINGS) > SETTINGS.overdue_s
    assert Learnt().age_s(NOW_S, SETTINGS) == 0, "not begun is not overdue"


def test_what_is_kept_has_no_question_in_it() -> None:
    asking = Knowledge(limit=64, probe=Probe("p0", 80, WALL_S, Point(60.0, 0.5, 100.0)))
    assert to_keep(Learnt({"k": asking})) == {"k": replace(asking, probe=None)}
