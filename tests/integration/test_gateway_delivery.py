"""Changes, restarts and outages reach HAProxy without a failed request and without a reload."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controllers.gateway.runtime_api import RuntimeApiError
from controllers.gateway.settings import QueueClass
from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS
from tests.gateway_lab.client import Client
from tests.gateway_lab.cluster import endpoint_object, keys_object, revision, slices
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving, settings_in, until
from tests.gateway_lab.pods import Gate

pytestmark = pytest.mark.process
REV, NEXT = revision("iris"), revision("iris", 2)


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run") as found:
        yield found


@dataclass
class Load:
    """What clients got so far; a connection that broke under a request counts as `broken`."""

    seen: Counter[str] = field(default_factory=Counter)
    clients: list[Client] = field(default_factory=list)

    @property
    def failed(self) -> dict[str, int]:
        return {what: count for what, count in self.seen.items() if what != "200"}

    async def goes_on(self, requests: int = 50) -> None:
        before = self.seen["200"]
        await until(lambda: self.seen["200"] >= before + requests)


@asynccontextmanager
async def load(running: Gateway, clients: int = 8, endpoint: str = "iris", key: str = KEY) -> AsyncIterator[Load]:
    found, stop = Load(), asyncio.Event()

    async def client() -> None:
        connection = running.client(key)
        found.clients.append(connection)
        while not stop.is_set():
            try:
                found.seen[str((await connection.call(endpoint)).status)] += 1
            except (OSError, asyncio.IncompleteReadError):
                found.seen["broken"] += 1
                await connection.leave()

    tasks = [asyncio.create_task(client()) for _ in range(clients)]
    try:
        yield found
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def pid(running: Gateway) -> int:
    return (await running.live()).pid


@pytest.mark.case("gateway-B8")
@pytest.mark.case("gateway-C1")
@pytest.mark.case("gateway-A15")
async def test_a_hundred_changes_of_pods_fail_no_request_and_leave_one_process_and_no_server(running: Gateway) -> None:
    pods = [await running.pod(f"{REV}-{i}", 0.002) for i in range(4)]
    await serving(running, pods[:2], limit=4)
    before = await pid(running)
    async with load(running) as traffic:
        for turn in range(100):
            present = [pods[turn % 4], pods[(turn + 1) % 4]]
            running.cluster.put_pods("iris", REV, present)
            await running.taking({pod.name for pod in present})
        await traffic.goes_on()
    await running.servers_become({pod.name: 4 for pod in present})
    assert traffic.failed == {}
    assert await pid(running) == before
    assert max(pod.peak for pod in pods) <= 4


async def flip(running: Gateway, traffic: str) -> None:
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(traffic=traffic, revisions=[REV, NEXT]))
    await running.routed()


async def test_traffic_moves_to_another_revision_and_back_without_a_failed_request(running: Gateway) -> None:
    old, new = await running.pod(f"{REV}-a", 0.002), await running.pod(f"{NEXT}-a", 0.002)
    await serving(running, [old])
    running.cluster.put_pods("iris", NEXT, [new])
    async with load(running) as traffic:
        await running.servers_become({old.name: 4, new.name: 4})
        assert new.served == 0
        await flip(running, NEXT)
        served = old.served + old.in_flight
        await traffic.goes_on()
        assert old.served <= served + 8
        await flip(running, REV)
        await traffic.goes_on()
        await flip(running, NEXT)
        running.cluster.put_pods("iris", REV, [])
        await running.servers_become({new.name: 4})
        await traffic.goes_on()
    assert traffic.failed == {}


async def test_traffic_waits_for_pods_that_the_word_to_move_overtook(running: Gateway) -> None:
    old, new = await running.pod(f"{REV}-a", 0.002), await running.pod(f"{NEXT}-a", 0.002)
    await serving(running, [old])
    async with load(running) as traffic:
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object(traffic=NEXT, revisions=[REV, NEXT]))
        await until(lambda: running.cluster.condition("iris")["reason"] == "WaitingForPods")
        assert running.cluster.status("iris")["gateway"]["trafficRevision"] == REV
        await traffic.goes_on()
        running.cluster.put_pods("iris", NEXT, [new])
        await running.routed()
        await traffic.goes_on()
    assert traffic.failed == {}
    assert new.served > 0


@pytest.mark.case("gateway-B13")
async def test_a_dead_control_plane_costs_traffic_nothing_and_the_next_one_reaches_what_is_declared(
    running: Gateway,
) -> None:
    old, new = await running.pod(f"{REV}-a", 0.002), await running.pod(f"{NEXT}-a", 0.002)
    await serving(running, [old])
    backends = running.cluster.status("iris")["gateway"]["backends"]
    async with load(running) as traffic:
        await running.kill_control()
        await traffic.goes_on()
        running.cluster.put_pods("iris", NEXT, [new])
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object(traffic=NEXT, revisions=[REV, NEXT]))
        await traffic.goes_on()
        assert new.served == 0
        running.start_control()
        await running.routed()
        await traffic.goes_on()
    assert traffic.failed == {}
    assert running.cluster.status("iris")["gateway"]["backends"].items() >= backends.items()
    assert new.served > 0


@pytest.mark.case("gateway-B13")
async def test_a_control_plane_that_dies_at_any_moment_of_a_change_leaves_nothing_half_done(running: Gateway) -> None:
    pods = [await running.pod(f"{REV}-{i}", 0.002) for i in range(4)]
    await serving(running, pods[:2], limit=4)
    async with load(running) as traffic:
        for turn in range(15):
            present = [pods[turn % 4], pods[(turn + 1) % 4]]
            running.cluster.put_pods("iris", REV, present)
            await asyncio.sleep(0.02 + turn * 0.002)  # a kill before, in and after the pass
            await running.kill_control()
            running.start_control()
        await running.servers_become({pod.name: 4 for pod in present})
    assert traffic.failed == {}


async def test_a_changed_setting_reloads_without_a_failed_request_and_keeps_servers_and_limits(
    running: Gateway,
) -> None:
    pod = await running.pod(f"{REV}-a", 0.002)
    await serving(running, [pod], limit=3)
    before = await pid(running)
    async with load(running) as traffic:
        await running.kill_control()
        more = dataclasses.replace(running.settings, queue_classes=(QueueClass(5000, 32),))
        running.start_control(more)
        await until_async(lambda: changed(running, before))
        live = await running.live()
        assert [s.maxconn for servers in live.servers.values() for s in servers.values()] == [3]
        await traffic.goes_on()
    assert traffic.failed == {}
    assert len((await running.say("show backend"))[0].splitlines()) > 32


async def changed(running: Gateway, before: int) -> bool:
    try:
        return await pid(running) != before
    except RuntimeApiError:
        return False


async def until_async(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.02)


async def test_a_restarted_haproxy_serves_within_its_limits_before_any_control_plane_speaks(running: Gateway) -> None:
    gate = Gate()
    pods = [await running.pod(f"{REV}-{i}", gate) for i in range(2)]
    await serving(running, pods, limit=4)
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: 2}))
    await running.servers_become({pod.name: 2 for pod in pods})
    await until(lambda: f"{pods[0].name} 127.0.0.1:{pods[0].port} maxconn 2" in running.settings.config.read_text())
    await running.kill_control()
    await running.stop_haproxy()
    await running.start_haproxy()
    requests = [asyncio.create_task(running.client().call()) for _ in range(8)]
    await until(lambda: [pod.in_flight for pod in pods] == [2, 2])
    gate.open()
    assert {(await request).status for request in requests} == {200}
    assert [pod.peak for pod in pods] == [2, 2]


async def test_haproxy_that_starts_anew_gets_what_it_missed(running: Gateway) -> None:
    old, new = await running.pod(f"{REV}-a"), await running.pod(f"{REV}-b")
    await serving(running, [old])
    await running.stop_haproxy()
    running.cluster.put_pods("iris", REV, [new])
    await running.start_haproxy()
    await running.servers_become({new.name: 4})
    assert (await running.client().call()).json == {"pod": new.name}


async def test_an_outage_of_the_api_server_leaves_the_last_good_state(running: Gateway) -> None:
    pod, later = await running.pod(f"{REV}-a", 0.002), await running.pod(f"{REV}-b", 0.002)
    await serving(running, [pod])
    async with load(running) as traffic:
        running.cluster.away = True
        running.cluster.put_pods("iris", REV, [later])
        await running.kill_control()
        running.start_control()
        await traffic.goes_on(200)
        assert later.served == 0
        running.cluster.away = False
        await running.servers_become({later.name: 4})
        await traffic.goes_on()
    assert traffic.failed == {}


@pytest.mark.case("gateway-B12")
async def test_keys_come_and_go_live_without_closing_a_connection(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a", 0.002)
    await serving(running, [pod])
    before = await pid(running)
    second = running.client("second")
    assert (await second.call()).status == 401
    async with load(running) as traffic:
        running.cluster.put(SECRETS, keys_object({KEY: "alpha", "second": "alpha"}))
        await until_async(lambda: answers(second, 200))
        running.cluster.put(SECRETS, keys_object({KEY: "alpha"}))
        await until_async(lambda: answers(second, 401))
        await traffic.goes_on()
    assert traffic.failed == {}
    assert {client.connected for client in traffic.clients} == {1}
    assert second.connected == 1
    assert await pid(running) == before


async def answers(client: Client, status: int) -> bool:
    return (await client.call()).status == status


async def test_a_broken_key_entry_stops_no_other_key(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    keys = keys_object({KEY: "alpha", "third": "alpha"})
    keys["data"]["broken"] = "bm90IGpzb24="
    running.cluster.put(SECRETS, keys)
    await until_async(lambda: answers(running.client("third"), 200))
    assert (await running.client().call()).status == 200


async def test_access_of_another_team_comes_and_goes_live(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    running.cluster.put(SECRETS, keys_object({KEY: "alpha", "beta": "beta"}))
    client = running.client("beta")
    await until_async(lambda: answers(client, 403))
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(teams=["beta"], generation=2))
    await until_async(lambda: answers(client, 200))
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(generation=3))
    await until_async(lambda: answers(client, 403))


@pytest.mark.case("gateway-B14")
async def test_a_bad_endpoint_keeps_its_last_good_state_and_harms_no_other(running: Gateway) -> None:
    iris, rose = await running.pod(f"{REV}-a", 0.002), await running.pod(f"{revision('rose')}-a", 0.002)
    await serving(running, [iris])
    await serving(running, [rose], name="rose")
    fresh = await running.pod(f"{revision('rose')}-b", 0.002)
    async with load(running) as of_iris, load(running, endpoint="rose") as of_rose:
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: 0}, generation=2))
        await until(lambda: running.cluster.condition("iris").get("status") == "False")
        running.cluster.put_pods("rose", revision("rose"), [fresh])
        await running.servers_become({iris.name: 4, fresh.name: 4})
        await running.kill_control()
        running.start_control()
        await of_iris.goes_on()
        await of_rose.goes_on()
        moved = await running.pod(f"{REV}-b", 0.002)
        running.cluster.put_pods("iris", REV, [moved])
        await running.servers_become({moved.name: 4, fresh.name: 4})
        await of_iris.goes_on()
    assert of_iris.failed == of_rose.failed == {}
    condition = running.cluster.condition("iris")
    assert condition["reason"] == "InvalidSpec"
    assert "limit is 0" in condition["message"]


async def test_an_overloaded_endpoint_harms_no_other(running: Gateway) -> None:
    gate = Gate()
    busy, calm = await running.pod(f"{REV}-a", gate), await running.pod(f"{revision('rose')}-a", 0.002)
    await serving(running, [busy], limit=1, queue_max=4)
    await serving(running, [calm], name="rose")
    waiting = [asyncio.create_task(running.client().call()) for _ in range(20)]
    await until(lambda: sum(request.done() for request in waiting) == 15)
    async with load(running, endpoint="rose") as traffic:
        await traffic.goes_on(200)
    assert traffic.failed == {}
    assert calm.peak <= 4
    gate.open()
    assert Counter([(await request).status for request in waiting]) == {429: 15, 200: 5}


async def test_a_second_endpoint_of_the_same_name_is_refused_and_the_first_stays(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    thief = await running.pod(f"{REV}-thief")
    running.cluster.put_pods("iris", REV, [thief], team="beta")
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(team="beta"))
    await until(lambda: running.cluster.condition("iris", "beta").get("reason") == "DuplicateName")
    assert {(await running.client().call()).json["pod"] for _ in range(5)} == {pod.name}
    assert running.cluster.condition("iris")["status"] == "True"


async def test_a_deleted_endpoint_loses_its_route_first_and_finishes_what_runs(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod])
    request = asyncio.create_task(running.client().call())
    await until(lambda: pod.in_flight == 1)
    going = endpoint_object()
    going["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
    running.cluster.put(MODEL_ENDPOINTS, going)
    await running.taking(set())
    assert (await running.client().call()).status == 404
    gate.open()
    assert (await request).status == 200
    running.cluster.remove(MODEL_ENDPOINTS, going)
    running.cluster.remove(ENDPOINT_SLICES, *slices("iris", REV, [pod]))
    await running.servers_become({})


async def test_without_a_spare_back_end_the_condition_says_what_to_do_and_others_serve(tmp_path: Path) -> None:
    async with gateway(tmp_path / "run", spares=1) as running:
        pod = await running.pod(f"{REV}-a", 0.002)
        await serving(running, [pod])
        rose = await running.pod(f"{revision('rose')}-a")
        running.cluster.put_pods("rose", revision("rose"), [rose])
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object("rose"))
        await until(lambda: running.cluster.condition("rose").get("reason") == "NoSpareBackend")
        assert "gateway.spare_backends" in running.cluster.condition("rose")["message"]
        assert (await running.client().call("rose")).status == 503
        assert (await running.client().call("iris")).status == 200
        running.cluster.remove(MODEL_ENDPOINTS, endpoint_object("iris"))
        await running.routed("rose")
        assert (await running.client().call("rose")).status == 200


async def test_a_leaving_gateway_finishes_what_it_has(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod])
    request = asyncio.create_task(running.client().call())
    await until(lambda: pod.in_flight == 1)
    running.signal_haproxy(signal.SIGUSR1)
    await until_async(lambda: refuses(running.settings.https_port))
    gate.open()
    assert (await request).status == 200


async def refuses(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return True
    writer.close()
    return False


async def test_what_somebody_changed_by_hand_is_put_right_by_the_next_comparison(
    running: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controllers.gateway.control.COMPARE_S", 0.2)
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    backend = running.cluster.status("iris")["gateway"]["backends"][REV]
    await running.say(
        f"set maxconn server {backend}/{pod.name} 50",
        f"add server {backend}/stray 127.0.0.1:9 maxconn 1",
        "add map routes.map iris none/0/1",
        "clear map access.map",
    )
    await running.servers_become({pod.name: 4})
    await until_async(lambda: answers(running.client(), 200))
    assert (await running.live()).damaged == frozenset()


@pytest.mark.case("gateway-B5")
async def test_routes_queue_bounds_and_deadlines_change_live(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, deadline_ms=10_000)
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limit=1, deadline_ms=150, queue_max=0, generation=2))
    await until(lambda: running.cluster.status("iris")["gateway"]["generation"] == 2)
    held = asyncio.create_task(running.client().call())
    await until(lambda: pod.in_flight == 1)
    assert (await running.client().call()).status == 429
    assert (await held).status == 504


@pytest.mark.case("autoscaler-H5")
async def test_metrics_and_health_are_there_on_both_sides(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    control, haproxy = running.client(), running.client()
    control.port, haproxy.port = running.settings.control_port, running.settings.exporter_port
    numbers = await control.call(path="/metrics", method="GET")
    assert b'knobless_gateway_limit{endpoint="iris",revision="%s"} 4.0' % REV.encode() in numbers.body
    await control.leave()
    healthy = await control.call(path="/healthz", method="GET")
    assert (healthy.status, healthy.body) == (200, b"ok")
    assert (await haproxy.call(path="/healthz", method="GET")).status == 200


async def test_the_statistics_port_tells_demand_and_takes_no_orders(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    reader, writer = await asyncio.open_connection("127.0.0.1", running.settings.stats_port)
    writer.write(b"show stat -1 6 -1;disable frontend https;set maxconn frontend https 1\n")
    text = (await reader.read()).decode()
    writer.close()
    backend = running.cluster.status("iris")["gateway"]["backends"][REV]
    assert f"{backend},{pod.name}," in text
    assert f"{backend},BACKEND," in text
    assert text.count("Permission denied") == 2
    assert (await running.client().call()).status == 200


async def test_a_second_gateway_starts_with_the_back_ends_that_the_status_names(
    running: Gateway, tmp_path: Path
) -> None:
    pods = [await running.pod(f"{REV}-a"), await running.pod(f"{revision('rose')}-a")]
    await serving(running, [pods[0]])
    await serving(running, [pods[1]], name="rose")
    running.cluster.remove(MODEL_ENDPOINTS, endpoint_object("iris"))
    await running.servers_become({pods[1].name: 4})
    second = Gateway(settings_in(tmp_path / "second"), running.cluster)
    second.render()
    backend = running.cluster.status("rose")["gateway"]["backends"][revision("rose")]
    assert f"rose {backend}/100/10000" in (second.settings.run / "routes.map").read_text()
    assert second.settings.config.read_text().count("\n  server rose-") == 1
