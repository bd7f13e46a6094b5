"""The last look before replicas are written, what is said afterwards, and the controllers' own numbers."""

import copy

import pytest

from controllers.autoscaler.act import Scaler
from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.demand import Demand
from controllers.autoscaler.observation import Role
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.status import Change
from controllers.autoscaler.view import Endpoint, endpoint_of
from controllers.kube import LEADER_WORKER_SETS, Conflict, Forbidden, Gvr, NotFound, Object, Unreachable
from controllers.kube.store import Store
from controllers.lease import FencedWriter, NotLeader
from controllers.metrics import Metrics, _response
from controllers.workloads import KINDS

ENDPOINT_OBJECT: Object = {
    "apiVersion": "knobless.dev/v1alpha1",
    "kind": "ModelEndpoint",
    "metadata": {"namespace": "team-alpha", "name": "iris", "uid": "u1", "generation": 1},
    "spec": {"concurrency": {"min": 1, "max": 100}, "runtime": {"initialLimit": 10}},
}
ENDPOINT: Endpoint = endpoint_of(ENDPOINT_OBJECT)


class Server:
    """One Deployment; `trouble` is raised by the next writes, in order."""

    def __init__(self, replicas: int, owner: str | None = "knobless-autoscaler") -> None:
        self.deployment = deployment(replicas, owner)
        self.trouble: list[Exception] = []
        self.scaled: list[tuple[int, str]] = []
        self.events: list[Object] = []
        self.gone = False
        self.kinds: set[Gvr] = set()

    async def get(self, gvr: Gvr, namespace: str, name: str) -> Object:
        if self.gone:
            raise NotFound(404, "NotFound", name)
        self.kinds.add(gvr)
        return copy.deepcopy(self.deployment)

    async def patch_scale(
        self, namespace: str, name: str, replicas: int, version: str, manager: str, gvr: Gvr
    ) -> Object:
        if self.trouble:
            raise self.trouble.pop(0)
        self.scaled.append((replicas, version))
        self.kinds.add(gvr)
        return {}

    async def create(self, gvr: Gvr, namespace: str, body: Object, manager: str) -> Object:
        if self.trouble:
            raise self.trouble.pop(0)
        self.events.append(body)
        return body


class Lease:
    def __init__(self, mine: bool = True) -> None:
        self.mine = mine

    def check(self) -> None:
        if not self.mine:
            raise NotLeader("not ours")


def deployment(replicas: int, owner: str | None = "knobless-autoscaler") -> Object:
    fields = [{"manager": owner, "fieldsV1": {"f:spec": {"f:replicas": {}}}}] if owner else []
    metadata = {
        "namespace": "team-alpha",
        "name": "iris-a",
        "uid": "d1",
        "resourceVersion": "7",
        "managedFields": fields,
    }
    return {"metadata": metadata, "spec": {"replicas": replicas}}


def verdict(desired: int, issued: int = 2) -> Verdict:
    made = Decision("iris-a", Role.TRAFFIC, 10, 8.0, issued, desired, Reason.LOAD, (("raw", desired),), True)
    return Verdict((made,), Demand(30.0, True, False), 30.0, 0.0)


async def scale(
    server: Server, said: Verdict, seen: Object | None = None, lease: Lease | None = None
) -> tuple[list[Change], set[str]]:
    writer = FencedWriter(server, lease or Lease())
    scaler = Scaler(server, writer, {gvr: Store(gvr) for gvr in KINDS}, "test", lambda: 1_700_000_000.0)
    return await scaler.scale(ENDPOINT, [seen or server.deployment], said)


async def test_what_stands_already_is_not_written() -> None:
    server = Server(4)
    assert await scale(server, verdict(4, issued=4)) == ([], set())
    assert server.scaled == []


async def test_a_change_whose_answer_was_lost_is_told_when_it_is_seen_and_not_made_again() -> None:
    server = Server(2)
    server.trouble = [Unreachable("no answer")]
    assert await scale(server, verdict(4)) == ([], {"iris-a"})
    made = Server(4)  # it had arrived
    changes, unwritten = await scale(made, verdict(4))
    assert [(c.was, c.decision.desired, c.reason) for c in changes] == [(2, 4, Reason.LOAD)]
    assert (unwritten, made.scaled) == (set(), [])


async def test_a_change_rests_on_the_version_just_read() -> None:
    server = Server(2)
    changes, unwritten = await scale(server, verdict(4))
    assert server.scaled == [(4, "7")]
    assert [(c.was, c.decision.desired, c.reason) for c in changes] == [(2, 4, Reason.LOAD)]
    assert unwritten == set()


