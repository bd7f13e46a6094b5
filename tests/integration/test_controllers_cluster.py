"""The controllers on a real API server: watches, applies, scale, lease, and a rollout with real pods.

Each test has a namespace of its own; pods run the sandbox's image, which does nothing at no cost.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from controllers.__main__ import Process
from controllers.autoscaler.control import Mode
from controllers.autoscaler.journal import lines_of
from controllers.autoscaler.record import Kind, parse_line
from controllers.autoscaler.replay import replay
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.view import foreign_writer, is_claimed
from controllers.kube import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    LEASES,
    MODEL_ENDPOINTS,
    PODS,
    RESOURCE_QUOTAS,
    SERVICES,
    AlreadyExists,
    Conflict,
    Gvr,
    Invalid,
    KubeClient,
    KubeError,
    NotFound,
    Object,
    watch,
)
from controllers.kube.credentials import from_kubeconfig
from controllers.kube.fields import condition, covers, key_of, mapping, number
from controllers.lease import Lease
from controllers.rollout.objects import workload_object
from spec import names
from spec.revision import revision_of
from stacks.cli import groups, holding, workspace
from tests.platform_lab.suite import ENVIRONMENT, INSTANCE
from tests.scenarios.lab.patience import until

pytest_plugins = ["tests.scenarios.lab.real"]
pytestmark = pytest.mark.cluster


@pytest.fixture
async def kind(kube: KubeClient) -> None:
    """The platform's own CRD, installed where it is not."""
    from components.manifests.crd import endpoint_kind

    with contextlib.suppress(AlreadyExists):
        await kube.create(CUSTOM_RESOURCE_DEFINITIONS, None, endpoint_kind())
    await until_established(kube, names.CRD)


async def until_established(kube: KubeClient, name: str) -> None:
    async def established() -> bool:
        crd = await kube.get(CUSTOM_RESOURCE_DEFINITIONS, None, name)
        return condition(crd, "Established").get("status") == "True"

    await until(established, 20)


def config(name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "labels": {"t": "x"}}, "data": data}


async def test_a_watch_tells_the_state_and_then_each_change(kube: KubeClient, namespace: str) -> None:
    await kube.create(CONFIG_MAPS, namespace, config("a", k="1"))
    seen: list[tuple[str, set[str]]] = []
    async with asyncio.timeout(20):
        async for event in kube.watch(CONFIG_MAPS, namespace, "t=x"):
            seen.append((event.type, {key_of(obj)[1] for obj in event.objects}))
            match len(seen):
                case 1:
                    await kube.create(CONFIG_MAPS, namespace, config("b"))
                case 2:
                    await kube.apply(CONFIG_MAPS, namespace, "b", "me", config("b", k="2"))
                case 3:
                    await kube.delete(CONFIG_MAPS, namespace, "a")
                case 4:
                    break
    assert seen == [("SYNC", {"a"}), ("ADDED", {"b"}), ("MODIFIED", {"b"}), ("DELETED", {"a"})]


async def test_an_expired_version_is_gone_and_a_watch_of_one_name_sees_that_one(
    kube: KubeClient, namespace: str
) -> None:
    for name in ("a", "b"):
        await kube.create(CONFIG_MAPS, namespace, config(name))
    async with asyncio.timeout(20):
        async for event in kube.watch(CONFIG_MAPS, namespace, name="b"):
            assert [key_of(obj)[1] for obj in event.objects] == ["b"]
            break


async def test_errors_have_their_types(kube: KubeClient, namespace: str) -> None:
    with pytest.raises(NotFound):
        await kube.get(CONFIG_MAPS, namespace, "none")
    created = await kube.create(CONFIG_MAPS, namespace, config("a"))
    with pytest.raises(AlreadyExists):
        await kube.create(CONFIG_MAPS, namespace, config("a"))
    await kube.apply(CONFIG_MAPS, namespace, "a", "me", config("a", k="2"))
    with pytest.raises(Conflict):
        await kube.replace(CONFIG_MAPS, namespace, created)
    with pytest.raises(Conflict):
        await kube.delete(CONFIG_MAPS, namespace, "a", uid="another")


