"""A pod's limit holds at every instant, counted at the pod, whatever changes around it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.client import Reply
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, make_certificate, serving, until
from tests.gateway_lab.pods import Gate, Pod

pytestmark = pytest.mark.process
REV = revision("iris")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run") as found:
        yield found


def calls(running: Gateway, count: int) -> list[asyncio.Task[Reply]]:
    """Requests at the same time, each on its own connection."""
    return [asyncio.create_task(running.client().call()) for _ in range(count)]


def more_from_each(pods: list[Pod]) -> Callable[[], bool]:
    before = [pod.served for pod in pods]
    return lambda: all(pod.served > then for pod, then in zip(pods, before, strict=True))


def holds(pod: Pod, requests: int) -> Callable[[], bool]:
    return lambda: pod.in_flight == requests


@pytest.mark.case("gateway-A1")
@pytest.mark.parametrize("clients", [4, 8, 16])
async def test_in_flight_never_passes_the_limit_at_half_full_and_double_load(running: Gateway, clients: int) -> None:
    pods = [await running.pod(f"{REV}-{i}", 0.01) for i in range(2)]
    await serving(running, pods, limit=4)

    async def client() -> None:
        connection = running.client()
        for _ in range(20):
            assert (await connection.call()).status == 200

    await asyncio.gather(*(client() for _ in range(clients)))
    assert max(pod.peak for pod in pods) <= 4
    assert sum(pod.served for pod in pods) == 20 * clients


@pytest.mark.case("gateway-A2")
@pytest.mark.case("gateway-A12")
@pytest.mark.parametrize("threads", [1, 2])
async def test_threads_share_one_limit_and_one_queue_and_one_of_them_opens_no_more_connections_than_it(
    tmp_path: Path, threads: int
) -> None:
    """With two, one may open a connection while the other still keeps an idle one: another reason for `nbthread 1`."""
    async with gateway(tmp_path / "run", threads=threads) as running:
        (info,) = await running.say("show info")
        assert f"\nNbthread: {threads}\n" in info
        pods = [await running.pod(f"{REV}-{i}", 0.005) for i in range(2)]
        await serving(running, pods, limit=4)

        async def client() -> None:
            connection = running.client()
            for _ in range(20):
                assert (await connection.call()).status == 200

        await asyncio.gather(*(client() for _ in range(32)))
        assert [pod.peak for pod in pods] == [4, 4]
        assert max(pod.peak_connections for pod in pods) <= 4 * threads


@pytest.mark.case("gateway-A8")
@pytest.mark.parametrize("limit", [1, 2, 3, 10])
async def test_a_declared_limit_is_the_one_in_force_and_the_one_in_the_status(running: Gateway, limit: int) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=limit)
    requests = calls(running, limit + 3)
    await until(lambda: pod.in_flight == limit)
    (backend,) = [b for b, servers in (await running.live()).servers.items() if servers]
    assert (await running.live()).servers[backend][pod.name].maxconn == limit
    assert running.cluster.status("iris")["gateway"]["limits"] == {REV: limit}
    gate.open()
    assert {(await request).status for request in requests} == {200}
    assert pod.peak == limit


@pytest.mark.case("autoscaler-H4")
@pytest.mark.case("gateway-A7")
@pytest.mark.case("gateway-A13")
async def test_pods_come_and_go_under_a_backlog_without_one_request_too_many(running: Gateway) -> None:
    pods = [await running.pod(f"{REV}-{i}", 0.02) for i in range(4)]
    await serving(running, pods[:1], limit=3, queue_max=1000)
    stop = asyncio.Event()
    statuses: list[int] = []

    async def client() -> None:
        connection = running.client()
        while not stop.is_set():
            statuses.append((await connection.call()).status)

    clients = [asyncio.create_task(client()) for _ in range(24)]
    for present in (pods[:2], pods, pods[1:], pods[2:], [pods[0], pods[3]], pods, pods[:2]):
        running.cluster.put_pods("iris", REV, present)
        await running.servers_become({pod.name: 3 for pod in present})
        await until(more_from_each(present))
    stop.set()
    await asyncio.gather(*clients)
    assert set(statuses) == {200}
    assert [pod.peak for pod in pods] == [3, 3, 3, 3]


@pytest.mark.case("gateway-A9")
async def test_a_raised_limit_lets_the_queue_in_and_a_lowered_one_cuts_nothing_and_adds_nothing(
    running: Gateway,
) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=4)
    requests = calls(running, 12)
    await until(lambda: pod.in_flight == 4)
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: 6}))
    await until(lambda: pod.in_flight == 6)
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: 2}))
    await running.servers_become({pod.name: 2})
    for running_now in (5, 4, 3, 2):
        gate.let()
        await until(holds(pod, running_now))
    gate.let()
    await until(lambda: pod.served == 5 and pod.in_flight == 2)
    assert pod.peak == 6
    gate.open()
    assert {(await request).status for request in requests} == {200}


async def test_a_probed_pod_is_filled_first_up_to_its_own_limit_and_let_go_again(running: Gateway) -> None:
    gate = Gate()
    pods = [await running.pod(f"{REV}-{i}", gate) for i in range(3)]
    await serving(running, pods, limit=4)
    probe = {"pod": pods[1].name, "limit": 6, "weight": 256}
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: 4}, probe=probe))
    await running.servers_become({pods[0].name: 4, pods[1].name: 6, pods[2].name: 4})
    requests = calls(running, 8)
    await until(lambda: sum(pod.in_flight for pod in pods) == 8)
    assert pods[1].in_flight == 6, "idle pods get one each, the probed one the rest"
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limits={REV: 4}))
    await running.servers_become({pod.name: 4 for pod in pods})
    gate.open()
    assert {(await request).status for request in requests} == {200}
    live = await running.live()
    assert {server.weight for servers in live.servers.values() for server in servers.values()} == {1}


@pytest.mark.case("gateway-A4")
async def test_the_head_of_the_queue_goes_to_the_first_free_pod(running: Gateway) -> None:
    slow, quick = Gate(), Gate()
    pods = [await running.pod(f"{REV}-slow", slow), await running.pod(f"{REV}-quick", quick)]
    await serving(running, pods, limit=1)
    requests = calls(running, 8)
    await until(lambda: all(pod.in_flight == 1 for pod in pods))
    quick.open()
    await until(lambda: pods[1].served == 7)
    assert pods[0].served == 0
    slow.open()
    await asyncio.gather(*requests)


@pytest.mark.case("gateway-A4")
async def test_one_slow_pod_of_four_does_not_hold_up_those_behind_it(running: Gateway) -> None:
    pods = [await running.pod(f"{REV}-{i}", seconds) for i, seconds in enumerate((0.05, 0.05, 0.05, 0.4))]
    await serving(running, pods, limit=4)
    seconds: list[float] = []

    async def client() -> None:
        connection = running.client()
        for _ in range(20):
            seconds.append((await connection.call()).seconds)

    await asyncio.gather(*(client() for _ in range(20)))
    served = [pod.served for pod in pods]
    assert min(served[:3]) > 2 * served[3]


async def test_limits_of_all_pods_never_add_up_to_more_than_the_maximum(running: Gateway) -> None:
    gate = Gate()
    pods = [await running.pod(f"{REV}-{i}", gate) for i in range(3)]
    await serving(running, pods, limit=4, maximum=8)
    requests = calls(running, 20)
    await until(lambda: sum(pod.in_flight for pod in pods) == 8)
    await running.servers_become({pods[0].name: 3, pods[1].name: 3, pods[2].name: 2})
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limit=4, maximum=10))
    await until(lambda: sum(pod.in_flight for pod in pods) == 10)
    assert running.cluster.status("iris")["gateway"]["readyServers"] == {REV: 3}
    gate.open()
    assert {(await request).status for request in requests} == {200}


@pytest.mark.case("autoscaler-D9")
@pytest.mark.case("autoscaler-D7")
@pytest.mark.case("gateway-C8")
@pytest.mark.case("gateway-C3")
async def test_a_removed_pod_finishes_its_requests_and_leaves_no_server_and_no_connection(running: Gateway) -> None:
    """So it is no matter which pod goes: Kubernetes takes those not ready and the youngest first, and none is cut."""
    gate = Gate()
    old, new = await running.pod(f"{REV}-old", gate), await running.pod(f"{REV}-new")
    await serving(running, [old], limit=2)
    requests = calls(running, 2)
    await until(lambda: old.in_flight == 2)
    running.cluster.put_pods("iris", REV, [old, new], leaving=[old.name])
    await running.taking({new.name})
    assert (await running.client().call()).json == {"pod": new.name}
    assert old.in_flight == 2
    gate.open()
    assert {(await request).status for request in requests} == {200}
    await running.servers_become({new.name: 2})
    await until(lambda: old.connections == 0)


@pytest.mark.case("gateway-A5")
async def test_nine_streams_of_one_connection_are_nine_requests(tmp_path: Path) -> None:
    certificate = tmp_path / "tls.crt"
    make_certificate(certificate, "gateway")
    async with gateway(tmp_path / "run", certificate=certificate) as running:
        gate = Gate()
        pod = await running.pod(f"{REV}-a", gate)
        await serving(running, [pod], limit=3)
        asking = asyncio.create_task(streams(running, 9))
        await until(lambda: pod.in_flight == 3)
        await until_queued(running, 6)
        assert pod.in_flight == 3
        gate.open()
        assert sorted(await asking) == ["200 0"] * 8 + ["200 1"]
        assert pod.peak == 3


async def streams(running: Gateway, count: int) -> list[str]:
    """Requests side by side over HTTP/2: of each its status and how many connections were opened for it."""
    url = f"https://localhost:{running.settings.https_port}/serving-endpoints/iris/invocations"
    one = ["-o", "/dev/null", url]
    process = await asyncio.create_subprocess_exec(
        "curl", "-sk", "--http2", "-Z", "-H", f"authorization: Bearer {KEY}", "--data-binary", "{}",
        "-w", "%{http_code} %{num_connects}\n", *one * count, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return out.decode().splitlines()


@pytest.mark.case("gateway-D6")
@pytest.mark.parametrize("queued", [False, True])
async def test_a_client_that_leaves_frees_its_place(running: Gateway, queued: bool) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, queue_max=1)
    first, second = running.client(), running.client()
    held = asyncio.create_task(first.call())
    await until(lambda: pod.in_flight == 1)
    waiting = asyncio.create_task(second.call())
    await until_queued(running, 1)
    leaving = second if queued else first
    await leaving.leave()
    if queued:
        await until_queued(running, 0)
    else:
        await until(lambda: pod.aborted == 1 and pod.in_flight == 1)
    gate.open()
    stayed = held if queued else waiting
    assert (await stayed).status == 200
    await asyncio.gather(held, waiting, return_exceptions=True)
    assert pod.in_flight == 0
    assert (pod.served, pod.aborted) == ((1, 0) if queued else (1, 1))


async def until_queued(running: Gateway, count: int) -> None:
    """Until HAProxy's own count of the queue says so."""
    async with asyncio.timeout(5):
        while True:
            rows = (await running.say("show stat -1 2 -1"))[0].splitlines()[1:]
            if sum(int(row.split(",")[2]) for row in rows if row) == count:
                return
            await asyncio.sleep(0.005)
