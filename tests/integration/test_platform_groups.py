"""Replicas over two pods, groups of LeaderWorkerSet's real controller: up, asked, scaled, broken, replaced, removed.

The server is a stub that needs to be told its place in its group; the real vLLM is in `test_engines_cluster.py`.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from controllers.kube import (
    MODEL_ENDPOINTS,
    PODS,
    SERVICES,
    Gvr,
    Object,
)
from controllers.kube.fields import condition, mapping
from spec import names
from tests.gateway_lab.client import Client
from tests.platform_lab.command import wait_until
from tests.platform_lab.suite import Suite, sleeping

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SETS = Gvr("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
STATEFUL_SETS = Gvr("apps", "v1", "statefulsets", "StatefulSet")
SERVER = (Path(__file__).parent / "group_server.py").read_text()
PLACE = names.team_namespace("alpha")
SET_LABEL = "leaderworkerset.sigs.k8s.io/name"
INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"
LEAVE_S, GRACE_S = 4, 20


@pytest.fixture(scope="module")
def image(suite: Suite) -> str:
    """The platform's own, which has a Python; and LeaderWorkerSet is there, since a file asks for two nodes."""
    suite.declare("spread", model="models:/sleeper/1", resources={"nodes": 2})
    suite.declare("anchor", resources={"cpu": "100m", "memory": "512Mi"})
    said = suite.up("anchor")
    print(said.text)
    assert "leaderworkerset" in said.text
    (pod,) = suite.system_pods("gateway")
    return str(pod["spec"]["containers"][0]["image"])


def pod_spec(image: str, version: str) -> Object:
    server = {
        "name": "server",
        "image": image,
        "command": ["python", "-c", SERVER],
        "env": [{"name": "NODES", "value": "2"}, {"name": "VERSION", "value": version}],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "20m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}},
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVE_S}}},
        "startupProbe": ping(1, 60),
        "readinessProbe": ping(1, 2),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "containers": [server],
        "securityContext": security,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_S,
    }


def ping(period_s: int, failures: int) -> Object:
    return {"httpGet": {"path": "/ping", "port": 8080}, "periodSeconds": period_s, "failureThreshold": failures}


def listed(suite: Suite, gvr: Gvr, labels: str) -> list[Object]:
    return suite.ask(lambda kube: kube.list(gvr, PLACE, labels))


