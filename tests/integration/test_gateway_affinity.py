"""Prompts that begin alike meet one pod behind a real HAProxy, up to its share; limits and queue stay exact."""

from __future__ import annotations

import asyncio
import gzip
import json
import math
import os
import random
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controllers.gateway.affinity import KEY_BYTES, LOAD_FACTOR
from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.client import Client, Reply
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving, until
from tests.gateway_lab.pods import Gate, Pod, Request, Work

pytestmark = pytest.mark.process
REV = revision("iris")
CHAT = "v1/chat/completions"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run") as found:
        yield found


async def replicas(
    running: Gateway,
    count: int,
    work: Work | float = 0.0,
    affinity: str | None = "prefix",
    limit: int = 64,
    queue_max: int = 100,
) -> list[Pod]:
    pods = [await running.pod(f"{REV}-{i}", work) for i in range(count)]
    await serving(running, pods, affinity=affinity, limit=limit, queue_max=queue_max)
    return pods


def chat(system: str, said: str = "", **first: object) -> bytes:
    messages = [{"role": "system", "content": system.ljust(KEY_BYTES)}, {"role": "user", "content": said}]
    return json.dumps({**first, "messages": messages}).encode()


async def chosen(client: Client, body: bytes, part: str = CHAT) -> str:
    """The pod that answered."""
    reply = await client.call(part=part, body=body)
    assert reply.status == 200
    return str(reply.json["pod"])


async def homes(client: Client, systems: Iterable[str]) -> dict[str, str]:
    return {system: await chosen(client, chat(system)) for system in systems}


def hold(running: Gateway, bodies: Iterable[bytes]) -> list[asyncio.Task[Reply]]:
    """Requests at the same time, each on its own connection."""
    return [asyncio.create_task(running.client().call(part=CHAT, body=body)) for body in bodies]


def in_flight(pods: Iterable[Pod]) -> int:
    return sum(pod.in_flight for pod in pods)


async def waited_at_a_server(running: Gateway) -> int:
    """The most requests that ever waited for one pod alone, and not in the endpoint's queue."""
    (backend,) = [name for name, servers in (await running.live()).servers.items() if servers]
    (table,) = await running.say(f"show stat {backend} 4 -1")
    return max(int(row.split(",")[3] or 0) for row in table.splitlines()[1:] if row)


def complaints(running: Gateway) -> list[str]:
    return [line for line in running.log.read_text().splitlines() if "Lua" in line or "[ALERT]" in line]


@pytest.mark.parametrize(
    ("part", "form"),
    [
        (CHAT, '{{"messages": [{{"role": "system", "content": "{prompt}"}}]}}'),
        (CHAT, '{{"model": "{other}", "temperature": {number}, "messages": [{{"content": "{prompt}"}}]}}'),
        ("v1/completions", '{{"model": "{other}", "max_tokens": {number}, "prompt": "{prompt}"}}'),
        ("v1/responses", '{{"input": "{other}", "instructions": "{prompt}", "n": {number}}}'),
        ("v1/responses", '{{"temperature": {number}, "input": "{prompt}"}}'),
    ],
)
async def test_prompts_that_begin_alike_meet_one_pod_whatever_stands_before_and_behind_them(
    running: Gateway, part: str, form: str
) -> None:
    await replicas(running, 4)
    client = running.client()
    found: dict[str, set[str]] = defaultdict(set)
    for number in range(60):
        prompt = f"application {number % 12}".ljust(KEY_BYTES, ".")
        said = f"{prompt} and then {random.random()}"
        body = form.format(prompt=said, other=f"a{number}", number=random.random())
        found[prompt].add(await chosen(client, body.encode(), part))
    assert [len(pods) for pods in found.values()] == [1] * 12
    assert len(set.union(*found.values())) > 1


@pytest.mark.parametrize(("beyond", "alike"), [(0, True), (-1, False)])
async def test_the_first_kibibyte_decides_and_nothing_behind_it(running: Gateway, beyond: int, alike: bool) -> None:
    await replicas(running, 4)
    client = running.client()
    start = '"messages": [{"role": "user", "content": "'
    same = start.ljust(KEY_BYTES + beyond, ".")
    pods = {await chosen(client, f'{{{same}{chr(97 + n)}"}}]}}'.encode()) for n in range(26)}
    assert (len(pods) == 1) is alike


