"""What stands in an endpoint's status, when it is written, and what the gateway remembers on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from controllers.gateway import files
from controllers.gateway.assignment import Assignment, Revision
from controllers.gateway.desired import Live, LiveServer, Mode
from controllers.gateway.metrics import Metrics
from controllers.gateway.observed import Declared, Identity, Object, read_endpoint
from controllers.gateway.publish import LIVE_NUMBERS_S, News, Publisher, stands
from controllers.gateway.settings import Settings, SettingsError, connections_that_fit, from_environment
from controllers.gateway.snapshot import Endpoint, Problem, endpoint
from controllers.gateway.status import Condition, Report, body, report
from controllers.kube import Gvr, NotFound, Unreachable
from tests.gateway_lab.cluster import endpoint_object, revision

REV, NEXT = revision("iris"), revision("iris", 2)
HOME = Identity("team-alpha", "iris")


def known(traffic: str | None = REV) -> Endpoint:
    said = read_endpoint(endpoint_object(traffic=traffic or "", revisions=[REV, NEXT]))
    assert isinstance(said, Declared)
    return endpoint(said, [], None)


def live(*servers: LiveServer) -> Live:
    return Live(1, servers={"b00001": {f"p{i}": each for i, each in enumerate(servers)}})


READY = LiveServer("10.0.0.1", 1, 4, Mode.READY, 0)
DRAINING = LiveServer("10.0.0.2", 1, 4, Mode.DRAIN, 3)
ASSIGNED = Assignment({Revision("iris", REV): "b00001"})


def test_a_report_tells_what_is_in_force_and_leaves_out_what_drains() -> None:
    said = report(known(), ASSIGNED, live(READY, READY, DRAINING), REV, None)
    assert (said.limits, said.ready_servers, said.backends) == ({REV: 8}, {REV: 2}, {REV: "b00001"})
    assert (said.traffic_revision, said.generation) == (REV, 1)


@pytest.mark.parametrize(
    ("traffic", "assigned", "servers", "routed", "problem", "status", "reason"),
    [
        (REV, ASSIGNED, [READY], REV, None, True, "Routed"),
        (REV, ASSIGNED, [DRAINING], REV, None, False, "NoReadyPods"),
        (REV, ASSIGNED, [], REV, None, False, "NoReadyPods"),
        (REV, ASSIGNED, [READY], None, None, False, "WaitingForPods"),
        (NEXT, ASSIGNED, [READY], REV, None, False, "NoSpareBackend"),
        (None, ASSIGNED, [], None, None, False, "NoTrafficRevision"),
        (REV, ASSIGNED, [READY], REV, Problem(HOME, "InvalidSpec", "limit is 0"), False, "InvalidSpec"),
    ],
)
def test_the_condition_says_whether_requests_reach_the_declared_revision_and_why_not(
    traffic: str | None,
    assigned: Assignment,
    servers: list[LiveServer],
    routed: str | None,
    problem: Problem | None,
    status: bool,
    reason: str,
) -> None:
    said = report(known(traffic), assigned, live(*servers), routed, problem).condition
    assert (said.status, said.reason) == (status, reason)
    assert said.message


def news(limit: int = 4, reason: str = "Routed", status: bool = True) -> News:
    condition = Condition(status, reason, "text")
    return News(1, condition, Report(1, REV, {REV: "b00001"}, condition, {REV: limit}, {REV: 1}))


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    said = news()
    first = body(HOME, said.condition, "T1", None, 1, said.report)["status"]["conditions"][0]
    assert first["lastTransitionTime"] == "T1"
    again = body(HOME, Condition(True, "Other", "x"), "T2", first, 2, said.report)["status"]["conditions"][0]
    assert (again["lastTransitionTime"], again["reason"], again["observedGeneration"]) == ("T1", "Other", 2)
    turned = body(HOME, Condition(False, "Other", "x"), "T3", again, 2, said.report)["status"]["conditions"][0]
    assert turned["lastTransitionTime"] == "T3"


def test_a_probe_is_told_with_the_limit_that_is_in_force() -> None:
    asked = {"pod": "p0", "limit": 9, "weight": 256}
    declared = read_endpoint(endpoint_object(limits={REV: 4}, probe=asked))
    assert isinstance(declared, Declared)
    said = report(endpoint(declared, [], None), ASSIGNED, live(READY), REV, None)
    status = body(HOME, said.condition, "T", None, 1, said)["status"]
    assert status["gateway"]["probes"] == {REV: {"pod": "p0", "limit": 4}}
    gone = report(endpoint(declared, [], None), ASSIGNED, live(), REV, None)
    assert gone.probes == {}


def test_a_status_holds_only_our_own_keys() -> None:
    status = body(HOME, news().condition, "T", None, 1, news().report)["status"]
    assert set(status) == {"conditions", "gateway"}
    assert status["gateway"] == {
        "generation": 1,
        "trafficRevision": REV,
        "backends": {REV: "b00001"},
        "limits": {REV: 4},
        "readyServers": {REV: 1},
        "at": "T",
    }
    assert set(body(HOME, news().condition, "T", None, 1, None)["status"]) == {"conditions"}


class Api:
    def __init__(self) -> None:
        self.written: list[Object] = []
        self.fails: Exception | None = None

    async def apply_status(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        if self.fails is not None:
            raise self.fails
        assert (namespace, name, manager) == ("team-alpha", "iris", "knobless-gateway")
        self.written.append(body["status"])
        return body


@pytest.fixture
def api() -> Api:
    return Api()


async def publish(publisher: Publisher, said: News, now_s: float) -> None:
    publisher.tell({HOME: said})
    await publisher.publish(now_s)


async def test_what_others_wait_for_is_written_at_once_and_live_numbers_every_thirty_seconds(api: Api) -> None:
    publisher = Publisher(api, {}, lambda: 0.0)
    await publish(publisher, news(4), 0.0)
    await publish(publisher, news(4), 1.0)
    assert len(api.written) == 1
    await publish(publisher, news(5), 2.0)
    await publish(publisher, news(6), LIVE_NUMBERS_S - 0.1)
    assert len(api.written) == 1
    await publish(publisher, news(7), LIVE_NUMBERS_S)
    assert [each["gateway"]["limits"][REV] for each in api.written] == [4, 7]
    await publish(publisher, news(7, "NoReadyPods", False), LIVE_NUMBERS_S + 0.1)
    assert len(api.written) == 3


async def test_an_api_server_that_is_away_gets_it_later(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(api, {}, lambda: 0.0)
    api.fails = Unreachable("away")
    await publish(publisher, news(), 0.0)
    api.fails = None
    await publisher.publish(1.0)
    await publisher.publish(2.0)
    assert len(api.written) == 1


async def test_an_endpoint_that_is_gone_is_no_error(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(api, {}, lambda: 0.0)
    api.fails = NotFound(404, "NotFound", "gone")
    await publish(publisher, news(), 0.0)
    assert caplog.records == []


async def test_a_restart_writes_nothing_that_stands_there_already(api: Api) -> None:
    obj = endpoint_object()
    obj["status"] |= body(HOME, news().condition, "T", None, 1, news().report)["status"]
    publisher = Publisher(api, {HOME: obj}, lambda: 0.0)
    await publish(publisher, news(), 0.0)
    assert api.written == []
    await publish(publisher, news(reason="NoReadyPods", status=False), 1.0)
    assert len(api.written) == 1


@pytest.mark.parametrize("change", ["limits", "conditions", "nothing"])
def test_a_status_stands_only_if_all_of_it_does(change: str) -> None:
    obj = endpoint_object()
    obj["status"] |= body(HOME, news().condition, "T", None, 1, news().report)["status"]
    if change == "limits":
        obj["status"]["gateway"]["limits"] = {REV: 9}
    elif change == "conditions":
        obj["status"]["conditions"] = []
    assert stands(news(), obj) == (change == "nothing")
    assert not stands(news(), None)


def test_memory_survives_a_restart_and_holds_no_pod_template(tmp_path: Path) -> None:
    obj = endpoint_object(limits={REV: 7}, teams=["beta"])
    obj["spec"]["podTemplate"] = {"spec": "large"}
    path = tmp_path / "state.json"
    before = Assignment({Revision("iris", REV): "b00001"}, ("b00003", "b00002"))
    files.write(path, files.memory_text(before, {HOME: obj}))
    assignment, objects, good = files.remembered(path)
    assert assignment == before
    assert good == {HOME: read_endpoint(obj)}
    assert "large" not in path.read_text()
    assert objects[HOME]["metadata"]["name"] == "iris"


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"backends": 5}', '{"backends": [], "freed": []}'])
def test_memory_that_cannot_be_read_is_no_memory(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "state.json"
    if text is not None:
        path.write_text(text)
    assert files.remembered(path) == (Assignment(), {}, {})


@pytest.mark.case("gateway-B7")
def test_a_file_appears_whole_and_an_equal_one_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    assert files.write(path, "one")
    inode = path.stat().st_ino
    assert not files.write(path, "one")
    assert path.stat().st_ino == inode
    assert files.write(path, "two")
    assert (path.read_text(), path.stat().st_ino != inode) == ("two", True)
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_settings_come_from_the_environment_and_have_defaults() -> None:
    assert from_environment({}, files_max=1 << 20) == Settings()
    found = from_environment({"KNOBLESS_GATEWAY_SPARE_BACKENDS": "32", "KNOBLESS_GATEWAY_CERTIFICATE": ""}, 1 << 20)
    assert sum(each.backends for each in found.queue_classes) == 32
    assert found.certificate is None


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "", "٣"])
def test_a_variable_that_cannot_be_used_is_named(text: str) -> None:
    with pytest.raises(SettingsError, match="KNOBLESS_GATEWAY_SPARE_BACKENDS"):
        from_environment({"KNOBLESS_GATEWAY_SPARE_BACKENDS": text})


@pytest.mark.case("gateway-A10")
@pytest.mark.parametrize(
    ("wanted", "files_max", "expected"), [(8000, 1 << 20, 8000), (8000, 4096, 1948), (8000, 64, 100)]
)
def test_connections_fit_into_the_open_files_that_the_process_may_have(
    wanted: int, files_max: int, expected: int
) -> None:
    assert connections_that_fit(wanted, files_max) == expected


def test_a_revision_that_went_is_counted_no_more_and_one_that_changed_anew() -> None:
    metrics = Metrics()
    metrics.count({("iris", REV): (8, 2), ("iris", NEXT): (4, 1)})
    metrics.count({("iris", NEXT): (6, 1)})
    lines = generate_latest(metrics.registry).decode().splitlines()
    assert [line for line in lines if line.startswith("knobless_gateway_limit{")] == [
        f'knobless_gateway_limit{{endpoint="iris",revision="{NEXT}"}} 6.0'
    ]
