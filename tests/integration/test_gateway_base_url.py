"""One OpenAI base URL for the platform: `model` names the endpoint, wherever in the body it stands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.client import Client
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, make_certificate, serving, until
from tests.gateway_lab.pods import Gate, Pod

pytestmark = pytest.mark.process
REV = revision("iris")
MIB = 1024 * 1024
CHAT = "/v1/chat/completions"
EVENT = b'data: {"token":"x"}\n\n'


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run", queue_ms=300, keys={KEY: "alpha", "key-of-beta": "beta"}) as found:
        yield found


@pytest.fixture
async def pod(running: Gateway) -> Pod:
    found = await running.pod(f"{REV}-a")
    await serving(running, [found], deadline_ms=400)
    return found


def chat(text: str = "Hello", model: str = "iris") -> bytes:
    """As OpenAI's Python client writes it: what is said first, the model behind it."""
    return json.dumps({"messages": [{"role": "user", "content": text}], "model": model}).encode()


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings", "/v1/responses"])
async def test_the_pod_gets_the_request_as_if_it_came_by_the_endpoints_own_path(
    running: Gateway, pod: Pod, path: str
) -> None:
    sent = {"x-request-id": "once", "traceparent": "00-ab-cd-01", "x-knobless-team": "root"}
    reply = await running.client().call(path=f"{path}?a=b", body=chat(), headers=sent)
    assert (reply.status, reply.json, reply.headers["x-request-id"]) == (200, {"pod": pod.name}, "once")
    (seen,) = pod.seen
    assert (seen.method, seen.path, seen.body) == ("POST", f"{path}?a=b", chat())
    assert (seen.headers["x-request-id"], seen.headers["traceparent"]) == ("once", "00-ab-cd-01")
    assert seen.headers["x-knobless-deadline-ms"] == "400"
    assert not {"authorization", "x-knobless-team", "expect", "te"} & set(seen.headers)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"iris"}',
        b' {"stream":false, "model" : "iris","messages":[]}',
        b'{"messages":[{"model":"rose","content":"\\"model\\":\\"rose\\""}],"model":"iris"}',
        b'{"tools":{"model":"rose"},"user":"model","x":"\\\\","model":"iris"}',
        chat("line\n" * 2_500_000),
        chat('"' * 1000 + "\\" * 1001),
        chat("\N{SNOWMAN}" * 100_000),
    ],
    ids=["alone", "spaces", "quoted", "nested", "16 MB behind", "escapes", "escaped unicode"],
)
async def test_the_model_is_found_wherever_it_stands(running: Gateway, body: bytes) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod], deadline_ms=60_000)
    assert len(body) <= 16 * MIB
    reply = await running.client().call(path=CHAT, body=body)
    assert reply.status == 200
    assert pod.seen[0].body == body


@pytest.mark.parametrize(
    ("status", "code", "field", "key", "request_"),
    [
        (401, "unauthenticated", None, None, {}),
        (401, "unauthenticated", None, "unknown", {"body": chat("x" * 100_000)}),
        (403, "permission_denied", None, "key-of-beta", {}),
        (403, "permission_denied", None, "key-of-beta", {"body": chat("x" * 100_000)}),
        (404, "not_found", None, KEY, {"body": chat(model="tulip")}),
        (404, "not_found", None, KEY, {"body": chat(model="../iris")}),
        (404, "not_found", None, KEY, {"body": b'{"model":"iris HTTP/1.1\r\nx: y"}'}),
        (400, "bad_request", "model", KEY, {"body": chat(model='i"ris')}),
        (404, "not_found", None, KEY, {"path": "/v1/audio/speech"}),
        (404, "not_found", None, KEY, {"path": "/v1/chat/completions/"}),
        (404, "not_found", None, KEY, {"path": "/v1/"}),
        (405, "method_not_allowed", None, KEY, {"method": "GET"}),
        (405, "method_not_allowed", None, KEY, {"path": "/v1/models"}),
        (411, "length_required", None, KEY, {"headers": {"transfer-encoding": "chunked"}, "body": b"0\r\n\r\n"}),
        (413, "payload_too_large", None, KEY, {"body": chat("x" * 16 * MIB)}),
        (415, "unsupported_media_type", None, KEY, {"headers": {"content-encoding": "gzip"}, "body": b"\x1f\x8b"}),
        (400, "bad_request", "model", KEY, {"body": b""}),
        (400, "bad_request", "model", KEY, {"body": b"{}"}),
        (400, "bad_request", "model", KEY, {"body": b'["model","iris"]'}),
        (400, "bad_request", "model", KEY, {"body": b'{"model":7}'}),
        (400, "bad_request", "model", KEY, {"body": b'{"model":""}'}),
        (400, "bad_request", "model", KEY, {"body": b'{"a":{"model":"iris"}}'}),
        (400, "bad_request", "model", KEY, {"body": b'{"model":"ir'}),
        (400, "bad_request", "model", KEY, {"body": b'{"messages":"\\'}),
        (400, "bad_request", "model", KEY, {"body": b"]" * 100 + b'{"model":"iris"}'}),
    ],
)
async def test_what_may_not_pass_is_refused_in_openais_shape_before_it_takes_a_slot(
    running: Gateway, pod: Pod, status: int, code: str, field: str | None, key: str | None, request_: dict[str, object]
) -> None:
    reply = await running.client(key).call(**({"path": CHAT, "body": chat()} | request_))  # type: ignore[arg-type]
    error = reply.json["error"]
    assert (reply.status, error["code"], error["param"]) == (status, code, field)
    assert reply.headers["content-type"] == "application/json"
    assert "retry-after" not in reply.headers
    assert pod.seen == []


