"""A pod's place among those of its replica, and how each of them learns that another one is gone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from runtimes.interface.routes import Does
from runtimes.vllm import arguments, tie
from runtimes.vllm.group import ALONE, Place, place
from runtimes.vllm.loading import LIVE, READY, answer
from runtimes.vllm.model import Served, UnservableError
from runtimes.vllm.settings import Adapter, VllmSettings, parse_settings
from runtimes.vllm.tie import Leader, Worker, tied

TOLD = {"LWS_GROUP_SIZE": "3", "LWS_WORKER_INDEX": "2", "LWS_LEADER_ADDRESS": "big-0.big.team"}
LEADS, FIRST, SECOND = (Place(size=3, index=index, leader="127.0.0.1") for index in range(3))
LIVED_S = 5.0  # a bound that nobody comes near


# Its place.


def test_a_pod_s_place_is_what_leaderworkerset_tells_it() -> None:
    assert place(3, TOLD) == Place(size=3, index=2, leader="big-0.big.team")
    assert place(3, TOLD | {"LWS_WORKER_INDEX": "0"}).leads


def test_a_replica_of_one_node_asks_for_nothing_and_believes_nothing() -> None:
    assert place(1, {}) == place(1, TOLD) == ALONE
    assert ALONE.leads
    assert not ALONE.workers


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"LWS_GROUP_SIZE": ""}, "LWS_GROUP_SIZE is not set, which LeaderWorkerSet sets"),
        ({"LWS_WORKER_INDEX": ""}, "LWS_WORKER_INDEX is not set"),
        ({"LWS_LEADER_ADDRESS": ""}, "LWS_LEADER_ADDRESS is not set"),
        ({"LWS_GROUP_SIZE": "2"}, "--nodes is 3 and LWS_GROUP_SIZE is 2: they must be the same"),
        ({"LWS_WORKER_INDEX": "3"}, "LWS_WORKER_INDEX is 3 in a group of 3"),
        ({"LWS_WORKER_INDEX": "-1"}, "LWS_WORKER_INDEX is not a number"),
        ({"LWS_GROUP_SIZE": "²"}, "LWS_GROUP_SIZE is not a number"),
    ],
)
def test_what_is_missing_or_differs_is_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(UnservableError, match=message):
        place(3, TOLD | changed)


# vLLM's flags.


def flags(where: Place, **changes: object) -> list[str]:
    settings = VllmSettings(**{"model": Path("/m"), "nodes": where.size, **changes})  # type: ignore[arg-type]
    return arguments.flags(settings, Served(Path("/m"), Path("/m")), (), place=where)


def test_each_node_gets_its_rank_and_only_workers_have_no_server() -> None:
    leader, worker = flags(LEADS), flags(SECOND)
    for words, rank in ((leader, "0"), (worker, "2")):
        stated = dict(itertools.pairwise(words))
        assert (stated["--pipeline-parallel-size"], stated["--nnodes"], stated["--node-rank"]) == ("3", "3", rank)
        assert stated["--master-addr"] == "127.0.0.1"
    assert ("--headless" in leader, "--headless" in worker) == (False, True)
    assert [word for word in worker if word != "--headless"] == [*_with_rank(leader, "2")]


def _with_rank(words: list[str], rank: str) -> Iterator[str]:
    at = words.index("--node-rank") + 1
    yield from (rank if number == at else word for number, word in enumerate(words))


def test_one_node_knows_nothing_of_others() -> None:
    words = flags(ALONE)
    assert not {"--nnodes", "--pipeline-parallel-size", "--master-addr", "--headless"} & set(words)


def test_several_nodes_without_a_gpu_are_warmed_up_or_they_could_hand_nothing_on() -> None:
    assert "--enforce-eager" in flags(ALONE)
    assert "--enforce-eager" not in flags(LEADS)
    stated = json.loads(flags(LEADS)[flags(LEADS).index("--compilation-config") + 1])
    assert stated["mode"] == "STOCK_TORCH_COMPILE"
    assert stated["custom_ops"] == ["all"]  # one node's kernels, which round as they do


def test_adapters_on_several_nodes_without_a_gpu_are_refused_since_vllm_does_not_warm_them_up() -> None:
    with pytest.raises(UnservableError, match="leave out --adapter or --nodes"):
        flags(LEADS, adapters=(Adapter(name="a", folder=Path("/a")),))


@pytest.mark.parametrize("flag", ["--nnodes", "--node-rank", "--master-addr", "--headless", "--pipeline-parallel-size"])
def test_nobody_else_says_where_a_node_stands(flag: str) -> None:
    with pytest.raises(UnservableError, match=f"not to be passed to vLLM: {flag}"):
        flags(ALONE, own_flags=(f"{flag}=1",))


def test_nodes_are_a_number_of_at_least_one() -> None:
    assert parse_settings(["--model", "/m"]).nodes == 1
    assert parse_settings(["--model", "/m", "--nodes", "2"]).nodes == 2
    with pytest.raises(SystemExit):
        parse_settings(["--model", "/m", "--nodes", "0"])


# The tie between a worker and its leader.


@asynccontextmanager
async def leading() -> AsyncIterator[tuple[Leader, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    leader = Leader(LEADS)
    async with leader.listening(port):
        yield leader, port


@asynccontextmanager
async def joined(port: int, where: Place = FIRST) -> AsyncIterator[Worker]:
    async with asyncio.timeout(LIVED_S):
        worker = await tied(where, port)
    try:
        yield worker
    finally:
        worker.leave()


async def _lost(leader: Leader) -> str:
    async with asyncio.timeout(LIVED_S):
        return await leader.lost


async def _over(worker: Worker) -> str:
    async with asyncio.timeout(LIVED_S):
        return await worker.over


async def test_a_leader_knows_who_has_come() -> None:
    async with leading() as (leader, port):
        assert leader.missing() == {1, 2}
        async with joined(port), joined(port, SECOND):
            assert leader.missing() == set()
            assert not leader.lost.done()


@pytest.mark.parametrize(
    "hello", [b"0 of 3\n", b"3 of 3\n", b"1 of 2\n", b"GET / HTTP/1.1\r\n\r\n", b"\n", b"x" * 9000, b"\xff\n"]
)
async def test_who_is_no_worker_of_this_group_is_sent_away_and_harms_nobody(hello: bytes) -> None:
    async with leading() as (leader, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(hello)
        async with asyncio.timeout(LIVED_S):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
        assert leader.missing() == {1, 2}
        assert not leader.lost.done()


async def test_a_second_worker_of_the_same_index_is_sent_away() -> None:
    async with leading() as (leader, port), joined(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"1 of 3\n")
        async with asyncio.timeout(LIVED_S):
            assert await reader.read() == b""
        writer.close()
        assert not leader.lost.done()


async def test_a_worker_that_closes_is_lost() -> None:
    async with leading() as (leader, port):
        async with joined(port, SECOND):
            pass
        assert await _lost(leader) == "node 2 of this replica is gone"


async def test_a_worker_says_why_it_can_not_go_on() -> None:
    async with leading() as (leader, port), joined(port) as worker:
        await worker.fail("OutOfMemoryError: 80 GiB\nare not enough")
        assert await _lost(leader) == "node 1 of this replica failed: OutOfMemoryError: 80 GiB are not enough"


async def test_the_first_that_is_lost_is_the_reason() -> None:
    async with leading() as (leader, port), joined(port, SECOND), joined(port) as worker:
        await worker.fail("first")
        assert "node 1" in await _lost(leader)
    assert "first" in leader.lost.result()


@pytest.mark.parametrize("quiet", ["worker", "leader"])
async def test_who_says_nothing_is_lost(quiet: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tie, "SILENT_S", 0.3)
    if quiet == "worker":
        async with leading() as (leader, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"1 of 3\n")
            assert await _lost(leader) == "node 1 of this replica said nothing for 0 s"
            writer.close()
        return

    closed = asyncio.Event()

    async def greets(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        await reader.read()
        writer.close()
        await writer.wait_closed()
        closed.set()

    server = await asyncio.start_server(greets, "127.0.0.1", 0)
    async with server, joined(server.sockets[0].getsockname()[1]) as worker:
        assert await _over(worker) == "the leader of this replica said nothing for 0 s"
        worker.leave()
        await closed.wait()


async def test_both_live_on_while_they_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tie, "SILENT_S", 1.0)
    monkeypatch.setattr(tie, "BEAT_S", 0.05)
    async with leading() as (leader, port), joined(port) as worker:
        await asyncio.sleep(1.5)
        assert not leader.lost.done()
        assert not worker.over.done()


async def test_a_leader_that_is_gone_is_the_reason_of_its_workers() -> None:
    async with leading() as (_, port):
        joining = joined(port)
        worker = await joining.__aenter__()
    assert await _over(worker) == "the leader of this replica is gone"
    await joining.__aexit__(None, None, None)


async def test_a_leader_that_ends_in_order_says_so_and_loses_nobody() -> None:
    async with leading() as (leader, port), joined(port) as worker:
        await leader.say_goodbye()
        assert await _over(worker) == ""
        worker.leave()
        await asyncio.sleep(0.05)
        assert leader.lost.cancelled()


async def test_a_worker_that_is_there_before_its_leader_waits_for_it() -> None:
    async with leading() as (_, port):
        pass
    waiting = asyncio.create_task(tied(FIRST, port))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    leader = Leader(LEADS)
    async with leader.listening(port), asyncio.timeout(LIVED_S):
        (await waiting).leave()
        assert leader.missing() == {2}


# What a worker tells those who ask.


def test_a_worker_tells_what_it_is_told_to_and_no_more() -> None:
    told = {Does.LIVE: LIVE, Does.READY: READY, Does.METRICS: b"a 1\n"}
    heads = {path: answer(f"GET {path} HTTP/1.1\r\n\r\n".encode(), told.get).split(b"\r\n")
             for path in ("/live", "/ping", "/metrics", "/v1/models", "/nowhere")}  # fmt: skip
    assert {path: lines[0].split()[1] for path, lines in heads.items()} == {
        "/live": b"200", "/ping": b"200", "/metrics": b"200", "/v1/models": b"503", "/nowhere": b"503"
    }  # fmt: skip
    assert b"content-type: text/plain; version=0.0.4; charset=utf-8" in heads["/metrics"]
    assert heads["/metrics"][-1] == b"a 1\n"