async def test_a_short_conversation_keeps_its_pod_once_it_is_a_kibibyte_long(running: Gateway) -> None:
    await replicas(running, 4)
    client = running.client()
    messages = [{"role": "user", "content": "x" * 400}]
    pods = []
    for turn in range(12):
        pods.append(await chosen(client, json.dumps({"messages": messages, "model": "iris"}).encode()))
        messages += [{"role": "assistant", "content": f"{turn}".ljust(200)}, {"role": "user", "content": "and?"}]
    assert len(set(pods[3:])) == 1


async def test_without_affinity_the_least_busy_pod_is_asked(running: Gateway) -> None:
    await replicas(running, 4, affinity=None)
    client = running.client()
    assert len({await chosen(client, chat("one")) for _ in range(16)}) == 4


async def test_affinity_comes_and_goes_with_the_file_and_without_a_reload(running: Gateway) -> None:
    await replicas(running, 4)
    client, pid = running.client(), (await running.live()).pid
    for affinity, pods in ((None, 4), ("prefix", 1)):
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limit=64, affinity=affinity))
        await routed_with(running, affinity)
        assert len({await chosen(client, chat("one")) for _ in range(16)}) == pods
    assert (await running.live()).pid == pid


async def routed_with(running: Gateway, affinity: str | None) -> None:
    async with asyncio.timeout(10):
        while (await running.live()).maps["routes"]["iris"].count("/") != (3 if affinity else 2):  # noqa: ASYNC110 - HAProxy tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("requests", [1, 10, 39, 64])
async def test_of_one_prompt_no_pod_holds_more_than_its_bounded_share(running: Gateway, requests: int) -> None:
    gate = Gate()
    pods = await replicas(running, 4, gate)
    held = []
    for count in range(1, requests + 1):
        held += hold(running, [chat("one", str(count))])
        await until(lambda count=count: in_flight(pods) == count)  # type: ignore[misc]
        assert max(pod.in_flight for pod in pods) <= math.ceil(LOAD_FACTOR * count / 4)
    assert max(pod.in_flight for pod in pods) == math.ceil(LOAD_FACTOR * requests / 4), "and is preferred up to it"
    gate.open()
    assert {(await each).status for each in held} == {200}


async def test_where_all_are_full_there_is_one_queue_and_its_bound_refuses(running: Gateway) -> None:
    gate = Gate()
    pods = await replicas(running, 3, gate, limit=2, queue_max=4)
    held = hold(running, [chat("one", str(number)) for number in range(10)])
    await until(lambda: in_flight(pods) == 6)
    await queued(running, 4)
    refused = await running.client().call(part=CHAT, body=chat("one"))
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    gate.let(3)
    await until(lambda: sum(pod.served for pod in pods) == 3 and in_flight(pods) == 6)
    await queued(running, 1)
    gate.open()
    assert {(await each).status for each in held} == {200}
    assert [pod.peak for pod in pods] == [2, 2, 2]
    assert await waited_at_a_server(running) == 0


async def test_a_slot_that_a_waiting_request_has_is_nobodys_preference_though_it_is_not_there_yet(
    running: Gateway,
) -> None:
    """An answer is there for HAProxy at once with new requests: the slot is a waiting one's, and they wait for any."""
    gates = [Gate(), Gate()]
    pods = [await running.pod(f"{REV}-{i}", gate) for i, gate in enumerate(gates)]
    await serving(running, pods, limit=1, affinity="prefix", queue_max=1000)
    held, worker = hold(running, [chat("one")] * 3), (await running.live()).pid
    await until(lambda: in_flight(pods) == 2)
    begun: list[Begun] = []
    for turn in range(40):
        pod, gate, bodies_first = pods[turn % 2], gates[turn % 2], turn % 4 < 2
        new = [await Begun.at(running, chat("one")) for _ in range(3)]
        os.kill(worker, signal.SIGSTOP)
        for answers in (not bodies_first, bodies_first):
            await (answered(pod, gate) if answers else ended(new))
        os.kill(worker, signal.SIGCONT)
        await until(lambda: in_flight(pods) == 2)
        assert await waited_at_a_server(running) == 0
        begun += new
    for gate in gates:
        gate.open()
    assert {(await each).status for each in held} == {200}
    assert {await each.status() for each in begun} == {200}


