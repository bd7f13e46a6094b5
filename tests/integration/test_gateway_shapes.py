"""The gateway's own errors have the three shapes of the interface in the pods, chosen by path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from runtimes.interface.engine import Api
from runtimes.interface.errors import CODES, error_body
from tests.gateway_lab.client import Reply
from tests.gateway_lab.cluster import revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving, until
from tests.gateway_lab.pods import Gate, Pod

pytestmark = pytest.mark.process
REV = revision("iris")
PARTS = {
    "invocations": Api.MLFLOW,
    "generate": Api.MLFLOW,
    "v1/chat/completions": Api.OPENAI,
    "v2/models/iris/infer": Api.V2,
}


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run", queue_ms=300, keys={KEY: "alpha", "key-of-beta": "beta"}) as found:
        yield found


@pytest.fixture
async def pod(running: Gateway) -> Pod:
    found = await running.pod(f"{REV}-a")
    await serving(running, [found], deadline_ms=300, limit=1, queue_max=1, paths=["/generate"])
    return found


def message(document: dict[str, Any]) -> str:
    error = document["error"]
    return error if isinstance(error, str) else str(error["message"])


def expect_the_interfaces_shape(reply: Reply, status: int, api: Api) -> None:
    assert reply.status == status
    assert reply.headers["content-type"] == "application/json"
    told = message(reply.json)
    wanted = json.loads(error_body(status, told, reply.headers["x-request-id"], None, api))
    if status not in CODES and api is not Api.V2:  # statuses that only the gateway gives have codes of their own
        wanted["error"]["code"] = reply.json["error"]["code"]
    assert (told != "", reply.json) == (True, wanted)


@pytest.mark.parametrize("size", [2, 100_000])
@pytest.mark.parametrize(("part", "api"), PARTS.items())
async def test_a_refusal_has_the_shape_of_its_path(running: Gateway, pod: Pod, part: str, api: Api, size: int) -> None:
    body = b"x" * size
    expect_the_interfaces_shape(await running.client(None).call(part=part, body=body), 401, api)
    expect_the_interfaces_shape(await running.client("key-of-beta").call(part=part, body=body), 403, api)
    expect_the_interfaces_shape(await running.client().call("tulip", part, body=body), 404, api)
    expect_the_interfaces_shape(await running.client().call(part=part, body=body, method="DELETE"), 405, api)
    chunked = {"transfer-encoding": "chunked"}
    expect_the_interfaces_shape(await running.client().call(part=part, body=b"0\r\n\r\n", headers=chunked), 411, api)
    waiting = {"content-length": str(16 * 1024 * 1024 + 1), "expect": "100-continue"}
    expect_the_interfaces_shape(await running.client().call(part=part, body=b"", headers=waiting), 413, api)


@pytest.mark.parametrize(("part", "api"), PARTS.items())
async def test_what_goes_wrong_behind_the_gateway_has_the_shape_of_its_path(
    running: Gateway, part: str, api: Api
) -> None:
    gate = Gate()
    pod = await running.pod(f"{REV}-a", gate)
    await serving(running, [pod], deadline_ms=600, limit=1, queue_max=1, paths=["/generate"])
    late = asyncio.create_task(running.client().call(part=part))
    await until(lambda: pod.in_flight == 1)
    refused, given_up = await asyncio.gather(*(running.client().call(part=part) for _ in range(2)))
    expect_the_interfaces_shape(refused, 429, api)
    expect_the_interfaces_shape(given_up, 429, api)
    assert message(refused.json) != message(given_up.json)
    expect_the_interfaces_shape(await late, 504, api)
    gate.open()
    pod.die_after_head = True
    expect_the_interfaces_shape(await running.client().call(part=part), 502, api)
    await pod.stop()
    expect_the_interfaces_shape(await running.client().call(part=part), 503, api)


@pytest.mark.parametrize(
    ("path", "shape"),
    [("/v1/nothing", dict), ("/v2", str), ("/v2/models/iris", str), ("/", dict), ("/serving-endpoints/iris/v3", dict)],
)
async def test_a_path_that_does_not_exist_has_the_shape_that_it_looks_like(
    running: Gateway, pod: Pod, path: str, shape: type
) -> None:
    reply = await running.client().call(path=path)
    assert reply.status == 404
    assert isinstance(reply.json["error"], shape)


@pytest.mark.parametrize("sent", [b"nonsense", b"GET /\x01 HTTP/1.1", b"GET / HTTP/1.1\r\ncontent-length: -1"])
async def test_what_is_no_http_gets_haproxys_own_page_and_no_connection(running: Gateway, sent: bytes) -> None:
    """It is refused before it is a request, by text that HAProxy 2.8 has built in."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.settings.https_port)
    writer.write(sent + b"\r\nhost: x\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"\r\ncontent-type: text/html" in head.lower()
    assert body.strip().startswith(b"<html>")


@pytest.mark.parametrize(
    "part", ["v2", "v2/health/ready", "v2/models/iris/versions/3/ready", "v1/models", "v1/models/iris"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_protocols_paths_reach_the_pod_without_the_prefix(
    running: Gateway, pod: Pod, part: str, method: str
) -> None:
    reply = await running.client().call(part=f"{part}?a=b", method=method, body=b"{}" if method == "POST" else b"")
    assert reply.status == 200
    assert (pod.seen[0].method, pod.seen[0].path) == (method, f"/{part}?a=b")


@pytest.mark.parametrize("part", ["v1", "v1/", "v2/", "v2//models", "v1/../metrics", "v2/./x", "v3/models", "v1x/y"])
async def test_paths_that_could_lead_elsewhere_in_the_pod_do_not_reach_it(
    running: Gateway, pod: Pod, part: str
) -> None:
    assert (await running.client().call(part=part)).status == 404
    assert pod.seen == []


async def test_binary_tensors_and_the_trace_are_passed_on_as_they_are(running: Gateway, pod: Pod) -> None:
    headers = {
        "inference-header-content-length": "2",
        "content-type": "application/octet-stream",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "tracestate": "a=1",
    }
    body = b"{}" + bytes(range(256))
    assert (await running.client().call(part="v2/models/iris/infer", body=body, headers=headers)).status == 200
    (seen,) = pod.seen
    assert seen.body == body
    assert {name: seen.headers[name] for name in headers} == headers