def serving(suite: Suite, labels: str) -> dict[str, str]:
    """Ready pods that are not about to end: name -> uid."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in listed(suite, PODS, labels)
        if condition(pod, "Ready").get("status") == "True" and "deletionTimestamp" not in pod["metadata"]
    }


# LeaderWorkerSet alone


def test_its_controller_makes_groups_scales_them_and_makes_a_broken_one_anew(suite: Suite, image: str) -> None:
    labels = f"{SET_LABEL}=plain"
    spec = pod_spec(image, "1")
    del spec["containers"][0]["lifecycle"]  # nobody sends it requests
    template = {"metadata": {"labels": {}}, "spec": spec}
    body = {
        "metadata": {"name": "plain", "labels": names.managed_labels("test")},
        "spec": {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
    }
    suite.ask(lambda kube: kube.apply(SETS, PLACE, "plain", "test", body))
    first = wait_until(lambda: found(serving(suite, labels), {"plain-0", "plain-0-1"}), 60, "one group")

    scale = suite.kubectl("-n", PLACE, "scale", SETS.plural, "plain", "--replicas=2")
    assert scale.code == 0, scale.text
    both = {"plain-0", "plain-0-1", "plain-1", "plain-1-1"}
    grown = wait_until(lambda: found(serving(suite, labels), both), 60, "two groups")
    assert {name: grown[name] for name in first} == first

    suite.ask(lambda kube: kube.delete(PODS, PLACE, "plain-0-1"))

    def anew() -> bool:
        now = serving(suite, labels)
        changed = {name for name in now if now[name] != grown[name]}
        return set(now) == both and changed == {"plain-0", "plain-0-1"}

    wait_until(anew, 90, "the group of the worker that was deleted, and no other, is another one")
    suite.ask(lambda kube: kube.delete(SETS, PLACE, "plain"))
    wait_until(lambda: not listed(suite, PODS, labels), 60, "its pods are gone")
    assert not listed(suite, STATEFUL_SETS, labels)


def found(now: dict[str, str], wanted: set[str]) -> dict[str, str]:
    return now if set(now) == wanted else {}


# An endpoint of groups


class Groups:
    """An endpoint object with a stub's pods, two of them a replica."""

    name = "groups"
    labels = f"{names.LABEL_ENDPOINT}={name}"
    leaders = f"{labels},{INDEX_LABEL}=0"

    def __init__(self, suite: Suite, image: str) -> None:
        self.suite, self.image = suite, image

    def declare(self, version: str, low: int = 1) -> None:
        body: Object = {
            "metadata": {"annotations": {names.ANNOTATION_SPEC_DIGEST: f"digest-{version}-{low}"}},
            "spec": {
                "team": "alpha",
                "model": {"uri": f"models:/groups/{version}", "version": version, "sha256": "0" * 64},
                "runtime": {"name": "vllm", "initialLimit": 10},
                "nodes": 2,
                "podTemplate": {"metadata": {"labels": {}, "annotations": {}}, "spec": pod_spec(self.image, version)},
                "concurrency": {"min": low, "max": 100},
                "routing": {"deadlineMs": 10_000, "queueMax": 64, "queueTimeoutMs": 10_000},
                "access": {"teams": ["alpha"]},
                "rollout": {"holdS": 0, "startTimeoutS": 120},
            },
        }
        self.suite.ask(lambda kube: kube.apply(MODEL_ENDPOINTS, PLACE, self.name, "pulumi", body))

    def is_ready(self) -> bool:
        obj = self.suite.object(self.name) or {}
        ready = condition(obj, "Ready")
        current = ready.get("observedGeneration") == mapping(obj, "metadata").get("generation")
        return current and ready.get("status") == "True"

    def groups(self) -> set[str]:
        """Revision and number of each group whose leader and worker are both ready."""
        return {name for name in serving(self.suite, self.leaders) if f"{name}-1" in serving(self.suite, self.labels)}

    def answers(self, count: int) -> set[tuple[str, str]]:
        """(pod, version) of so many requests, sent side by side."""
        target = self.suite.target(self.name)

        async def one() -> tuple[str, str]:
            client = Client(target.port, target.key, target.tls, target.host)
            headers = {"content-type": "application/json"}
            reply = await client.call(self.name, "invocations", body=sleeping(0.3), headers=headers)
            await client.leave()
            assert reply.status == 200, reply.body
            pod, version = json.loads(reply.body)["predictions"]
            return pod, version

        async def all_of_them() -> list[tuple[str, str]]:
            return await asyncio.gather(*(one() for _ in range(count)))

        return set(asyncio.run(all_of_them()))


@pytest.fixture(scope="module")
def groups(suite: Suite, image: str) -> Groups:
    stage = Groups(suite, image)
    stage.declare("1")
    wait_until(stage.is_ready, 90, "the endpoint is ready")
    return stage


def test_requests_reach_leaders_only(suite: Suite, groups: Groups) -> None:
    (leader,) = groups.groups()
    assert groups.answers(20) == {(leader, "1")}
    groups.declare("1", low=12)
    two = wait_until(lambda: pair(groups.groups()), 60, "a floor of 12 at 8 each is two groups")
    assert leader in two
    wait_until(lambda: {pod for pod, _ in groups.answers(20)} == two, 30, "both are asked")
    assert len(serving(suite, groups.labels)) == 4


def pair(found: set[str]) -> set[str]:
    return found if len(found) == 2 else set()