async def answered(pod: Pod, gate: Gate) -> None:
    served = pod.served
    gate.let()
    await until(lambda: pod.served > served)


async def ended(begun: Iterable[Begun]) -> None:
    for each in begun:
        await each.end()


@dataclass
class Begun:
    """A request of which all is sent but the body."""

    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def at(cls, running: Gateway, body: bytes) -> Begun:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.settings.https_port)
        lines = [f"POST /serving-endpoints/iris/{CHAT} HTTP/1.1", "host: a", f"authorization: Bearer {KEY}"]
        writer.write("\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode())
        await writer.drain()
        return cls(body, reader, writer)

    async def end(self) -> None:
        self.writer.write(self.body)
        await self.writer.drain()

    async def status(self) -> int:
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.writer.close()
        return int(head.split()[1])


async def queued(running: Gateway, count: int) -> None:
    async with asyncio.timeout(5):
        while True:
            rows = (await running.say("show stat -1 2 -1"))[0].splitlines()[1:]
            if sum(int(row.split(",")[2]) for row in rows if row) == count:
                return
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("clients", [5, 6, 7, 9, 24])
async def test_around_saturation_no_request_waits_for_one_pod_and_every_limit_is_exact(
    running: Gateway, clients: int
) -> None:
    """Where slots come free all the time, as many as there are clients for, less and more."""
    chance = random.Random(7)

    async def work(_: Request) -> None:
        await asyncio.sleep(chance.choice((0, 0, 0.001, 0.004)))

    pods = await replicas(running, 3, work, limit=2, queue_max=1000)

    async def client(number: int) -> None:
        connection, own = running.client(), random.Random(number)
        for _ in range(150):
            assert (await connection.call(part=CHAT, body=chat(str(own.randrange(3))))).status == 200

    await asyncio.gather(*(client(number) for number in range(clients)))
    assert max(pod.peak for pod in pods) <= 2
    assert clients < 7 or min(pod.peak for pod in pods) == 2
    assert sum(pod.served for pod in pods) == 150 * clients
    assert await waited_at_a_server(running) == 0


async def test_a_pod_that_goes_or_comes_moves_only_its_own_share_of_the_prompts(running: Gateway) -> None:
    pods = await replicas(running, 5)
    client, systems = running.client(), [f"application {number}" for number in range(100)]
    before = await homes(client, systems)
    gone = pods[2].name
    assert 5 <= Counter(before.values())[gone] <= 40, "about a fifth"
    present = [pod for pod in pods if pod.name != gone]
    running.cluster.put_pods("iris", REV, present)
    await running.servers_become({pod.name: 64 for pod in present})
    during = await homes(client, systems)
    assert {system for system in systems if during[system] != before[system]} == {
        system for system in systems if before[system] == gone
    }
    assert len({during[system] for system in systems if before[system] == gone}) > 1
    running.cluster.put_pods("iris", REV, pods)
    await running.servers_become({pod.name: 64 for pod in pods})
    assert await homes(client, systems) == before


async def test_another_process_of_haproxys_has_the_same_preferences(running: Gateway) -> None:
    await replicas(running, 4)
    systems = [f"application {number}" for number in range(20)]
    before = await homes(running.client(), systems)
    await running.stop_haproxy()
    await running.start_haproxy()
    await running.taking({f"{REV}-{i}" for i in range(4)})
    assert await homes(running.client(), systems) == before


async def test_a_draining_pod_gets_no_request_and_finishes_its_own(running: Gateway) -> None:
    gate = Gate()
    pods = await replicas(running, 3, gate)
    (held,) = hold(running, [chat("one")])
    await until(lambda: in_flight(pods) == 1)
    (home,) = [pod for pod in pods if pod.in_flight]
    running.cluster.put_pods("iris", REV, pods, leaving=[home.name])
    await running.taking({pod.name for pod in pods} - {home.name})
    more = hold(running, [chat("one")] * 4)
    await until(lambda: in_flight(pods) == 5)
    assert home.in_flight == 1
    gate.open()
    assert {(await each).status for each in (held, *more)} == {200}


async def test_prompts_of_a_pod_in_maintenance_prefer_another_one(running: Gateway) -> None:
    await replicas(running, 4)
    client = running.client()
    home = await chosen(client, chat("one"))
    await running.kill_control()  # which would set it ready again
    (backend,) = [name for name, servers in (await running.live()).servers.items() if servers]
    await running.say(f"set server {backend}/{home} state maint")
    found = {await chosen(client, chat("one")) for _ in range(12)}
    assert len(found) == 1
    assert home not in found


async def test_a_pod_that_refuses_leaves_its_prompts_to_the_others(running: Gateway) -> None:
    pods = await replicas(running, 3)
    client = running.client()
    home = await chosen(client, chat("one"))
    await next(pod for pod in pods if pod.name == home).stop()
    await no_idle_connection(running, home)
    assert home not in {await chosen(client, chat("one")) for _ in range(6)}


async def no_idle_connection(running: Gateway, name: str) -> None:
    """Until HAProxy has seen that the pod closed what it kept for reuse."""
    async with asyncio.timeout(5):
        while any(servers[name].idle for servers in (await running.live()).servers.values() if name in servers):  # noqa: ASYNC110 - HAProxy tells nobody
            await asyncio.sleep(0.01)


async def test_a_probed_pod_is_filled_first_as_without_affinity(running: Gateway) -> None:
    gate = Gate()
    pods = await replicas(running, 3, gate, limit=4)
    for probed in pods:
        probe = {"pod": probed.name, "limit": 6, "weight": 256}
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object(limit=4, affinity="prefix", limits={REV: 4}, probe=probe))
        await running.servers_become({pod.name: 6 if pod is probed else 4 for pod in pods})
        held = hold(running, [chat("one")] * 8)
        await until(lambda: in_flight(pods) == 8)
        assert probed.in_flight == 6, "idle pods get one each, the probed one the rest"
        gate.let(8)
        assert {(await each).status for each in held} == {200}