async def test_a_full_endpoint_is_429_one_without_pods_503_and_a_late_one_504(running: Gateway) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, queue_max=0, deadline_ms=300)
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object("rose", traffic=""))
    await until(lambda: bool(running.cluster.condition("rose")))
    late = asyncio.create_task(running.client().call(path=CHAT, body=chat()))
    await until(lambda: pod.in_flight == 1)
    full = await running.client().call(path=CHAT, body=chat("x" * 100_000))
    empty = await running.client().call(path=CHAT, body=chat(model="rose"))
    found = [(each.status, each.json["error"]["code"]) for each in (full, empty, await late)]
    assert found == [(429, "too_many_requests"), (503, "unavailable"), (504, "deadline_exceeded")]
    assert int(full.headers["retry-after"]) >= 1
    assert int(empty.headers["retry-after"]) >= 1
    gate.open()
    assert (await running.client().call(path=CHAT, body=chat())).status == 200


async def test_the_models_are_the_endpoints_that_the_key_may_use(running: Gateway) -> None:
    for name, team, teams in (("iris", "alpha", ["beta"]), ("rose", "alpha", []), ("tulip", "beta", [])):
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object(name, team=team, teams=teams, traffic=""))
        await until(lambda name=name, team=team: bool(running.cluster.condition(name, team)))  # type: ignore[misc]
    for key, wanted in ((KEY, ["iris", "rose"]), ("key-of-beta", ["iris", "tulip"])):
        reply = await running.client(key).call(path="/v1/models", method="GET", body=b"")
        assert (reply.status, reply.json["object"]) == (200, "list")
        assert [model["id"] for model in reply.json["data"]] == wanted
    wanted_of = {"rose": 200, "tulip": 403, "lily": 404}
    for name, status in wanted_of.items():
        reply = await running.client().call(path=f"/v1/models/{name}", method="GET", body=b"")
        assert reply.status == status
    assert (await running.client().call(path="/v1/models/rose", method="GET", body=b"")).json == {
        "id": "rose",
        "object": "model",
        "created": 0,
        "owned_by": "knobless",
    }


async def stream(running: Gateway) -> list[bytes]:
    url = f"http://127.0.0.1:{running.settings.https_port}{CHAT}"
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("POST", url, content=chat(), headers=headers) as reply,
    ):
        assert (reply.status_code, reply.headers["content-type"]) == (200, "text/event-stream")
        return [part async for part in reply.aiter_raw()]


@pytest.mark.case("gateway-D7")
async def test_parts_of_a_stream_are_passed_on_as_they_come(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    pod.parts = ((0.0, EVENT), (0.2, EVENT), (0.2, EVENT * 2000))
    await serving(running, [pod], deadline_ms=300)
    first, second, *rest = await stream(running)
    assert (first, second, b"".join(rest)) == (EVENT, EVENT, EVENT * 2000)


@pytest.mark.case("gateway-D7")
@pytest.mark.parametrize("rest", [((3600.0, EVENT),), ((0.05, None),)], ids=["silent", "dead"])
async def test_a_stream_that_breaks_off_never_looks_complete(
    running: Gateway, rest: tuple[tuple[float, bytes | None], ...]
) -> None:
    pod = await running.pod(f"{REV}-a")
    pod.parts = ((0.0, EVENT), *rest)
    await serving(running, [pod], limit=1, deadline_ms=300)
    with pytest.raises(httpx.RemoteProtocolError, match="without sending complete message body"):
        await stream(running)
    pod.parts = ()
    assert (await running.client().call(path=CHAT, body=chat())).status == 200


class Plain(Pod):
    """Answers with exactly these bytes."""

    answer = b""

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        await writer.drain()
        return False


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b"200 OK\r\ncontent-length: 2\r\n\r\nhi", (200, b"hi")),
        (b"200 OK\r\n\r\nup to the end", (200, b"up to the end")),
        (b"204 No\r\n\r\n", (204, b"")),
        (b"103 Early\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", (200, b"hi")),
        (b"200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nsum: 1\r\n\r\n", (200, b"hi")),
        (b"422 No\r\nx-transfer-encoding: no\r\ncontent-length: 3\r\n\r\nwhy", (422, b"why")),
    ],
    ids=["length", "until closed", "no body", "early hints", "trailers", "error"],
)
async def test_every_kind_of_answer_is_passed_on_whole(
    running: Gateway, answer: bytes, wanted: tuple[int, bytes]
) -> None:
    pod = Plain(f"{REV}-a", Gate())
    pod.answer = b"HTTP/1.1 " + answer
    running.pods.append(await pod.start())
    await serving(running, [pod])
    url = f"http://127.0.0.1:{running.settings.https_port}{CHAT}"
    async with httpx.AsyncClient(timeout=10) as client:
        for _ in range(2):
            reply = await client.post(url, content=chat(), headers={"authorization": f"Bearer {KEY}"})
            assert (reply.status_code, reply.content) == wanted


