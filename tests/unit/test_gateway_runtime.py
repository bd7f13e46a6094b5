"""The command socket's protocol, what its answers say, and what becomes of failures; against a scripted socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from controllers.gateway.converge import converge
from controllers.gateway.desired import MAPS, Desired, Live, LiveServer, Mode, Target
from controllers.gateway.metrics import Metrics
from controllers.gateway.readback import parse_map, parse_pid, parse_queues, parse_servers
from controllers.gateway.runtime_api import (
    RefusedError,
    RuntimeApiError,
    ask,
    payloads,
    reload,
    set_certificate,
    swap_map,
)

Answer = Callable[[str], str]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]


class Script:
    """Answers each command as HAProxy does in prompt mode, and notes it."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.said: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        prompting = False
        while line := (await reader.readline()).decode().rstrip("\n"):
            if line == "quit":
                break
            payload: list[str] = []
            while line.endswith("<<") or payload:
                following = (await reader.readline()).decode().rstrip("\n")
                if not following:
                    break
                payload.append(following)
            command = "\n".join([line, *payload])
            prompting = prompting or command == "prompt"
            if command != "prompt":
                self.said.append(command)
            answer = "" if command == "prompt" else self.answer(command)
            writer.write((answer + "\n" + ("> " if prompting else "")).encode())


@asynccontextmanager
async def listening(path: Path, handle: Handler) -> AsyncIterator[None]:
    """A socket whose connections have all ended when it is left."""
    running: list[asyncio.Task[None]] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        running.append(asyncio.ensure_future(ended(handle(reader, writer), writer)))

    async with await asyncio.start_unix_server(connected, str(path)):
        try:
            yield
        finally:
            await asyncio.gather(*running)


async def ended(handling: Coroutine[None, None, None], writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        await handling
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@asynccontextmanager
async def haproxy(path: Path, answer: Answer) -> AsyncIterator[Script]:
    script = Script(answer)
    async with listening(path, script):
        yield script


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "ctl.sock"


async def test_each_command_gets_its_own_answer_whatever_lines_it_has(socket: Path) -> None:
    said = {"a": "", "b": "one\ntwo\n", "c": "\nNo such server.\n"}
    async with haproxy(socket, lambda command: said[command]):
        assert await ask(socket, ["a", "b", "c", "a"]) == ["", "one\ntwo", "No such server.", ""]


async def test_no_command_needs_no_socket(socket: Path) -> None:
    assert await ask(socket, []) == []


async def test_a_socket_that_is_not_there_is_one_error(socket: Path) -> None:
    with pytest.raises(RuntimeApiError, match=r"ctl\.sock"):
        await ask(socket, ["show info"])


async def test_an_end_in_mid_answer_is_an_error_and_no_short_list(socket: Path) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"\n> answer\n\n> part of the")

    async with listening(socket, cut):
        with pytest.raises(RuntimeApiError, match="1 answers to 2 commands"):
            await ask(socket, ["a", "b"])


async def test_a_socket_that_says_nothing_is_given_up_on(socket: Path) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(socket, silent):
        with pytest.raises(RuntimeApiError, match=r"no answer within 0\.01 s"):
            await ask(socket, ["show info"], timeout_s=0.01)


async def test_a_map_is_swapped_in_one_transaction(socket: Path) -> None:
    def answer(command: str) -> str:
        return "New version created: 7\n" if command.startswith("prepare") else ""

    async with haproxy(socket, answer) as script:
        await swap_map(socket, "keys.map", {"B": "beta", "A": "alpha"})
    assert script.said == ["prepare map keys.map", "add map @7 keys.map <<\nA alpha\nB beta", "commit map @7 keys.map"]


async def test_an_empty_map_is_swapped_too(socket: Path) -> None:
    async with haproxy(socket, lambda c: "New version created: 1" if c.startswith("prepare") else "") as script:
        await swap_map(socket, "keys.map", {})
    assert script.said == ["prepare map keys.map", "commit map @1 keys.map"]


@pytest.mark.parametrize("refused", ["prepare", "add", "commit"])
async def test_a_transaction_that_is_refused_anywhere_is_an_error(socket: Path, refused: str) -> None:
    def answer(command: str) -> str:
        if command.startswith(refused):
            return "Unknown map identifier."
        return "New version created: 1" if command.startswith("prepare") else ""

    async with haproxy(socket, answer):
        with pytest.raises(RefusedError, match="Unknown map"):
            await swap_map(socket, "keys.map", {"A": "alpha"})


@pytest.mark.case("gateway-B6")
def test_no_message_grows_with_the_number_of_entries() -> None:
    entries = {f"{i:064X}/endpoint-{i}": "1" for i in range(10_000)}
    chunks = payloads(entries)
    assert max(len(chunk) for chunk in chunks) < 16_000
    assert "".join(chunks) == "".join(f"{key} 1\n" for key in sorted(entries))


async def test_a_certificate_goes_in_without_blank_lines_and_is_committed(socket: Path) -> None:
    def answer(command: str) -> str:
        begun = "Transaction created for certificate c.crt!"
        return begun if command.startswith("set") else "Committing c.crt.\nSuccess!"

    async with haproxy(socket, answer) as script:
        await set_certificate(socket, "c.crt", "one\n\ntwo\n")
    assert script.said == ["set ssl cert c.crt <<\none\ntwo", "commit ssl cert c.crt"]


async def test_a_certificate_that_is_refused_is_an_error(socket: Path) -> None:
    async with haproxy(socket, lambda _: "unable to load certificate"):
        with pytest.raises(RefusedError, match="unable to load"):
            await set_certificate(socket, "c.crt", "x")