async def test_groups_are_read_and_written_as_the_kind_that_they_are() -> None:
    server = Server(2)
    server.deployment["kind"] = LEADER_WORKER_SETS.kind
    changes, _ = await scale(server, verdict(4))
    assert [c.decision.desired for c in changes] == [4]
    assert server.kinds == {LEADER_WORKER_SETS}


async def test_an_old_view_of_what_stands_already_is_no_change() -> None:
    server = Server(4)
    assert await scale(server, verdict(4, issued=4), seen=deployment(2)) == ([], set())
    assert server.scaled == []


async def test_replicas_that_nobody_owns_are_claimed_without_a_word() -> None:
    server = Server(1, owner=None)
    assert await scale(server, verdict(1, issued=1)) == ([], set())
    assert server.scaled == [(1, "7")]


@pytest.mark.case("autoscaler-E7", "pulumi-A3")
async def test_another_hand_is_named() -> None:
    server = Server(9, owner="kubectl")
    changes, _ = await scale(server, verdict(2))
    assert [(c.was, c.foreign, c.reason) for c in changes] == [(9, "kubectl", Reason.FOREIGN)]


async def test_a_conflict_is_tried_again_on_what_stands_then() -> None:
    server = Server(2)
    server.trouble = [Conflict(409, "Conflict", "moved on")] * 2
    changes, unwritten = await scale(server, verdict(4))
    assert (len(changes), unwritten, server.scaled) == (1, set(), [(4, "7")])


@pytest.mark.parametrize(
    "trouble",
    [[Conflict(409, "Conflict", "moved on")] * 3, [Unreachable("away")], [Forbidden(403, "Forbidden", "rbac")]],
    ids=["conflicts", "away", "forbidden"],
)
async def test_a_write_that_fails_is_told_and_leaves_the_cycle_whole(trouble: list[Exception]) -> None:
    server = Server(2)
    server.trouble = trouble
    assert await scale(server, verdict(4)) == ([], {"iris-a"})


async def test_a_deployment_that_is_gone_is_nothing_to_write() -> None:
    server = Server(2)
    server.gone = True
    assert await scale(server, verdict(4)) == ([], set())


@pytest.mark.case("autoscaler-G5")
async def test_without_the_lease_nothing_is_written() -> None:
    server = Server(2)
    with pytest.raises(NotLeader):
        await scale(server, verdict(4), lease=Lease(mine=False))
    assert server.scaled == []


async def announced(server: Server, change: Change) -> None:
    scaler = Scaler(
        server, FencedWriter(server, Lease()), {gvr: Store(gvr) for gvr in KINDS}, "test", lambda: 1_700_000_000.0
    )
    await scaler.announce(ENDPOINT_OBJECT, change, verdict(4))


@pytest.mark.parametrize(
    ("foreign", "kind", "reason"), [(None, "Normal", "Load"), ("kubectl", "Warning", "ForeignWriter")]
)
async def test_a_change_is_an_event_on_the_endpoint(foreign: str | None, kind: str, reason: str) -> None:
    server = Server(2)
    await announced(server, Change(verdict(4).decisions[0], 2, foreign))
    event = server.events[0]
    assert (event["type"], event["reason"], event["involvedObject"]["uid"]) == (kind, reason, "u1")
    assert event["message"].startswith("iris-a: 2 -> 4 replicas; demand 30.0")


async def test_an_event_that_cannot_be_written_is_passed_by() -> None:
    server = Server(2)
    server.trouble = [Forbidden(403, "Forbidden", "quota")]
    await announced(server, Change(verdict(4).decisions[0], 2))
    assert server.events == []


def page(path: str, *, healthy: bool = True) -> str:
    metrics = Metrics()
    metrics.desired.labels("n", "iris").set(4)
    metrics.desired.labels("n", "gone").set(1)
    metrics.forget("n", "gone")
    return _response(f"GET {path} HTTP/1.1\r\n\r\n".encode(), metrics.registry, lambda: healthy).decode()


def test_metrics_hold_what_lives_and_nothing_of_what_is_gone() -> None:
    text = page("/metrics")
    assert 'knobless_autoscaler_desired_replicas{endpoint="iris",namespace="n"} 4.0' in text
    assert "gone" not in text


@pytest.mark.parametrize(
    ("path", "healthy", "expected"),
    [("/healthz", True, "200"), ("/healthz?x=1", True, "200"), ("/healthz", False, "503"), ("/x", True, "404")],
)
def test_health_is_a_status_code(path: str, healthy: bool, expected: str) -> None:
    assert page(path, healthy=healthy).split(" ")[1] == expected
