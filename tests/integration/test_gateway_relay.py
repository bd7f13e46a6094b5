"""What the detour from the base URL to an endpoint must not lose: parts, ends, errors, clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from controllers.kube import MODEL_ENDPOINTS
from tests.gateway_lab.cluster import endpoint_object, revision
from tests.gateway_lab.gateway import KEY, Gateway, gateway, make_certificate, serving, until
from tests.gateway_lab.openai import CHAT, chat
from tests.gateway_lab.pods import Gate, Pod

pytestmark = pytest.mark.process
REV = revision("iris")
MIB = 1024 * 1024
EVENT = b'data: {"token":"x"}\n\n'


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway(tmp_path / "run") as found:
        yield found


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
    try:
        async with asyncio.timeout(10):  # the heads of the four may still be on their way
            while (refused := await running.client().call(path=CHAT, body=body)).status == 200:
                pass
        assert (refused.status, refused.json["error"]["code"]) == (429, "too_many_requests")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await running.client().call(path=CHAT, body=chat())).status == 200
    finally:
        for writer in writers:
            writer.close()
    async with asyncio.timeout(10):
        while (await running.client().call(path=CHAT, body=body)).status != 200:
            pass


async def test_who_waits_to_be_asked_for_the_body_is_asked(running: Gateway) -> None:
    pod = await running.pod(f"{REV}-a")
    await serving(running, [pod])
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