async def test_the_base_url_leads_to_the_pod_that_the_endpoints_own_path_leads_to(running: Gateway) -> None:
    await replicas(running, 4)
    client = running.client()
    for number in range(8):
        body = chat(f"application {number}", model="iris")
        reply = await client.call(path=f"/{CHAT}", body=body)
        assert (reply.status, reply.json["pod"]) == (200, await chosen(client, body))


async def test_a_body_of_which_only_the_beginning_is_seen_meets_its_pod(running: Gateway) -> None:
    await replicas(running, 4)
    client = running.client()
    assert len({await chosen(client, chat("one", f"{number}" * 100_000)) for number in range(8)}) == 1


ODD = (
    b"",
    b"{}",
    b"\x00" * 5000,
    b'"messages"',
    b'{"messages"',
    b'{"prompt":null}',
    b"x" * 40_000 + b'{"messages": []}',
    gzip.compress(chat("one")),
    b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\nabc\r\n--b--\r\n',
)


async def test_no_body_is_refused_or_complained_of_for_what_is_in_it(running: Gateway) -> None:
    pods = await replicas(running, 3)
    client = running.client()
    for body in ODD:
        for part in (CHAT, "invocations"):
            assert (await client.call(part=part, body=body)).status == 200
    assert (await client.call(part="health", method="GET", body=b"")).status == 200
    assert sum(pod.served for pod in pods) == 2 * len(ODD) + 1
    assert complaints(running) == []


def test_no_bytes_whatever_make_the_program_fail(tmp_path: Path) -> None:
    """One gateway for all examples, on a loop of its own."""
    loop = asyncio.new_event_loop()
    context = gateway(tmp_path / "run")
    running = loop.run_until_complete(context.__aenter__())
    try:
        loop.run_until_complete(replicas(running, 3))
        client = running.client()

        @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
        @given(
            st.lists(st.one_of(st.binary(max_size=2000), st.sampled_from([*ODD, b'"input"', b'"prompt":'])), max_size=4)
        )
        def answered(parts: list[bytes]) -> None:
            reply = loop.run_until_complete(client.call(part=CHAT, body=b"".join(parts)))
            assert reply.status == 200

        answered()
        assert complaints(running) == []
    finally:
        loop.run_until_complete(context.__aexit__(None, None, None))
        loop.close()