@pytest.mark.parametrize("answer", ["Success=0\n--\n[ALERT] config", ""])
async def test_a_reload_that_fails_says_so(socket: Path, answer: str) -> None:
    async def master(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(answer.encode())

    async with listening(socket, master):
        with pytest.raises(RefusedError):
            await reload(socket)


HEAD = "# pxname,svname,scur,slim,status,addr,srv_icur,stot,uweight,"


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("b,p,0,4,no check,10.0.0.1:8080,0,7,1,", LiveServer("10.0.0.1", 8080, 4, Mode.READY, 0, 0)),
        ("b,p,3,4,DRAIN,10.0.0.1:8080,2,7,256,", LiveServer("10.0.0.1", 8080, 4, Mode.DRAIN, 3, 2, 256)),
        ("b,p,0,,MAINT,[fd00::1]:80,,7,,", LiveServer("fd00::1", 80, None, Mode.MAINT, 0, 0)),
        ("b,p,0,4,UP 1/3,10.0.0.1:8080,0,7,1,", LiveServer("10.0.0.1", 8080, 4, Mode.READY, 0, 0)),
    ],
)
def test_a_row_of_statistics_is_a_server(row: str, expected: LiveServer) -> None:
    assert parse_servers(f"{HEAD}\n{row}\n") == {"b": {"p": expected}}
    assert parse_servers(f"{HEAD}\n{row}\n")["b"]["p"].sent == 7


def test_no_server_is_no_row() -> None:
    assert parse_servers(HEAD) == {}


def test_the_server_of_the_configuration_itself_is_none_of_ours() -> None:
    assert parse_servers(f"{HEAD}\nopenai,relay,0,,no check,unix,0,1,1,\n") == {}


def test_a_back_end_tells_what_waits_and_what_was_answered_with_an_error() -> None:
    text = "# pxname,svname,qcur,hrsp_4xx,hrsp_5xx,\nb0,BACKEND,3,5,2,\nb1,BACKEND,0,,,\n"
    assert parse_queues(text) == {"b0": (3, 7), "b1": (0, 0)}


@pytest.mark.parametrize("text", ["", "Permission denied", "# pxname,svname,qcur"])
def test_an_answer_that_is_no_statistics_is_an_error_and_no_calm(text: str) -> None:
    with pytest.raises(RuntimeApiError):
        parse_queues(text)


def test_a_map_is_read_with_its_values_and_a_key_twice_is_told() -> None:
    assert parse_map("") == ({}, False)
    assert parse_map("0x1 iris b1/8/9\n0x2 rose none/8/9") == ({"iris": "b1/8/9", "rose": "none/8/9"}, False)
    assert parse_map("0x1 iris b1/8/9\n0x2 iris b2/8/9") == ({"iris": "b1/8/9"}, True)


def test_the_worker_is_known_by_its_pid() -> None:
    assert parse_pid("Name: HAProxy\nPid: 42\nUptime: 1") == 42
    with pytest.raises(RuntimeApiError):
        parse_pid("Permission denied")


# One pass against a HAProxy that refuses some of it.


def two_endpoints() -> Desired:
    maps: dict[str, dict[str, str]] = {name: {} for name in MAPS}
    maps["routes"] = {"iris": "b0/1/1", "rose": "b1/1/1"}
    servers = {"b0": {"p": Target("10.0.0.1", 1, 1)}, "b1": {"q": Target("10.0.0.2", 1, 1)}}
    return Desired(servers, maps, {"b0": "iris", "b1": "rose"})


def answering(refused: str) -> Answer:
    def answer(command: str) -> str:
        if command.startswith(refused):
            return "No."
        if command.startswith("show stat"):
            return HEAD
        return "New server registered." if command.startswith("add server") else ""

    return answer


async def test_a_refused_pod_stops_the_route_of_its_endpoint_and_no_other(socket: Path) -> None:
    metrics = Metrics()
    async with haproxy(socket, answering("add server b0/")) as script:
        live = await converge(socket, two_endpoints(), Live(1), metrics)
    assert "add map routes.map rose b1/1/1" in script.said
    assert not any(command.startswith("add map routes.map iris") for command in script.said)
    assert live.maps["routes"] == {"rose": "b1/1/1"}
    assert b'knobless_gateway_steps_total{outcome="refused"} 1.0' in generate_latest(metrics.registry)


async def test_a_refused_entry_of_a_map_is_not_taken_for_done(socket: Path) -> None:
    async with haproxy(socket, answering("add map routes.map rose")):
        live = await converge(socket, two_endpoints(), Live(1), Metrics())
    assert live.maps["routes"] == {"iris": "b0/1/1"}


async def test_a_pass_with_nothing_to_do_says_nothing(socket: Path) -> None:
    live = Live(1)
    assert await converge(socket, Desired(), live, Metrics()) == live


@pytest.mark.case("gateway-D12")
async def test_a_refused_access_entry_is_logged_without_its_digest(
    socket: Path, caplog: pytest.LogCaptureFixture
) -> None:
    maps: dict[str, dict[str, str]] = {name: {} for name in MAPS}
    maps["access"] = {"ABCDEF/iris": "1"}
    async with haproxy(socket, answering("add map access.map")):
        await converge(socket, Desired(maps=maps), Live(1), Metrics())
    (record,) = caplog.records
    assert vars(record)["command"] == "add map access.map"
    assert "ABCDEF" not in str(vars(record))