@pytest.mark.case("gateway-D6")
@pytest.mark.parametrize("size", [1, 1_000_000])
async def test_a_client_that_leaves_gives_its_slot_back_at_once(running: Gateway, size: int) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], limit=1, deadline_ms=60_000)
    client = running.client()
    asking = asyncio.create_task(client.call(path=CHAT, body=chat("x" * size)))
    await until(lambda: pod.in_flight == 1)
    await client.leave()
    asking.cancel()
    await until(lambda: pod.aborted == 1, within_s=2)
    gate.open()
    assert (await running.client().call(path=CHAT, body=chat())).status == 200


async def test_bodies_on_their_way_are_bounded_and_those_of_clients_that_left_do_not_count(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod], deadline_ms=60_000)
    body = chat("x" * (15 * MIB))
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n\r\n"
    writers = []
    for _ in range(4):
        _, writer = await asyncio.open_connection("127.0.0.1", running.settings.https_port)
        writer.write(head.encode() + body[: MIB // 4])
        await writer.drain()
        writers.append(writer)
    refused = await running.client().call(path=CHAT, body=body)
    assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_requests")
    assert int(refused.headers["retry-after"]) >= 1
    assert (await running.client().call(path=CHAT, body=chat())).status == 200
    for writer in writers:
        writer.close()
    async with asyncio.timeout(10):
        while (await running.client().call(path=CHAT, body=body)).status != 200:
            pass


async def test_a_request_is_one_line_of_the_log_with_the_clients_address(running: Gateway, pod: Pod) -> None:
    await running.client().call(path=CHAT, body=chat(), headers={"x-request-id": "passed"})
    await running.client().call(path=CHAT, body=b"{}", headers={"x-request-id": "stopped"})

    def lines(of: str) -> list[dict[str, object]]:
        found = [json.loads(line) for line in running.log.read_text().splitlines() if line.startswith("{")]
        return [line for line in found if line.get("request_id") == of]

    await until(lambda: bool(lines("stopped")))
    (passed,), (stopped,) = lines("passed"), lines("stopped")
    assert (passed["endpoint"], passed["pod"], passed["client"]) == ("iris", pod.name, "127.0.0.1")
    assert (stopped["status"], stopped["path"]) == (400, CHAT)
    assert KEY not in running.log.read_text()


async def test_who_waits_to_be_asked_for_the_body_is_asked(running: Gateway, pod: Pod) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", running.settings.https_port)
    body = chat("x" * 20_000)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\nexpect: 100-continue\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(body)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()
    assert pod.seen[0].body == body


@pytest.mark.parametrize("protocol", ["--http1.1", "--http2"])
@pytest.mark.parametrize(("size", "model", "status"), [(10, "iris", 200), (10**6, "iris", 200), (10**6, "lily", 404)])
async def test_both_protocols_work_over_tls(tmp_path: Path, protocol: str, size: int, model: str, status: int) -> None:
    certificate = tmp_path / "tls.crt"
    make_certificate(certificate, "gateway")
    async with gateway(tmp_path / "run", certificate=certificate) as running:
        pod = await running.pod(f"{REV}-a")
        running.cluster.put_pods("iris", REV, [pod])
        running.cluster.put(MODEL_ENDPOINTS, endpoint_object())
        await running.routed()
        body = tmp_path / "body"
        body.write_bytes(chat("x" * size, model))
        url = f"https://localhost:{running.settings.https_port}{CHAT}"
        process = await asyncio.create_subprocess_exec(
            "curl", "-sk", protocol, "-H", f"authorization: Bearer {KEY}", "--data-binary", f"@{body}",
            "-o", "/dev/null", "-w", "%{http_code}", url, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
        assert (out.decode(), process.returncode) == (str(status), 0)


async def test_a_control_plane_that_is_gone_changes_nothing(running: Gateway, pod: Pod) -> None:
    await running.kill_control()
    client: Client = running.client()
    assert (await client.call(path=CHAT, body=chat())).status == 200
    reply = await client.call(path="/v1/models", method="GET", body=b"")
    assert [model["id"] for model in reply.json["data"]] == ["iris"]
