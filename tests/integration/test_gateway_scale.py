"""As many endpoints as one gateway can have: a change stays small, and memory flat.

`gateway.spare_backends` ends at 4,096 and a revision has one, so 2,000 endpoints can all be in a rollout at once; ten
thousand are several gateways' work. Most pods are addresses where nobody listens: HAProxy asks no pod how it is. Waits
are bounded for a busy machine; the times are printed.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controllers.gateway.readback import read_pid, read_servers
from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS
from tests.gateway_lab.cluster import Cluster, endpoint_object, keys_object, revision, slices
from tests.gateway_lab.gateway import KEY, Gateway, settings_in, until
from tests.gateway_lab.pods import Pod, takes

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]
ENDPOINTS = 2_000
SPARES = 4_096
MEMORY_MAX_BYTES = 300e6


def name(number: int) -> str:
    return f"e{number:05}"


def absent(endpoint: str) -> list[Pod]:
    return [Pod(f"{revision(endpoint)}-{letter}", takes(0), port=9) for letter in "ab"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Gateway]:
    cluster = Cluster()
    cluster.put(SECRETS, keys_object({KEY: "alpha"}))
    every = [name(number) for number in range(ENDPOINTS)]
    cluster.put(MODEL_ENDPOINTS, *(endpoint_object(each) for each in every))
    cluster.put(ENDPOINT_SLICES, *(obj for each in every for obj in slices(each, revision(each), absent(each))))
    with tempfile.TemporaryDirectory() as folder:
        found = Gateway(settings_in(Path(folder) / "run", spares=SPARES), cluster)
        try:
            found.render()
            await found.start_haproxy()
            found.start_control()
            await until(lambda: all(cluster.condition(each).get("status") == "True" for each in every), 120)
            yield found
        finally:
            await found.close()


async def limits(running: Gateway, endpoint: str) -> set[int | None]:
    """Of the endpoint's servers, as HAProxy says."""
    backend = running.cluster.status(endpoint)["gateway"]["backends"][revision(endpoint)]
    servers = await read_servers(running.settings.control_socket, [backend])
    return {server.maxconn for server in servers[backend].values()}


async def limits_become(running: Gateway, endpoint: str, limit: int, within_s: float) -> float:
    begun = time.monotonic()
    async with asyncio.timeout(within_s):
        while True:
            if await limits(running, endpoint) == {limit}:
                return time.monotonic() - begun
            await asyncio.sleep(0.01)


async def steps(running: Gateway) -> float:
    client = running.client()
    client.port = running.settings.control_port
    text = (await client.call(path="/metrics", method="GET")).body.decode()
    await client.leave()
    found = re.search(r'^knobless_gateway_steps_total\{outcome="done"\} (\S+)', text, re.MULTILINE)
    return float(found[1]) if found else 0.0  # none was sent yet


def change(running: Gateway, endpoint: str, limit: int) -> None:
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(endpoint, limits={revision(endpoint): limit}))


@pytest.mark.case("gateway-B1")
async def test_a_change_of_one_endpoint_sends_its_commands_and_no_others(
    running: Gateway,
) -> None:
    seconds = []
    for turn in range(10):
        before = await steps(running)
        change(running, name(turn * 45), 9)
        seconds.append(await limits_become(running, name(turn * 45), 9, within_s=10))
        await until_quiet(running)
        assert await steps(running) - before == 2  # one for each pod
    print(f"live after: median {sorted(seconds)[5]:.3f} s, longest {max(seconds):.3f} s")


async def until_quiet(running: Gateway) -> None:
    """Until the control plane has nothing left to write."""
    file = running.settings.run / "state.json"
    stamps: list[int] = []
    while len(stamps) < 3 or len(set(stamps[-3:])) > 1:
        await asyncio.sleep(0.1)
        stamps.append(file.stat().st_mtime_ns)


@pytest.mark.case("gateway-B3")
async def test_a_new_endpoint_answers_soon_after_its_pod_is_there(running: Gateway) -> None:
    seconds = []
    for number in range(3):
        endpoint = f"new{number}"
        pod = await running.pod(f"{revision(endpoint)}-a")
        running.cluster.put_pods(endpoint, revision(endpoint), [pod])
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object(endpoint))
        client = running.client()
        begun = time.monotonic()
        async with asyncio.timeout(10):
            while True:
                if (await client.call(endpoint)).status == 200:
                    break
                await asyncio.sleep(0.01)
        seconds.append(time.monotonic() - begun)
    print(f"a new endpoint answers after {max(seconds):.3f} s at the longest")


@pytest.mark.case("gateway-B2")
@pytest.mark.case("gateway-B4")
async def test_five_hundred_changes_at_once_are_all_live_soon_and_memory_stays_flat(running: Gateway) -> None:
    endpoint = "moving"
    old, new = [await running.pod(f"{revision(endpoint)}-{each}") for each in ("old", "new")]
    running.cluster.put_pods(endpoint, revision(endpoint), [old])
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(endpoint))
    await running.routed(endpoint)
    before = await memory_bytes(running)
    for turn, pod in enumerate((new, old)):
        for number in range(500):
            change(running, name(1000 + number), 20 + turn)
        running.cluster.put_pods(endpoint, revision(endpoint), [pod])
        begun = time.monotonic()
        async with asyncio.timeout(20):
            for number in range(500):
                await limits_become(running, name(1000 + number), 20 + turn, within_s=20)
        print(f"500 changes live after {time.monotonic() - begun:.3f} s")
        await until(lambda: running.cluster.condition(endpoint)["status"] == "True")
        assert {(await running.client().call(endpoint)).json["pod"] for _ in range(5)} == {pod.name}
    after = await memory_bytes(running)
    print(f"HAProxy holds {before / 1e6:.0f} MB before and {after / 1e6:.0f} MB after 1,000 changes")
    assert after < MEMORY_MAX_BYTES
    assert after < before * 1.05


async def memory_bytes(running: Gateway) -> int:
    return resident_bytes(await read_pid(running.settings.control_socket))


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[0]) * 1024