def deployment(image: str) -> Object:
    container = {"name": "server", "image": image}
    template = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container]}}
    return {"spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template}}


@pytest.mark.case("autoscaler-E2")
async def test_replicas_have_one_owner_and_another_apply_of_the_deployment_leaves_them(
    kube: KubeClient, namespace: str, image: str
) -> None:
    made = await kube.apply(DEPLOYMENTS, namespace, "d", names.MANAGER_ROLLOUT, deployment(image))
    assert number(made, "spec", "replicas") == 1
    assert foreign_writer(made) is None
    await kube.patch_scale(namespace, "d", 0)
    again = await kube.apply(DEPLOYMENTS, namespace, "d", names.MANAGER_ROLLOUT, deployment(image))
    assert number(again, "spec", "replicas") == 0
    assert foreign_writer(again) is None
    await kube.patch_scale(namespace, "d", 2, manager="kubectl")
    assert foreign_writer(await kube.get(DEPLOYMENTS, namespace, "d")) == "kubectl"


async def test_a_scale_that_rests_on_an_old_version_conflicts(kube: KubeClient, namespace: str, image: str) -> None:
    made = await kube.apply(DEPLOYMENTS, namespace, "d", names.MANAGER_ROLLOUT, deployment(image))
    await kube.patch_scale(namespace, "d", 0)
    with pytest.raises(Conflict):
        await kube.patch_scale(namespace, "d", 3, made["metadata"]["resourceVersion"])


@pytest.fixture
async def groups_kind(kube: KubeClient) -> None:
    """LeaderWorkerSet's own definition of its kind, from the module that its controller is built from."""
    place = workspace.from_process(ENVIRONMENT, INSTANCE)
    file = groups.definitions(place, print)[groups.KIND]
    with contextlib.suppress(AlreadyExists):
        await kube.create(CUSTOM_RESOURCE_DEFINITIONS, None, yaml.safe_load(file.read_text()))
    await until_established(kube, groups.KIND)


@pytest.mark.case("autoscaler-E2")
async def test_a_group_fits_its_published_schema_and_its_replicas_have_one_owner(
    kube: KubeClient, groups_kind: None, namespace: str, image: str
) -> None:
    """An apply with a field that the schema doesn't know is refused."""
    body = Stage(kube, namespace, image).endpoint("1")
    body["spec"] |= {"nodes": 2}
    metadata = {"namespace": namespace, "name": "groups", "uid": "5c1a6c5e-0000-4000-8000-000000000000"}
    endpoint = {"apiVersion": names.API_VERSION, "kind": names.KIND, **body, "metadata": metadata}
    name = revision_of("groups", body["spec"]["podTemplate"], 2)
    said = workload_object(endpoint, name)
    said["metadata"].pop("ownerReferences")  # of no endpoint that is there: it would be collected

    async def applied() -> Object:
        return await kube.apply(LEADER_WORKER_SETS, namespace, name, names.MANAGER_ROLLOUT, said)

    async def live() -> Object:
        return await kube.get(LEADER_WORKER_SETS, namespace, name)

    made = await applied()
    assert covers(made, said)
    assert (number(made, "spec", "replicas"), foreign_writer(made), is_claimed(made)) == (1, None, False)
    await kube.patch_scale(namespace, name, 0, made["metadata"]["resourceVersion"], gvr=LEADER_WORKER_SETS)
    again = await applied()
    assert (number(again, "spec", "replicas"), foreign_writer(again), is_claimed(again)) == (0, None, True)
    with pytest.raises(Conflict):
        await kube.patch_scale(namespace, name, 3, made["metadata"]["resourceVersion"], gvr=LEADER_WORKER_SETS)
    await kube.patch_scale(namespace, name, 0, manager="somebody", gvr=LEADER_WORKER_SETS)
    assert foreign_writer(await live()) == "somebody"
    await kube.delete(LEADER_WORKER_SETS, namespace, name, uid=made["metadata"]["uid"])
    with pytest.raises((Conflict, Invalid)):
        await kube.patch_scale(namespace, name, 1, made["metadata"]["resourceVersion"], gvr=LEADER_WORKER_SETS)


async def test_a_kind_that_the_cluster_lacks_is_told_and_found_once_it_is_there(
    kube: KubeClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_ABSENT_S", 0.5)
    group = f"{namespace}.example"
    things = Gvr(group, "v1", "things", "Thing")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    called = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    crd = {
        "metadata": {"name": f"things.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": called, "versions": [version]},
    }
    seen: list[str] = []
    try:
        async with asyncio.timeout(30):
            async for event in kube.watch(things, namespace, optional=True):
                seen.append(event.type)
                if len(seen) == 1:
                    await kube.create(CUSTOM_RESOURCE_DEFINITIONS, None, crd)
                if event.type == "SYNC":
                    break
    finally:
        await kube.delete(CUSTOM_RESOURCE_DEFINITIONS, None, crd["metadata"]["name"])
    assert set(seen[:-1]) == {"ABSENT"}


async def test_a_lease_that_is_given_up_is_taken_within_2_seconds(
    kube: KubeClient, kubeconfig: Path, namespace: str
) -> None:
    async with KubeClient(from_kubeconfig(kubeconfig)) as other:
        first, second = Lease(kube, namespace, "l", "first"), Lease(other, namespace, "l", "second")
        await first.try_once()
        standing_by = asyncio.create_task(second.run())
        try:
            await asyncio.sleep(0.5)
            assert (first.held(), second.held()) == (True, False)
            await first.release()

            async def taken() -> bool:
                return second.held()

            assert await until(taken, 5) <= 2.5
            assert (await kube.get(LEASES, namespace, "l"))["spec"]["holderIdentity"] == "second"
        finally:
            standing_by.cancel()


class Stage:
    """One endpoint, the production process, and a stand-in for the gateway's status."""

    def __init__(self, kube: KubeClient, namespace: str, image: str) -> None:
        self.kube, self.namespace, self.image = kube, namespace, image
        self.name = namespace  # the names of endpoints are unique in a cluster

    def endpoint(self, version: str, low: int = 1, **container: object) -> Object:
        server = {
            "name": "server",
            "image": self.image,
            "ports": [{"name": "http", "containerPort": 8080}],
            "resources": {"requests": {"cpu": "10m"}},
            "env": [{"name": "VERSION", "value": version}],
        } | container
        pod = {"containers": [server], "terminationGracePeriodSeconds": 1}
        return {
            "metadata": {"annotations": {names.ANNOTATION_SPEC_DIGEST: f"digest-{version}-{low}"}},
            "spec": {
                "team": "alpha",
                "model": {"uri": f"models:/iris/{version}", "version": version, "sha256": "0" * 64},
                "runtime": {"name": "mlflow", "initialLimit": 10},
                "podTemplate": {"metadata": {"labels": {}, "annotations": {}}, "spec": pod},
                "concurrency": {"min": low, "max": 100},
                "routing": {"deadlineMs": 1000, "queueMax": 8, "queueTimeoutMs": 1000},
                "access": {"teams": ["alpha"]},
                "rollout": {"holdS": 6, "startTimeoutS": 60},
            },
        }

    async def declare(self, body: Object) -> str:
        await self.kube.apply(MODEL_ENDPOINTS, self.namespace, self.name, "pulumi", body)
        return revision_of(self.name, body["spec"]["podTemplate"])

    async def object(self) -> Object:
        return await self.kube.get(MODEL_ENDPOINTS, self.namespace, self.name)

    async def condition(self, kind: str) -> Object:
        return condition(await self.object(), kind)

    async def is_ready(self) -> bool:
        obj = await self.object()
        ready = condition(obj, "Ready")
        current = ready.get("observedGeneration") == obj["metadata"]["generation"]
        return current and ready["status"] == "True"

    async def phases(self) -> dict[str, str]:
        return {r["name"]: r["phase"] for r in mapping(await self.object(), "status").get("revisions") or []}

    async def deployments(self) -> set[str]:
        return {key_of(d)[1] for d in await self.kube.list(DEPLOYMENTS, self.namespace)}

    async def route(self) -> None:
        """What the gateway does with `trafficRevision`, without the traffic."""
        backends: dict[str, str] = {}
        while True:
            with contextlib.suppress(NotFound):
                obj = await self.object()
                wanted = mapping(obj, "status").get("trafficRevision")
                if wanted:
                    backends.setdefault(wanted, f"b{len(backends):05}")
                    generation = obj["metadata"]["generation"]
                    said = {"generation": generation, "trafficRevision": wanted, "backends": backends}
                    body = {"status": {"gateway": said}}
                    await self.kube.apply_status(
                        MODEL_ENDPOINTS, self.namespace, self.name, names.MANAGER_GATEWAY, body
                    )
            await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def running(kubeconfig: Path, stage: Stage, records: Path) -> AsyncIterator[Process]:
    """The production process from its start to its end."""
    stop = asyncio.Event()
    async with KubeClient(from_kubeconfig(kubeconfig)) as own:
        settings = Settings(down_window_s=5.0, gap_s=5.0)
        process = Process(own, settings, stage.namespace, "test", only=stage.namespace, records=records)
        task = asyncio.create_task(process.run(stop, 0))
        try:
            yield process
        finally:
            stop.set()
            await task


@pytest.fixture
async def routed(kube: KubeClient, kind: None, namespace: str, image: str) -> AsyncIterator[Stage]:
    """An endpoint's place, and its gateway; no controllers."""
    found = Stage(kube, namespace, image)
    routing = asyncio.create_task(found.route())
    yield found
    routing.cancel()


@pytest.fixture
async def stage(kubeconfig: Path, routed: Stage, tmp_path: Path) -> AsyncIterator[Stage]:
    async with running(kubeconfig, routed, tmp_path):
        yield routed


async def test_a_version_goes_live_is_replaced_reverted_and_leaves_nothing(stage: Stage) -> None:
    """One rollout's whole life; each step rests on the one before."""
    one = await stage.declare(stage.endpoint("1", low=12))
    await until(stage.is_ready, 60)
    obj = await stage.object()
    assert obj["status"]["modelVersion"] == "1"
    assert obj["status"]["readySpecDigest"] == "digest-1-12"
    assert obj["status"]["autoscaler"]["desiredReplicas"] == 2, "floor = ceil(12 / 8)"
    live = await stage.kube.get(DEPLOYMENTS, stage.namespace, one)
    assert number(live, "status", "readyReplicas") == 2
    service = await stage.kube.get(SERVICES, stage.namespace, one)
    assert service["spec"]["clusterIP"] == "None"

    two = await stage.declare(stage.endpoint("2", low=12))
    await until(stage.is_ready, 60)
    assert (await stage.object())["status"]["trafficRevision"] == two
    assert (await stage.phases())[one] in ("Draining", "Held")
    pods = await stage.kube.list(PODS, stage.namespace, f"{names.LABEL_REVISION}={one}")
    assert len(pods) == 2, "a held revision keeps its pods"

    uids = {pod["metadata"]["uid"] for pod in pods}
    await stage.declare(stage.endpoint("1", low=12))
    assert await until(stage.is_ready, 20) < 10
    again = await stage.kube.list(PODS, stage.namespace, f"{names.LABEL_REVISION}={one}")
    assert {pod["metadata"]["uid"] for pod in again} == uids

    async def alone() -> bool:
        return await stage.deployments() == {one}

    await until(alone, 30)

    await stage.kube.delete(MODEL_ENDPOINTS, stage.namespace, stage.name)

    async def empty() -> bool:
        left = [*await stage.kube.list(DEPLOYMENTS, stage.namespace), *await stage.kube.list(PODS, stage.namespace)]
        return not left and not await stage.kube.list(SERVICES, stage.namespace)

    await until(empty, 60)


@pytest.mark.parametrize(
    ("container", "reason", "says"),
    [
        ({"image": "127.0.0.1:1/none:1"}, "ImagePullBackOff", "127.0.0.1:1/none"),
        ({"command": ["/nowhere"]}, "ModelLoadFailed", "/nowhere"),
        ({"resources": {"requests": {"cpu": "900"}}}, "Unschedulable", "Insufficient cpu"),
    ],
    ids=["image", "crash", "no room"],
)
async def test_a_successor_that_cannot_start_is_told_and_the_old_one_serves_on(
    stage: Stage, container: Object, reason: str, says: str
) -> None:
    one = await stage.declare(stage.endpoint("1"))
    await until(stage.is_ready, 60)
    two = await stage.declare(stage.endpoint("2", **container))

    async def failed() -> bool:
        return (await stage.phases()).get(two) == "Failed"

    await until(failed, 90)
    ready = await stage.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", reason)
    assert says in ready["message"]

    async def stopped() -> bool:
        return (await stage.condition("CircuitOpen")).get("status") == "True"

    if reason != "Unschedulable":  # a pod that finds no room has not failed
        await until(stopped, 90)
    assert (await stage.condition("Available"))["status"] == "True"
    assert (await stage.object())["status"]["trafficRevision"] == one
    await stage.declare(stage.endpoint("1"))

    async def gone() -> bool:
        return await stage.deployments() == {one}

    await until(gone, 20)
    await until(stage.is_ready, 20)


@pytest.mark.case("autoscaler-E7")
async def test_a_foreign_hand_on_replicas_is_named_and_corrected(stage: Stage) -> None:
    one = await stage.declare(stage.endpoint("1"))
    await until(stage.is_ready, 60)
    await stage.kube.patch_scale(stage.namespace, one, 3, manager="somebody")

    async def corrected() -> bool:
        live = await stage.kube.get(DEPLOYMENTS, stage.namespace, one)
        return number(live, "spec", "replicas") == 1

    await until(corrected, 15)

    async def told() -> bool:
        return (await stage.condition("Scaled")).get("reason") == "ForeignWriter"

    await until(told, 5)
    assert "somebody" in (await stage.condition("Scaled"))["message"]


async def test_a_concurrency_range_changes_replicas_and_no_pod(stage: Stage) -> None:
    one = await stage.declare(stage.endpoint("1"))
    await until(stage.is_ready, 60)
    before = {p["metadata"]["uid"] for p in await stage.kube.list(PODS, stage.namespace)}
    assert await stage.declare(stage.endpoint("1", low=20)) == one

    async def grown() -> bool:
        live = await stage.kube.get(DEPLOYMENTS, stage.namespace, one)
        return number(live, "status", "readyReplicas") == 3

    await until(grown, 30)
    after = {p["metadata"]["uid"] for p in await stage.kube.list(PODS, stage.namespace)}
    assert before < after


@pytest.mark.case("autoscaler-G6")
async def test_what_is_remembered_is_kept_when_the_process_ends_and_found_by_the_next(
    kubeconfig: Path, routed: Stage, tmp_path: Path
) -> None:
    async with running(kubeconfig, routed, tmp_path) as process:
        await routed.declare(routed.endpoint("1", low=12))
        await until(routed.is_ready, 60)

        async def seen() -> bool:
            kept = process.autoscaler.checkpoints().values()
            return any(each.remembered.start_s is not None for each in kept)

        await until(seen, 20)
        assert process.lease.held()
    shard = await routed.kube.get(CONFIG_MAPS, routed.namespace, names.checkpoint_object(0))
    entry = json.loads(shard["data"][f"{routed.namespace}.{routed.name}"])
    uid = (await routed.object())["metadata"]["uid"]
    assert (entry["uid"], abs(entry["written_s"] - time.time()) < 20) == (uid, True)
    assert entry["remembered"]["start_s"] > 0, "the pods told how long they took to be ready"
    async with running(kubeconfig, routed, tmp_path) as process:

        async def found() -> bool:
            return process.checkpoints.find((routed.namespace, routed.name), uid) is not None

        await until(found, 20)
    lines = list(lines_of(tmp_path, routed.namespace, routed.name))
    assert [record.kind for record in map(parse_line, lines)].count(Kind.CHANGE) >= 1
    assert replay(lines).first is None


async def test_a_person_holds_the_replicas_for_a_while_and_the_object_tells_who(stage: Stage) -> None:
    one = await stage.declare(stage.endpoint("1"))
    await until(stage.is_ready, 60)
    await holding.write(stage.kube, await stage.object(), Mode.SCALE, 3, 12.0)

    async def asked(replicas: int) -> bool:
        return number(await stage.kube.get(DEPLOYMENTS, stage.namespace, one), "spec", "replicas") == replicas

    assert await until(lambda: asked(3), 10) < 5

    async def held() -> bool:
        return (await stage.condition("Overridden")).get("status") == "True"

    await until(held, 5)
    assert foreign_writer(await stage.kube.get(DEPLOYMENTS, stage.namespace, one)) is None
    await stage.declare(stage.endpoint("1"))
    assert names.ANNOTATION_CONTROL in (await stage.object())["metadata"]["annotations"], "another apply leaves it"

    async def over() -> bool:
        return await stage.condition("Overridden") == {}

    await until(over, 25)
    await holding.write(stage.kube, await stage.object(), Mode.PAUSE, None, None)

    async def paused() -> bool:
        return (await stage.condition("Paused")).get("status") == "True"

    await until(paused, 10)
    await holding.release(stage.kube, await stage.object())
    assert names.ANNOTATION_CONTROL not in (await stage.object())["metadata"]["annotations"]

    async def resumed() -> bool:
        return await stage.condition("Paused") == {}

    await until(resumed, 10)


async def test_a_hold_makes_no_endpoint_of_one_that_is_gone(stage: Stage) -> None:
    await stage.declare(stage.endpoint("1"))
    gone = await stage.object()
    await stage.kube.delete(MODEL_ENDPOINTS, stage.namespace, stage.name)

    async def left() -> bool:
        return not await stage.kube.list(MODEL_ENDPOINTS, stage.namespace)

    await until(left, 60)
    with pytest.raises(KubeError):
        await holding.write(stage.kube, gone, Mode.PAUSE, None, None)
    assert await left()


@pytest.mark.case("autoscaler-C9")
async def test_a_quota_of_the_namespace_bounds_what_is_asked_for(stage: Stage) -> None:
    quota = {"metadata": {"name": "quota"}, "spec": {"hard": {"pods": "2"}}}
    await stage.kube.create(RESOURCE_QUOTAS, stage.namespace, quota)
    one = await stage.declare(stage.endpoint("1"))
    await until(stage.is_ready, 60)
    await stage.declare(stage.endpoint("1", low=60))

    async def bounded() -> bool:
        return (await stage.condition("AtBudget")).get("status") == "True"

    await until(bounded, 30)
    assert number(await stage.kube.get(DEPLOYMENTS, stage.namespace, one), "spec", "replicas") == 2
