"""The interface under pressure: many connections, bodies that are too large, floods, and memory over many requests.

The engine is a server of a few lines behind the proxy, so that what is measured is the interface.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gzip
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.runtime_process import JSON, ROOT, Connection, Runtime, free_port, until
from tests.integration.test_runtime_proxy import Proxied, once, order, proxied

pytestmark = pytest.mark.process

MIB = 1 << 20
LIMIT = 16 * MIB


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    flags = ("--max-in-flight", "64", "--deadline-s", "20", "--max-buffered-bytes", str(4 * LIMIT))
    with proxied(tmp_path_factory.mktemp("proxy"), *flags) as runtime:
        runtime.wait_ready()
        yield runtime


def resident_bytes(runtime: Runtime) -> int:
    text = Path(f"/proc/{runtime.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) * 1024


def open_files(runtime: Runtime) -> int:
    return len(list(Path(f"/proc/{runtime.process.pid}/fd").iterdir()))


async def keep_asking(port: int, count: int, body: bytes) -> collections.Counter[int]:
    statuses: collections.Counter[int] = collections.Counter()
    async with Connection.open(port) as connection:
        for _ in range(count):
            statuses[(await connection.ask("POST", "/invocations", body, JSON)).status] += 1
    return statuses


async def many(port: int, connections: int, each: int, body: bytes) -> collections.Counter[int]:
    counted = await asyncio.gather(*(keep_asking(port, each, body) for _ in range(connections)))
    return sum(counted, collections.Counter())


@pytest.mark.case("runtimes-D7")
async def test_500_connections_are_each_answered_and_after_them_all_is_as_before(proxy: Proxied) -> None:
    statuses = await many(proxy.port, 500, 4, order(sleep=0.02))
    assert set(statuses) <= {200, 429}
    assert (statuses.total(), statuses[200] > 0) == (2000, True)
    assert (await once(proxy)).status == 200
    assert proxy.metric("knobless_runtime_requests_in_flight") == 0


async def test_idle_connections_take_no_room_from_requests_and_probes_however_many_there_are(tmp_path: Path) -> None:
    with proxied(tmp_path) as runtime, contextlib.ExitStack() as idle:
        runtime.wait_ready()
        resource.prlimit(runtime.process.pid, resource.RLIMIT_NOFILE, (512, 2048))  # half are for connections
        async with Connection.open(runtime.port) as used:
            for number in range(1000):
                idle.enter_context(socket.create_connection(("127.0.0.1", runtime.port)))
                if number % 50 == 0:
                    assert (await used.ask("POST", "/invocations", order(), JSON)).status == 200
            assert [runtime.ask("GET", path).status for path in ("/health", "/live")] == [200, 200]
            assert open_files(runtime) < 400


@pytest.mark.case("runtimes-D8")
async def test_at_exactly_the_admitted_concurrency_nothing_is_refused(proxy: Proxied) -> None:
    assert await many(proxy.port, 64, 40, order(sleep=0.005)) == {200: 64 * 40}


@pytest.mark.case("runtimes-D9")
async def test_a_body_without_an_announced_length_grows_no_memory_beyond_its_limit(proxy: Proxied) -> None:
    before = resident_bytes(proxy)
    async with Connection.open(proxy.port) as connection:
        connection.writer.write(
            b"POST /invocations HTTP/1.1\r\nhost: pod\r\ncontent-type: application/json\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for _ in range(40):
            connection.writer.write(b"100000\r\n" + bytes(MIB) + b"\r\n")
            await connection.writer.drain()
        answer = await connection.receive()
    assert answer.status == 413
    assert resident_bytes(proxy) - before < 2 * LIMIT


@pytest.mark.case("runtimes-D10")
async def test_bombs_at_once_grow_no_memory_beyond_the_limit(proxy: Proxied) -> None:
    bomb = gzip.compress(bytes(200 * MIB))
    before = resident_bytes(proxy)
    headers = JSON | {"content-encoding": "gzip"}

    async def send() -> int:
        async with Connection.open(proxy.port) as connection:
            return int((await connection.ask("POST", "/invocations", bomb, headers)).status)

    assert await asyncio.gather(*(send() for _ in range(16))) == [413] * 16
    assert resident_bytes(proxy) - before < 4 * LIMIT  # of those that unpack at a time, not of all


@pytest.mark.case("runtimes-G4")
async def test_bodies_of_16_mb_stay_inside_the_budget_and_the_rest_is_429(proxy: Proxied) -> None:
    body = json.dumps({"sleep": 0.5, "pad": "x" * (LIMIT - 100)}).encode()
    assert len(body) <= LIMIT
    before = resident_bytes(proxy)
    answers = await many(proxy.port, 24, 1, body)
    assert set(answers) == {200, 429}
    assert answers[200] >= 4
    # A body is held by the interface, and once more on its way to the engine.
    assert resident_bytes(proxy) - before < 2 * 4 * LIMIT + 64 * MIB
    assert proxy.metric("knobless_runtime_buffered_bytes") == 0
    assert (await once(proxy)).status == 200


@pytest.mark.case("runtimes-G1", "runtimes-G2", "runtimes-G3")
async def test_memory_stands_still_over_requests_probes_and_scrapes(tmp_path: Path) -> None:
    with proxied(tmp_path) as runtime:
        runtime.wait_ready()

        async def a_fifth() -> int:
            await many(runtime.port, 8, 250, order())
            async with Connection.open(runtime.port) as connection:
                for path in ("/health", "/live", "/metrics") * 70:
                    await connection.ask("GET", path)
            return resident_bytes(runtime)

        after = [await a_fifth() for _ in range(5)]
        assert max(after[1:]) - after[0] < 10 * MIB


@pytest.mark.case("runtimes-B7")
async def test_500_malformed_requests_are_4xx_and_the_server_lives(proxy: Proxied) -> None:
    heads = [
        b"GET\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\ncontent-length: x\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST /invocations HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-type: application/json\r\n\r\nzz\r\n",
        b"POST /invocations HTTP/1.1\r\nx-request-id: \xff\xfe\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /invocations HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"POST /%00%ff HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
        b"POST /v2/models/..%2f/infer HTTP/1.1\r\ncontent-length: 0\r\n\r\n",
    ]
    for number in range(500):
        async with Connection.open(proxy.port) as connection:
            connection.writer.write(heads[number % len(heads)])
            answer = await connection.receive()
        assert 400 <= answer.status < 500, (heads[number % len(heads)], answer)
        assert answer.json["error"]
    assert (await once(proxy)).status == 200


@pytest.mark.case("runtimes-C8")
@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of its own needs root")
def test_as_the_first_process_of_its_namespace_it_ends_when_told(tmp_path: Path) -> None:
    port = free_port()
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "runtimes.proxy"]
    flags = ["--upstream-port", "9", "--host", "127.0.0.1", "--port", str(port)]
    outer = subprocess.Popen([*command, *flags], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        runtime = Runtime(outer, port, tmp_path)
        until(lambda: alive(runtime), "the first answer", outer)
        (first,) = runtime.predictors()
        os.kill(first, signal.SIGTERM)
        assert outer.wait(10) == 0
    finally:
        outer.kill()
        outer.wait()


def alive(runtime: Runtime) -> bool:
    try:
        return runtime.ask("GET", "/live").status == 200
    except OSError:
        return False


@pytest.mark.case("runtimes-D16")
def test_without_uvloop_the_start_fails_with_that_reason(tmp_path: Path) -> None:
    reason = tmp_path / "termination-log"
    code = "import sys, runpy; sys.modules['uvloop'] = None; runpy.run_module('runtimes.proxy', run_name='__main__')"
    environment = {**os.environ, "KNOBLESS_TERMINATION_LOG": str(reason)}
    done = subprocess.run(
        [sys.executable, "-c", code, "--upstream-port", "9"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "uvloop" in reason.read_text()
