"""One OpenAI base URL for the platform: `model` names the endpoint, wherever in the body it stands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.client import Client
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving, until
from tests.gateway_lab.openai import CHAT, chat
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


async def test_a_control_plane_that_is_gone_changes_nothing(running: Gateway, pod: Pod) -> None:
    await running.kill_control()
    client: Client = running.client()
    assert (await client.call(path=CHAT, body=chat())).status == 200
    reply = await client.call(path="/v1/models", method="GET", body=b"")
    assert [model["id"] for model in reply.json["data"]] == ["iris"]