def test_a_worker_that_is_lost_takes_its_group_and_the_other_serves(suite: Suite, groups: Groups) -> None:
    before = serving(suite, groups.labels)
    broken, whole = sorted(groups.groups())
    suite.ask(lambda kube: kube.delete(PODS, PLACE, f"{broken}-1"))

    def anew() -> bool:
        now = serving(suite, groups.labels)
        return set(now) == set(before) and all(
            (now[name] != before[name]) == name.startswith(broken) for name in before
        )

    wait_until(lambda: {pod for pod, _ in groups.answers(4)} == {whole}, 60, "the whole group alone is asked")
    wait_until(anew, 90, "the group is made anew, and the other one is what it was")
    wait_until(groups.is_ready, 30, "the endpoint is ready again")


def test_a_group_that_is_scaled_away_first_answers_what_it_has(suite: Suite, groups: Groups) -> None:
    """A person's hand takes the highest number; the autoscaler takes the decrease back, and it begins anew."""
    groups.declare("1", low=12)
    wait_until(lambda: pair(groups.groups()), 60, "two groups")
    with suite.load(groups.name, clients=12, sleep_s=0.5) as tally:
        wait_until(lambda: tally.total > 24, 30, "both have requests")
        before = serving(suite, groups.labels)
        stays, goes = sorted(groups.groups())
        (owner,) = [obj["metadata"]["name"] for obj in of_it(suite, SETS)]
        scaled = suite.kubectl("-n", PLACE, "scale", SETS.plural, owner, "--replicas=1")
        assert scaled.code == 0, scaled.text

        def anew() -> bool:
            now = serving(suite, groups.labels)
            return set(now) == set(before) and now[goes] != before[goes]

        wait_until(anew, 90, "the highest number is another group")
        assert serving(suite, groups.labels)[stays] == before[stays]
    assert not tally.failed, (tally.failed, tally.failures)


def test_load_adds_groups_and_a_new_revision_loses_no_request(suite: Suite, groups: Groups) -> None:
    groups.declare("1", low=1)
    with suite.load(groups.name, clients=30, sleep_s=0.5) as tally:
        wait_until(lambda: len(groups.groups()) >= 3, 90, "30 in flight at 8 each ask for more than two groups")
        groups.declare("2", low=1)
        wait_until(lambda: suite.status(groups.name).get("modelVersion") == "2", 120, "the second version has traffic")
        wait_until(lambda: versions(suite) == {"2"}, 120, "the pods of the first have ended")
    assert not tally.failed, (tally.failed, tally.failures)
    assert tally.total > 200
    assert {version for _, version in groups.answers(8)} == {"2"}


def versions(suite: Suite) -> set[str]:
    told = [pod["spec"]["containers"][0]["env"] for pod in listed(suite, PODS, Groups.labels)]
    return {each["value"] for env in told for each in env if each["name"] == "VERSION"}


def test_its_removal_leaves_nothing(suite: Suite, groups: Groups) -> None:
    suite.ask(lambda kube: kube.delete(MODEL_ENDPOINTS, PLACE, groups.name))

    def left() -> list[str]:
        kinds = (SETS, STATEFUL_SETS, PODS, SERVICES)
        return [f"{gvr.kind} {obj['metadata']['name']}" for gvr in kinds for obj in of_it(suite, gvr)]

    wait_until(lambda: not left(), 90, "sets, groups, pods and Services are gone")


def of_it(suite: Suite, gvr: Gvr) -> list[Object]:
    """By its label, or, as LeaderWorkerSet's own objects have it, by the name of its revision."""
    return [obj for obj in listed(suite, gvr, "") if obj["metadata"]["name"].startswith(f"{Groups.name}-")]


def test_without_a_file_that_asks_for_it_the_controller_goes(suite: Suite, image: str) -> None:
    suite.file("alpha", "spread").unlink()
    said = suite.must("up", "--no-demo", "--yes", "--only", "anchor")
    assert "leaderworkerset" in said.text
    wait_until(lambda: not suite.system_pods("leaderworkerset"), 60, "its pod has ended")
    suite.file("alpha", "anchor").unlink()
