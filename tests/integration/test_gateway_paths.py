"""Of an endpoint pass the paths that its file declares, as every other path does, and nothing beside them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, serving
from tests.gateway_lab.pods import Pod, takes
from tests.integration.runtime_process import JSON
from tests.integration.test_runtime_proxy import order, proxied

pytestmark = pytest.mark.process
REV = revision("iris")
EVENT = b'data: {"token":"x"}\n\n'
EVERY_CHARACTER = "/.a/A9._~!$&'()*+,;=:@-/..b"


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run", keys={KEY: "alpha", "key-of-beta": "beta"}) as found:
        yield found


@pytest.fixture
async def pod(running: Gateway) -> Pod:
    return await running.pod(f"{REV}-a")


async def redeclare(running: Gateway, generation: int, *paths: str) -> None:
    """Until HAProxy has these paths of the endpoint, and no others."""
    running.cluster.put(MODEL_ENDPOINTS, endpoint_object(paths=paths, generation=generation))
    wanted = {f"iris{path}" for path in paths}
    async with asyncio.timeout(10):
        while set((await running.live()).maps["paths"]) != wanted:  # noqa: ASYNC110 - HAProxy tells nobody
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/generate", "/generate/deep", "/", "/v1/.own", "/metrics2", EVERY_CHARACTER])
async def test_a_declared_path_reaches_the_pod_without_the_prefix(
    running: Gateway, pod: Pod, path: str, method: str
) -> None:
    await serving(running, [pod], paths=[path], deadline_ms=700)
    client = running.client()
    reply = await client.call(part=f"{path[1:]}?a=b", method=method, body=b"{}", headers={"x-request-id": "once"})
    assert (reply.status, reply.headers["x-request-id"]) == (200, "once")
    (seen,) = pod.seen
    assert (seen.method, seen.path, seen.body) == (method, f"{path}?a=b", b"{}")
    assert (seen.headers["x-request-id"], seen.headers["x-knobless-deadline-ms"]) == ("once", "700")
    assert "authorization" not in seen.headers


@pytest.mark.parametrize(
    "part",
    ["generate/", "generate/x", "Generate", "generate2", "/generate", "x/../generate", "gener%61te", "metrics", ""],
)
async def test_a_path_that_is_not_declared_is_404_before_a_pod_sees_it(running: Gateway, pod: Pod, part: str) -> None:
    await serving(running, [pod], paths=["/generate"])
    for method, body in (("GET", b""), ("POST", b"{}"), ("POST", b"x" * 100_000)):
        reply = await running.client().call(part=part, method=method, body=body)
        assert (reply.status, reply.code) == (404, "NOT_FOUND")
        assert set(reply.json["error"]) == {"code", "message", "request_id"}
    assert pod.seen == []


async def test_a_path_is_one_endpoint_s_and_who_may_not_call_it_is_not_told_its_paths(
    running: Gateway, pod: Pod
) -> None:
    other = await running.pod(f"{revision('rose')}-a")
    await serving(running, [pod], paths=["/generate"])
    await serving(running, [other], "rose", teams=["beta"])
    assert (await running.client().call("rose", "generate")).status == 404
    replies = [await running.client("key-of-beta").call("iris", part) for part in ("generate", "nothing")]
    assert [(reply.status, reply.json["error"]["message"]) for reply in replies] == [
        (403, "This key's team may not call this endpoint.")
    ] * 2
    assert (other.seen, pod.seen) == ([], [])


async def test_paths_come_and_go_without_a_reload(running: Gateway, pod: Pod) -> None:
    await serving(running, [pod])
    before = (await running.live()).pid

    async def statuses() -> list[int]:
        return [(await running.client().call(part=path[1:])).status for path in ("/a", "/b", EVERY_CHARACTER)]

    found = [await statuses()]
    for generation, paths in enumerate((["/a", EVERY_CHARACTER], ["/b", EVERY_CHARACTER], ["/a"], []), 2):
        await redeclare(running, generation, *paths)
        found.append(await statuses())
    assert found == [[404, 404, 404], [200, 404, 200], [404, 200, 200], [200, 404, 404], [404, 404, 404]]
    assert (await running.live()).pid == before


async def test_paths_stand_in_the_files_that_haproxy_starts_from(running: Gateway, pod: Pod) -> None:
    await serving(running, [pod], paths=["/generate", EVERY_CHARACTER])
    await running.kill_control()
    await running.stop_haproxy()
    running.render()
    await running.start_haproxy()
    for path in ("/generate", EVERY_CHARACTER):
        assert (await running.client().call(part=path[1:])).status == 200


async def test_a_stream_of_a_declared_path_arrives_as_it_comes_and_longer_than_the_deadline(
    running: Gateway, pod: Pod
) -> None:
    pod.parts = ((0.0, EVENT), (0.2, EVENT), (0.2, EVENT), (0.2, EVENT))
    await serving(running, [pod], paths=["/generate_stream"], deadline_ms=400)
    url = f"http://127.0.0.1:{running.settings.https_port}/serving-endpoints/iris/generate_stream"
    headers = {"authorization": f"Bearer {KEY}"}
    async with (
        httpx.AsyncClient(timeout=30) as client,
        client.stream("POST", url, content=b"{}", headers=headers) as reply,
    ):
        assert [part async for part in reply.aiter_raw()] == [EVENT] * 4


async def test_behind_it_the_real_interface_passes_the_same_paths_and_refuses_the_rest(
    running: Gateway, tmp_path: Path
) -> None:
    """As where the file has a path that the revision which still serves has not."""
    with proxied(tmp_path / "proxy", "--path", "/own") as proxy:
        await asyncio.to_thread(proxy.wait_ready)
        await serving(running, [Pod(f"{REV}-a", takes(0), port=proxy.port)], paths=["/own", "/new"], deadline_ms=300)
        client = running.client()
        own = await client.call(part="own", body=order(a=1), headers=JSON | {"x-request-id": "once"})
        assert (own.status, own.json["got"], own.json["headers"]["x-request-id"]) == (200, {"a": 1}, "once")
        new = await client.call(part="new", body=order(a=1), headers=JSON)
        late = await client.call(part="own", body=order(sleep=5), headers=JSON)
        assert [(each.status, each.code) for each in (new, late)] == [(404, "NOT_FOUND"), (504, "DEADLINE_EXCEEDED")]
