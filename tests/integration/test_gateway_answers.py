"""Every situation has its one answer: status, code, Retry-After, the request's id."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS
from tests.gateway_lab.client import Client, Reply
from tests.gateway_lab.cluster import endpoint_object, revision, slices
from tests.gateway_lab.gateway import KEY, Gateway, gateway, make_certificate, serving, until
from tests.gateway_lab.pods import Gate, Pod

pytestmark = pytest.mark.process
REV = revision("iris")
MIB = 1024 * 1024


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run", queue_ms=300, keys={KEY: "alpha", "key-of-beta": "beta"}) as found:
        yield found


@pytest.fixture
async def pod(running: Gateway) -> Pod:
    found = await running.pod(f"{REV}-a")
    await serving(running, [found], deadline_ms=400)
    return found


def asks_again_later(reply: Reply) -> bool:
    return int(reply.headers["retry-after"]) >= 1


@pytest.mark.parametrize(
    ("status", "code", "key", "request_"),
    [
        (401, "UNAUTHENTICATED", None, {}),
        (401, "UNAUTHENTICATED", "unknown", {}),
        (401, "UNAUTHENTICATED", None, {"headers": {"authorization": f"Basic {KEY}"}}),
        (401, "UNAUTHENTICATED", None, {"headers": {"authorization": "Bearer"}}),
        (401, "UNAUTHENTICATED", None, {"path": "/"}),
        (403, "PERMISSION_DENIED", "key-of-beta", {}),
        (404, "NOT_FOUND", KEY, {"endpoint": "tulip"}),
        (404, "NOT_FOUND", KEY, {"endpoint": ""}),
        (404, "NOT_FOUND", KEY, {"part": "metrics"}),
        (404, "NOT_FOUND", KEY, {"part": "live"}),
        (404, "NOT_FOUND", KEY, {"part": "invocations/"}),
        (404, "NOT_FOUND", KEY, {"part": "invocations/../metrics"}),
        (404, "NOT_FOUND", KEY, {"path": "/iris/invocations"}),
        (404, "NOT_FOUND", KEY, {"path": "/metrics"}),
        (405, "METHOD_NOT_ALLOWED", KEY, {"method": "GET"}),
        (405, "METHOD_NOT_ALLOWED", KEY, {"method": "PUT"}),
        (405, "METHOD_NOT_ALLOWED", KEY, {"part": "health"}),
        (411, "LENGTH_REQUIRED", KEY, {"headers": {"transfer-encoding": "chunked"}, "body": b"0\r\n\r\n"}),
        (413, "PAYLOAD_TOO_LARGE", KEY, {"body": b"x" * (16 * MIB + 1)}),
        (413, "PAYLOAD_TOO_LARGE", KEY, {"headers": {"content-length": f"{16 * MIB + 1}", "expect": "100-continue"}}),
    ],
)
async def test_a_request_that_may_not_pass_is_refused_before_it_takes_a_slot(
    running: Gateway, pod: Pod, status: int, code: str, key: str | None, request_: dict[str, object]
) -> None:
    client = running.client(key)
    reply = await client.call(**request_)  # type: ignore[arg-type]
    assert (reply.status, reply.code) == (status, code)
    assert reply.json["error"]["request_id"] == reply.headers["x-request-id"]
    assert "retry-after" not in reply.headers
    assert pod.seen == []


async def test_a_refusal_names_what_is_allowed(running: Gateway, pod: Pod) -> None:
    assert (await running.client(None).call()).headers["www-authenticate"] == "Bearer"
    assert (await running.client().call(method="GET")).headers["allow"] == "POST"
    assert (await running.client().call(part="ping")).headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("part", ["ping", "health", "version"])
async def test_the_pods_own_pages_are_read_with_get(running: Gateway, pod: Pod, part: str) -> None:
    assert (await running.client().call(part=part, method="GET", body=b"")).status == 200
    assert (pod.seen[0].method, pod.seen[0].path) == ("GET", f"/{part}")


async def test_a_pod_gets_its_own_path_the_body_and_the_time_left_but_never_the_key(running: Gateway, pod: Pod) -> None:
    sent = {"x-knobless-deadline-ms": "999999", "x-knobless-team": "root", "x-other": "kept"}
    reply = await running.client().call(part="invocations?a=b", body=b'{"inputs":[1]}', headers=sent)
    assert reply.status == 200
    (seen,) = pod.seen
    assert (seen.method, seen.path, seen.body) == ("POST", "/invocations?a=b", b'{"inputs":[1]}')
    assert "authorization" not in seen.headers
    assert "x-knobless-team" not in seen.headers
    assert seen.headers["x-knobless-deadline-ms"] == "400"
    assert seen.headers["x-other"] == "kept"


@pytest.mark.parametrize("sent", ["abc-123", "A_b.9", "x" * 128])
async def test_a_safe_request_id_is_kept_and_returned(running: Gateway, pod: Pod, sent: str) -> None:
    reply = await running.client().call(headers={"x-request-id": sent})
    assert reply.headers["x-request-id"] == sent == pod.seen[0].headers["x-request-id"]


@pytest.mark.parametrize("sent", ["", "x" * 129, 'a"b', "a b", "a,b", "ä"])
async def test_another_request_id_is_replaced_by_one_of_ours(running: Gateway, pod: Pod, sent: str) -> None:
    reply = await running.client().call(headers={"x-request-id": sent})
    made = reply.headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made)
    assert pod.seen[0].headers["x-request-id"] == made


@pytest.mark.case("gateway-D1")
@pytest.mark.case("gateway-A3")
@pytest.mark.case("gateway-D2")
async def test_a_full_queue_is_429_at_once_and_a_full_wait_is_429_after_the_queue_timeout(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, queue_max=1)
    held = asyncio.create_task(running.client().call())
    await until(lambda: pod.in_flight == 1)
    first, second = (asyncio.create_task(running.client().call()) for _ in range(2))
    replies = [await first, await second]
    replies.sort(key=lambda reply: reply.seconds)
    assert [(reply.status, reply.code) for reply in replies] == [(429, "TOO_MANY_REQUESTS")] * 2
    assert replies[0].seconds < 0.2 < 0.3 <= replies[1].seconds < 0.6
    assert all(asks_again_later(reply) for reply in replies)
    gate.open()
    assert (await held).status == 200


@pytest.mark.case("gateway-D1")
async def test_a_queue_of_none_still_lets_in_what_has_a_slot(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=2, queue_max=0)
    held = [asyncio.create_task(running.client().call()) for _ in range(2)]
    await until(lambda: pod.in_flight == 2)
    assert (await running.client().call()).status == 429
    gate.open()
    assert [(await each).status for each in held] == [200, 200]


@pytest.mark.case("gateway-D1")
async def test_no_ready_pod_is_503_at_once(running: Gateway, pod: Pod) -> None:
    running.cluster.put(ENDPOINT_SLICES, *slices("iris", REV, [pod], unready=[pod.name]))
    await running.servers_become({})
    reply = await running.client().call()
    assert (reply.status, reply.code) == (503, "UNAVAILABLE")
    assert asks_again_later(reply)
    assert reply.seconds < 0.2


@pytest.mark.case("gateway-D1")
async def test_an_endpoint_without_a_ready_revision_is_503_and_not_404(running: Gateway) -> None:
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(traffic=""))
    await until(lambda: running.cluster.condition("iris").get("reason") == "NoTrafficRevision")
    reply = await running.client().call()
    assert (reply.status, reply.code) == (503, "UNAVAILABLE")
    assert asks_again_later(reply)


async def test_what_still_waits_when_the_last_pod_leaves_is_503(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1)
    held, waiting = (asyncio.create_task(running.client().call()) for _ in range(2))
    await until(lambda: pod.in_flight == 1)
    running.cluster.put(ENDPOINT_SLICES, *slices("iris", REV, [pod], leaving=[pod.name]))
    await running.taking(set())
    gate.open()
    replies = {(await each).status for each in (held, waiting)}
    assert replies == {200, 503}


@pytest.mark.case("gateway-D4")
@pytest.mark.case("gateway-D5")
async def test_a_model_past_its_deadline_is_504_is_asked_once_and_gives_its_slot_back(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, deadline_ms=200)
    reply = await running.client().call(headers={"x-request-id": "once"})
    assert (reply.status, reply.code) == (504, "DEADLINE_EXCEEDED")
    assert 0.2 <= reply.seconds < 0.5
    assert pod.ids["once"] == 1
    gate.open()
    assert (await running.client().call()).status == 200


@pytest.mark.case("gateway-D13")
async def test_a_pod_that_refuses_costs_nothing_while_another_takes(running: Gateway, pod: Pod) -> None:
    dead = await running.pod(f"{REV}-dead")
    running.cluster.put_pods("iris", REV, [pod, dead])
    await running.servers_become({pod.name: 4, dead.name: 4})
    await dead.stop()
    replies = [await running.client().call() for _ in range(10)]
    assert {reply.status for reply in replies} == {200}
    assert max(reply.seconds for reply in replies) < 0.25


@pytest.mark.case("gateway-D13")
@pytest.mark.parametrize("count", [1, 2])
async def test_pods_that_all_refuse_are_503_within_a_second_and_not_429(running: Gateway, count: int) -> None:
    pods = [await running.pod(f"{REV}-{i}") for i in range(count)]
    await serving(running, pods, limit=1)
    for pod in pods:
        await pod.stop()
    reply = await running.client().call()
    assert (reply.status, reply.code) == (503, "UNAVAILABLE")
    assert asks_again_later(reply)
    assert reply.seconds < 1.2


@pytest.mark.case("gateway-D5")
async def test_a_pod_that_dies_in_mid_request_is_502_and_nobody_is_asked_again(running: Gateway, pod: Pod) -> None:
    other = await running.pod(f"{REV}-b")
    running.cluster.put_pods("iris", REV, [pod, other])
    await running.servers_become({pod.name: 4, other.name: 4})
    pod.die_after_head = other.die_after_head = True
    reply = await running.client().call(headers={"x-request-id": "once"})
    assert (reply.status, reply.code) == (502, "BAD_GATEWAY")
    assert pod.ids["once"] + other.ids["once"] == 1


@pytest.mark.case("gateway-D2")
@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_a_pods_own_answer_passes_unchanged(running: Gateway, status: int) -> None:
    pod = await running.pod(f"{REV}-a", status=status)
    await serving(running, [pod])
    reply = await running.client().call()
    assert (reply.status, reply.json) == (status, {"pod": pod.name})
    assert "retry-after" not in reply.headers


@pytest.mark.case("gateway-D2")
async def test_retry_after_is_spread(running: Gateway) -> None:
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(traffic=""))
    await until(lambda: bool(running.cluster.condition("iris")))
    client = running.client()
    waits = {int((await client.call()).headers["retry-after"]) for _ in range(60)}
    assert waits == {1, 2, 3, 4, 5}


@pytest.mark.case("gateway-D8")
async def test_a_body_of_just_the_limit_passes(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
    reply = await running.client().call(body=b"x" * (16 * MIB))
    assert reply.status == 200
    assert len(pod.seen[0].body) == 16 * MIB


async def test_a_sender_that_stalls_holds_no_slot(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod], limit=1, queue_max=0)
    _, writer = await asyncio.open_connection("127.0.0.1", running.settings.https_port)
    head = f"POST /serving-endpoints/iris/invocations HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n"
    writer.write(f"{head}content-length: 10\r\n\r\nhalf".encode())
    await writer.drain()
    assert (await running.client().call()).status == 200
    writer.close()


@pytest.mark.case("gateway-D12")
async def test_each_request_is_one_line_of_json_without_key_or_body(running: Gateway, pod: Pod) -> None:
    await running.client().call(body=b'{"secret":1}', headers={"x-request-id": "logged"})
    await running.client().call(path='/serving-endpoints/iris/%22"\\x', headers={"x-request-id": "odd"})

    def lines() -> dict[str, dict[str, object]]:
        text = running.log.read_text()
        found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return {line["request_id"]: line for line in found if "request_id" in line}

    await until(lambda: {"logged", "odd"} <= set(lines()))
    line = lines()["logged"]
    assert line["logger"] == "gateway.access"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", str(line["time"]))
    assert (line["status"], line["endpoint"], line["team"], line["pod"]) == (200, "iris", "alpha", pod.name)
    assert lines()["odd"]["status"] == 404
    assert KEY not in running.log.read_text()
    assert "secret" not in running.log.read_text()


@pytest.mark.case("gateway-D12")
async def test_no_file_of_the_gateway_and_no_answer_of_its_sockets_holds_a_key(running: Gateway, pod: Pod) -> None:
    texts = [path.read_text() for path in running.settings.run.iterdir() if path.is_file()]
    texts += await running.say("show map keys.map", "show map access.map", "show stat", "show sess all")
    assert texts
    assert not any(KEY in text for text in texts)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "tls.crt"
    make_certificate(path, "first")
    return path


async def test_a_renewed_certificate_is_served_without_touching_open_connections(
    tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controllers.gateway.certificate._LOOK_S", 0.05)
    async with gateway(tmp_path / "run", certificate=certificate) as running:
        pod = await running.pod(f"{REV}-a")
        await serving(running, [pod])
        trust = ssl.create_default_context(cafile=certificate)
        trust.check_hostname = False
        client = Client(running.settings.https_port, KEY, trust)
        assert (await client.call()).status == 200
        make_certificate(certificate, "second")
        renewed = ssl.create_default_context(cafile=certificate)
        renewed.check_hostname = False
        async with asyncio.timeout(10):
            while True:
                fresh = Client(running.settings.https_port, KEY, renewed)
                try:
                    assert (await fresh.call()).status == 200
                    break
                except ssl.SSLCertVerificationError:
                    await asyncio.sleep(0.05)
        await fresh.leave()
        assert (await client.call()).status == 200
        assert client.connected == 1
        await client.leave()


@pytest.mark.case("gateway-D14")
@pytest.mark.parametrize("size", [100, 100_000, 17_000_000])
@pytest.mark.parametrize("protocol", ["--http1.1", "--http2"])
async def test_a_client_that_sends_its_whole_body_reads_the_refusal_over_tls(
    tmp_path: Path, certificate: Path, size: int, protocol: str
) -> None:
    async with gateway(tmp_path / "run", certificate=certificate) as running:
        gate = Gate()
        pod = await running.pod(f"{REV}-a", gate)
        await serving(running, [pod], limit=1, queue_max=0, deadline_ms=120_000)
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object("rose", traffic=""))
        await until(lambda: bool(running.cluster.condition("rose")))
        trust = ssl.create_default_context(cafile=certificate)
        trust.check_hostname = False
        held = Client(running.settings.https_port, KEY, trust)
        holding = asyncio.create_task(held.call())
        await until(lambda: pod.in_flight == 1)
        body = tmp_path / "body"
        body.write_bytes(b"x" * size)
        wanted = {("iris", "unknown"): 401, ("tulip", KEY): 404, ("rose", KEY): 503, ("iris", KEY): 429}
        if size > 16 * MIB:
            wanted = {("iris", "unknown"): 401, ("tulip", KEY): 404, ("iris", KEY): 413}
        for (endpoint, key), status in wanted.items():
            for _ in range(5):
                assert await curl(running, body, endpoint, key, protocol) == f"{status} 0"
        gate.open()
        assert (await holding).status == 200
        await held.leave()


async def curl(running: Gateway, body: Path, endpoint: str, key: str, protocol: str) -> str:
    """The status that curl read, and its own exit code."""
    url = f"https://localhost:{running.settings.https_port}/serving-endpoints/{endpoint}/invocations"
    headers = ["-H", f"authorization: Bearer {key}", "-H", "expect:"]
    process = await asyncio.create_subprocess_exec(
        "curl", "-sk", protocol, *headers, "--data-binary", f"@{body}", "-o", "/dev/null", "-w", "%{http_code}", url,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return f"{out.decode()} {process.returncode}"
