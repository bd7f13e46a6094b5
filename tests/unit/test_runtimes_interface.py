"""The interface in front of an engine, without a socket: what holds whatever the engine."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Iterable
from types import FrameType
from typing import Any

import pytest
import zstandard
from prometheus_client import Metric
from prometheus_client.registry import Collector

from runtimes.interface.drain import Phase
from runtimes.interface.engine import Api, Call, Reply
from runtimes.interface.errors import RefusedError
from runtimes.interface.hooks import MOST_LOGGED_BYTES, Record
from runtimes.interface.sse import DONE, event
from tests.unit.runtimes_client import JSON, Answer, Client, Engine, ask, interface, post

LONG = b'{"predictions": [' + b"1.0, " * 2000 + b"1.0]}"


async def test_a_call_reaches_the_engine_whole_with_what_its_headers_say() -> None:
    engine = Engine()
    sent = {"accept": "application/vnd.apache.arrow.stream", "traceparent": "00-1-2-3", "x-request-id": "mine"}
    await post(interface(engine), [b"{", b"", b"}"], **{name.replace("-", "_"): text for name, text in sent.items()})
    (call,) = engine.calls
    assert (call.body, call.api, call.media, call.wants) == (b"{}", Api.MLFLOW, "json", "arrow")
    assert (call.request_id, call.traceparent, call.method, call.path) == ("mine", b"00-1-2-3", "POST", "/invocations")


async def test_v2_tells_where_its_tensors_begin_and_a_wrong_place_is_400() -> None:
    engine = Engine()
    app = interface(engine)
    path = "/v2/models/wine/infer"
    await ask(app, "POST", path, b"{}tensor", {"inference-header-content-length": "2"})
    assert (engine.calls[0].json_bytes, engine.calls[0].api) == (2, Api.V2)
    for length in ("9", "-1", "x", "9" * 5000):
        answer = await ask(app, "POST", path, b"{}tensor", {"inference-header-content-length": length})
        assert (answer.status, set(answer.json)) == (400, {"error"})
    assert len(engine.calls) == 1


# Request ids.


@pytest.mark.parametrize("path", ["/invocations", "/v1/embeddings", "/v2/models/wine/infer", "/nowhere", "/live"])
async def test_every_answer_carries_a_request_id(path: str) -> None:
    app = interface(Engine())
    kept = await post(app, path=path, x_request_id="abc-1")
    replaced = await post(app, path=path, x_request_id="x" * 129)
    assert kept.headers["x-request-id"] == "abc-1"
    assert re.fullmatch("[0-9a-f]{32}", replaced.headers["x-request-id"])


async def test_a_client_request_id_of_the_body_is_echoed_without_what_no_header_may_have() -> None:
    async def does(call: Call) -> Reply:
        return Reply(b"{}", client_request_id="mine\r\nx: Ü")

    answer = await post(interface(Engine(does)))
    assert answer.headers["x-client-request-id"] == "mine??x: ?"


# Errors.


@pytest.mark.case("runtimes-B5", "runtimes-I4")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/nowhere", 404),
        ("GET", "/v1/files", 404),
        ("GET", "/v2/repository/index", 404),
        ("GET", "/invocations", 405),
        ("POST", "/v2", 405),
        ("PUT", "/v1/embeddings", 405),
    ],
)
async def test_a_route_that_is_not_there_has_the_shape_of_its_path(method: str, path: str, status: int) -> None:
    answer = await ask(interface(Engine()), method, path, b"{}", JSON)
    error = answer.json["error"]
    assert answer.status == status
    assert ("allow" in answer.headers) is (status == 405)
    if path.startswith("/v1/"):
        assert set(error) == {"message", "type", "param", "code"}
    elif path.startswith("/v2"):
        assert isinstance(error, str)
    else:
        assert set(error) == {"code", "message", "request_id"}


async def test_what_an_engine_does_not_declare_is_404_once_it_is_known() -> None:
    engine = Engine(paths=frozenset({"/invocations"}))
    app = interface(engine)
    assert (await post(app, path="/v1/embeddings")).status == 404
    assert (await ask(app, "GET", "/v2/health/live")).status == 404
    engine.about = None
    assert (await post(app, path="/v1/embeddings")).status == 503


@pytest.mark.case("runtimes-B3", "runtimes-B4")
async def test_what_an_engine_raises_is_never_told(caplog: pytest.LogCaptureFixture) -> None:
    async def does(call: Call) -> Reply:
        raise ValueError("token 4711")

    answer = await post(interface(Engine(does)), x_request_id="r1")
    assert (answer.status, answer.json["error"]["code"]) == (500, "INTERNAL_ERROR")
    assert b"4711" not in answer.body
    assert any(getattr(record, "request_id", "") == "r1" and record.exc_info for record in caplog.records)


async def test_a_refusal_of_the_engine_is_the_answer() -> None:
    async def does(call: Call) -> Reply:
        raise RefusedError(400, "column `qty` is missing", "qty")

    error = (await post(interface(Engine(does)))).json["error"]
    assert (error["message"], error["field"]) == ("column `qty` is missing", "qty")


# Health.


@pytest.mark.case("runtimes-C3", "runtimes-C10")
@pytest.mark.parametrize("path", ["/health", "/ping", "/v2/health/ready", "/v2/models/wine/ready", "/version"])
async def test_readiness_is_the_engine_s_until_the_process_is_told_to_end(path: str) -> None:
    engine = Engine()
    app = interface(engine)
    assert (await ask(app, "GET", path)).status == 200
    engine.ready = False
    assert (await ask(app, "GET", path)).status == 503
    engine.ready, app.state.phase = True, Phase.DRAINING
    answer = await ask(app, "GET", path)
    assert (answer.status, answer.headers["connection"], answer.headers["retry-after"]) == (503, "close", "1")


@pytest.mark.case("runtimes-B9")
@pytest.mark.parametrize("path", ["/health", "/live", "/version", "/v2", "/v1/models", "/nowhere", "/invocations"])
async def test_every_body_is_what_its_content_type_says(path: str) -> None:
    answer = await ask(interface(Engine()), "GET", path)
    if path == "/version":
        assert (answer.headers["content-type"], answer.body) == ("text/plain; charset=utf-8", b"3.17.2")
    else:
        assert (answer.headers["content-type"], bool(answer.json)) == ("application/json", True)


@pytest.mark.case("runtimes-D1")
@pytest.mark.parametrize("path", ["/live", "/v2/health/live"])
async def test_liveness_is_lost_only_where_a_new_process_can_help(path: str) -> None:
    engine = Engine()
    app = interface(engine)
    engine.ready, app.state.phase = False, Phase.DRAINING
    assert (await ask(app, "GET", path)).status == 200
    engine.live = False
    assert (await ask(app, "GET", path)).status == 503


@pytest.mark.case("runtimes-C13")
async def test_a_draining_process_serves_and_a_closing_one_sends_elsewhere() -> None:
    app = interface(Engine())
    app.state.phase = Phase.DRAINING
    draining = await post(app)
    app.state.phase = Phase.CLOSING
    closing = await post(app)
    assert (draining.status, draining.headers["connection"]) == (200, "close")
    assert (closing.status, closing.headers["connection"], closing.headers["retry-after"]) == (503, "close", "1")


@pytest.mark.case("runtimes-B10")
async def test_v2_knows_its_model_and_no_other() -> None:
    app = interface(Engine())
    assert (await ask(app, "GET", "/v2/models/wine/versions/7")).json["versions"] == ["7"]
    for path in ("/v2/models/beer", "/v2/models/beer/ready", "/v2/models/wine/versions/8"):
        assert (await ask(app, "GET", path)).status == 404
    assert (await ask(app, "POST", "/v2/models/beer/infer", b"{}")).status == 404


# Limits.


@pytest.mark.case("runtimes-D9")
@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_above_the_limit_is_413_and_never_reaches_the_engine(announced: bool) -> None:
    engine = Engine()
    app = interface(engine, max_body_bytes=10)
    client = Client([b"123456"] * 3)
    headers = JSON | ({"content-length": "18"} if announced else {})
    answer = await ask(app, "POST", "/invocations", headers=headers | {"expect": "100-continue"}, client=client)
    assert (answer.status, answer.headers["connection"], answer.ended) == (413, "close", True)
    assert client.read == (0 if announced else 2)
    assert not engine.calls


@pytest.mark.case("runtimes-A23", "runtimes-D10")
@pytest.mark.parametrize(("how", "pack"), [("gzip", gzip.compress), ("zstd", zstandard.compress)])
async def test_a_packed_body_is_unpacked_for_every_engine_within_the_limit(how: str, pack: object) -> None:
    engine = Engine()
    app = interface(engine, max_body_bytes=1000)
    assert callable(pack)
    good = await post(app, pack(b"[1]") + pack(b"[2]"), content_encoding=how)
    bomb = await post(app, pack(bytes(2000)), content_encoding=how)
    cut = await post(app, pack(b"[1]")[:-3], content_encoding=how)
    other = await post(app, b"[1]", content_encoding="br")
    assert [answer.status for answer in (good, bomb, cut, other)] == [200, 413, 400, 415]
    assert [call.body for call in engine.calls] == [b"[1][2]"]


@pytest.mark.case("runtimes-D2")
async def test_above_the_ceiling_the_next_request_is_429_and_one_that_frees_is_used() -> None:
    release = asyncio.Event()

    async def does(call: Call) -> Reply:
        await release.wait()
        return Reply()

    app = interface(Engine(does), max_in_flight=2)
    busy = [asyncio.create_task(post(app)) for _ in range(2)]
    await asyncio.sleep(0)
    refused = await post(app)
    release.set()
    assert [(await task).status for task in busy] == [200, 200]
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert (await post(app)).status == 200
    assert app.state.in_flight == 0


@pytest.mark.case("runtimes-G4")
async def test_the_bytes_of_all_bodies_are_admitted_and_given_back_however_a_request_ends() -> None:
    release = asyncio.Event()

    async def does(call: Call) -> Reply:
        await release.wait()
        if call.body[:1] == b"x":
            raise ValueError
        return Reply()

    app = interface(Engine(does), max_buffered_bytes=10)
    held = [asyncio.create_task(post(app, body)) for body in (b"12345", b"x2345")]
    await asyncio.sleep(0)
    assert (await post(app, b"1")).status == 429
    assert (await post(app, b"1", content_length="1")).status == 429
    release.set()
    assert [(await task).status for task in held] == [200, 500]
    await post(app, gzip.compress(b"1")[:9], content_encoding="gzip")
    assert (await post(app, b"1234567890")).status == 200


@pytest.mark.case("runtimes-G4")
async def test_a_packed_body_counts_as_what_it_unpacks_to() -> None:
    async def does(call: Call) -> Reply:
        return Reply((await ask(app, "GET", "/metrics")).body)

    app = interface(Engine(does))
    during = (await post(app, gzip.compress(bytes(3000)), content_encoding="gzip")).body.decode()
    after = (await ask(app, "GET", "/metrics")).body.decode()
    held = 'knobless_runtime_buffered_bytes{endpoint="wine",version="7"} '
    assert (held + "3000.0" in during, held + "0.0" in after) == (True, True)


async def test_a_response_that_needs_an_earlier_one_is_refused_before_any_engine() -> None:
    engine = Engine()
    answer = await post(interface(engine), b'{"previous_response_id": "r"}', path="/v1/responses")
    assert (answer.status, answer.json["error"]["param"], engine.calls) == (400, "previous_response_id", [])


async def test_an_answer_above_the_limit_is_an_error() -> None:
    async def does(call: Call) -> Reply:
        return Reply(bytes(11))

    answer = await post(interface(Engine(does), max_answer_bytes=10))
    assert (answer.status, "larger than 10 bytes" in answer.json["error"]["message"]) == (500, True)


@pytest.mark.case("runtimes-A24")
@pytest.mark.parametrize(
    ("accepted", "how"), [("gzip", "gzip"), ("gzip, zstd", "zstd"), ("identity", None), (None, None)]
)
async def test_a_large_answer_is_packed_where_that_is_asked_for(accepted: str | None, how: str | None) -> None:
    async def does(call: Call) -> Reply:
        return Reply(LONG if call.body == b"{}" else b"[1]")

    app = interface(Engine(does))
    own = {} if accepted is None else {"accept_encoding": accepted}
    large, small = await post(app, **own), await post(app, b"[]", **own)
    assert large.headers.get("content-encoding") == how
    assert (large.headers["vary"], int(large.headers["content-length"])) == ("accept-encoding", len(large.body))
    unpack = {"gzip": gzip.decompress, "zstd": lambda body: zstandard.ZstdDecompressor().decompress(body)}
    assert (unpack[how](large.body) if how else large.body) == LONG
    assert ("content-encoding" in small.headers, small.body) == (False, b"[1]")


# Deadlines and clients that leave.


async def waiting(call: Call) -> Reply:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.case("runtimes-D5", "runtimes-D6")
@pytest.mark.parametrize("headers", [{}, {"x_knobless_deadline_ms": "20"}])
async def test_a_deadline_ends_the_wait_and_what_waits(headers: dict[str, str]) -> None:
    cancelled = []

    async def does(call: Call) -> Reply:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)
        raise AssertionError

    app = interface(Engine(does), deadline_s=60 if headers else 0.02)
    answer = await post(app, **headers)
    assert (answer.status, answer.json["error"]["code"], cancelled) == (504, "DEADLINE_EXCEEDED", [True])


@pytest.mark.case("runtimes-D5")
async def test_a_request_that_is_late_already_never_reaches_the_engine() -> None:
    engine = Engine()
    assert (await post(interface(engine), x_knobless_deadline_ms="-1")).status == 504
    assert not engine.calls


async def test_a_body_that_does_not_come_is_504_and_says_so() -> None:
    client = Client([b"{"])
    client._messages[0]["more_body"] = True
    answer = await ask(interface(Engine(), deadline_s=0.02), "POST", "/invocations", headers=JSON, client=client)
    assert (answer.status, "whole body" in answer.json["error"]["message"]) == (504, True)


@pytest.mark.case("runtimes-I2")
async def test_a_client_that_leaves_ends_its_call_and_is_counted_as_that() -> None:
    client, records = Client([b"{}"]), []
    hook = type("Hook", (), {"ended": staticmethod(records.append)})()
    app = interface(Engine(waiting), [hook])
    asking = asyncio.create_task(ask(app, "POST", "/invocations", headers=JSON, client=client))
    await asyncio.sleep(0)
    client.left.set()
    answer = await asking
    assert (answer.status, app.state.in_flight) == (0, 0)
    assert [record.status for record in records] == [499]


async def test_a_process_that_has_to_end_says_so_to_who_still_waits() -> None:
    app = interface(Engine(waiting))
    client = Client([b"{}"])
    asking = asyncio.create_task(ask(app, "POST", "/invocations", headers=JSON, client=client))
    await asyncio.sleep(0)
    asking.cancel()
    assert (await asking).status == 503


# Streams.


def streams(*steps: bytes | Exception | float, **about: Any) -> Engine:
    """An engine whose answer is these pieces, pauses and errors; ``closed`` tells that its generator ended."""

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            for step in steps:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, bytes):
                    yield step
                else:
                    await asyncio.sleep(step)
        finally:
            closed.append(True)

    async def does(call: Call) -> Reply:
        kept.append(pieces())  # else the collector would close it, whoever forgot to
        return Reply(pieces=kept[-1], headers=[(b"x-own", b"1")])

    closed: list[bool] = []
    kept: list[AsyncGenerator[bytes, None]] = []
    engine = Engine(does, **about)
    engine.closed = closed  # type: ignore[attr-defined]
    return engine


async def test_a_stream_goes_out_event_by_event() -> None:
    answer = await post(interface(streams(event(b"1"), event(b"2"), DONE)), path="/v1/chat/completions")
    assert (answer.status, answer.pieces, answer.ended) == (200, [event(b"1"), event(b"2"), DONE], True)
    assert (answer.headers["content-type"], answer.headers["x-own"]) == ("text/event-stream", "1")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/wine", "/v2/models/other", "/v2/models/other/ready"])
async def test_a_stream_goes_out_whatever_was_asked_of_an_engine_that_tells_itself(path: str) -> None:
    answer = await ask(interface(streams(event(b"1"), DONE, tells_itself=True)), "GET", path)
    assert (answer.status, answer.pieces, answer.ended) == (200, [event(b"1"), DONE], True)
    assert answer.headers["content-type"] == "text/event-stream"


async def test_a_stream_that_nobody_listens_to_ends_whatever_was_asked() -> None:
    engine, client = streams(event(b"1"), 60.0, tells_itself=True), Client([b""])
    asking = asyncio.create_task(ask(interface(engine), "GET", "/v1/models", client=client))
    async with asyncio.timeout(5):
        await client.began.wait()
        client.left.set()
        await asking
    assert engine.closed == [True]  # type: ignore[attr-defined]


async def test_a_stream_that_fails_before_its_first_event_has_a_status() -> None:
    answer = await post(interface(streams(RefusedError(400, "no", "messages"))), path="/v1/chat/completions")
    assert (answer.status, answer.json["error"]["param"]) == (400, "messages")


@pytest.mark.case("runtimes-B4")
@pytest.mark.parametrize("error", [ValueError("token 4711"), RefusedError(500, "the engine ended")])
async def test_a_stream_that_fails_later_ends_with_an_error_event(error: Exception) -> None:
    answer = await post(interface(streams(event(b"1"), error)), path="/v1/chat/completions")
    last = json.loads(answer.pieces[-1].removeprefix(b"data: "))
    assert (answer.status, answer.ended, last["error"]["type"]) == (200, True, "server_error")
    assert b"4711" not in answer.body
    assert DONE not in answer.pieces


async def test_a_stream_may_last_longer_than_the_deadline_but_not_say_nothing() -> None:
    steady = [step for number in range(20) for step in (0.06, event(b"%d" % number))]
    lasting = await post(interface(streams(*steady), deadline_s=1, idle_s=10), path="/v1/chat/completions")
    assert (len(lasting.pieces), lasting.ended) == (20, True)
    silent = streams(event(b"1"), 60.0)
    answer = await post(interface(silent, idle_s=0.05), path="/v1/chat/completions")
    assert b"said nothing for 0.05 s" in answer.pieces[-1]
    assert silent.closed == [True]  # type: ignore[attr-defined]


async def test_the_first_event_is_due_by_the_deadline() -> None:
    late = streams(60.0, event(b"1"))
    answer = await post(interface(late, deadline_s=0.05), path="/v1/chat/completions")
    assert (answer.status, late.closed) == (504, [True])  # type: ignore[attr-defined]


@pytest.mark.case("runtimes-I2")
async def test_a_client_that_leaves_a_stream_closes_it() -> None:
    engine = streams(event(b"1"), 60.0)
    app, client = interface(engine), Client([b"{}"])
    asking = asyncio.create_task(ask(app, "POST", "/v1/completions", headers=JSON, client=client))
    await client.began.wait()
    client.left.set()
    await asking
    assert (engine.closed, app.state.in_flight) == ([True], 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_client_that_reads_nothing_holds_a_stream_no_longer_than_silence_may_last(leaves: bool) -> None:
    engine = streams(event(b"1"), event(b"2"))
    app, client = interface(engine, idle_s=60 if leaves else 0.05), Client([b"{}"], reads_nothing=True)
    asking = asyncio.create_task(ask(app, "POST", "/v1/completions", headers=JSON, client=client))
    await client.began.wait()
    if leaves:
        client.left.set()
    await asking
    assert (engine.closed, app.state.in_flight) == ([True], 0)  # type: ignore[attr-defined]


async def test_a_stream_holds_its_place_to_its_end() -> None:
    app, client = interface(streams(event(b"1"), 60.0), max_in_flight=1), Client([b"{}"])
    asking = asyncio.create_task(ask(app, "POST", "/v1/completions", headers=JSON, client=client))
    await client.began.wait()
    assert (await post(app)).status == 429
    client.left.set()
    await asking


# Hooks.


class Hears:
    def __init__(self) -> None:
        self.records: list[Record] = []

    def ended(self, record: Record) -> None:
        self.records.append(record)
        if record.request == b"fail":
            raise OSError("the log is full")


@pytest.mark.case("runtimes-J6")
async def test_a_hook_hears_of_each_request_once_with_both_bodies() -> None:
    async def does(call: Call) -> Reply:
        return Reply(LONG, client_request_id="c1")

    hears = Hears()
    app = interface(Engine(does), [hears])
    await post(app, gzip.compress(b"[1]"), content_encoding="gzip", accept_encoding="gzip", traceparent="t")
    (record,) = hears.records
    assert (record.request, record.response, record.status) == (b"[1]", LONG, 200)
    assert (record.client_request_id, record.traceparent, record.path) == ("c1", b"t", "/invocations")
    assert record.duration_s > 0
    assert not record.request_cut
    await ask(app, "GET", "/health")
    assert len(hears.records) == 1


async def test_bodies_are_cut_at_64_kb_with_a_flag_and_their_length() -> None:
    pieces = [event(b"x" * 1000)] * 100
    hears = Hears()
    await post(interface(streams(*pieces), [hears]), bytes(70_000), path="/v1/completions")
    (record,) = hears.records
    assert (len(record.request), record.request_bytes, record.request_cut) == (MOST_LOGGED_BYTES, 70_000, True)
    assert (len(record.response), record.response_bytes) == (MOST_LOGGED_BYTES, sum(map(len, pieces)))
    assert record.response == b"".join(pieces)[:MOST_LOGGED_BYTES]


@pytest.mark.case("runtimes-J8")
async def test_a_hook_that_fails_harms_no_answer_and_no_other_hook() -> None:
    first, second = Hears(), Hears()
    app = interface(Engine(), [first, second])
    assert (await post(app, b"fail")).status == 200
    assert (len(first.records), len(second.records)) == (1, 1)
    text = (await ask(app, "GET", "/metrics")).body.decode()
    assert 'knobless_runtime_hook_failures_total{endpoint="wine",version="7"} 2.0' in text


@pytest.mark.case("runtimes-J4")
async def test_of_many_requests_at_once_each_is_told_once_however_it_ends() -> None:
    # A table that two write to and a third compacts: there is none yet. What a writer will be told is this.
    async def does(call: Call) -> Reply:
        await asyncio.sleep(0)
        if call.body == b"refused":
            raise RefusedError(400, "no")
        return Reply(b"{}")

    hears = Hears()
    app = interface(Engine(does), [hears])
    bodies = [(b"{}", b"refused", b"{}", b"fail")[number % 4] for number in range(1000)]
    await asyncio.gather(*(post(app, body, x_request_id=f"r{number}") for number, body in enumerate(bodies)))
    assert sorted((record.request_id, record.request) for record in hears.records) == sorted(
        (f"r{number}", body) for number, body in enumerate(bodies)
    )


@pytest.mark.case("runtimes-J5")
async def test_while_a_log_can_not_be_written_rows_are_counted_and_after_it_they_are_taken_again() -> None:
    class Table(Hears):
        there = True

        def ended(self, record: Record) -> None:
            if not self.there:
                raise OSError("no such table")
            super().ended(record)

    table = Table()
    app = interface(Engine(), [table])
    for there in (True, False, False, True):
        table.there = there
        assert (await post(app)).json == {"predictions": [1]}
    text = (await ask(app, "GET", "/metrics")).body.decode()
    assert 'knobless_runtime_hook_failures_total{endpoint="wine",version="7"} 2.0' in text
    assert len(table.records) == 2


@pytest.mark.case("runtimes-D11")
async def test_the_record_of_a_client_that_left_is_written() -> None:
    hears, client = Hears(), Client([b"{}"])
    app = interface(streams(event(b"1"), 60.0), [hears])
    asking = asyncio.create_task(ask(app, "POST", "/v1/completions", headers=JSON, client=client))
    await client.began.wait()
    client.left.set()
    await asking
    assert [(record.status, record.response) for record in hears.records] == [(499, event(b"1"))]


# What a request costs, but its time.


@pytest.mark.case("runtimes-D12")
async def test_a_request_is_the_same_work_beside_511_others_as_alone() -> None:
    release = asyncio.Event()

    async def does(call: Call) -> Reply:
        if call.body == b"waits":
            await release.wait()
        return Reply(b"{}")

    app = interface(Engine(does), max_in_flight=512)
    await post(app)
    alone = await lines_run(post(app))
    waiting = [asyncio.create_task(post(app, b"waits")) for _ in range(511)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert app.state.in_flight == 511
    assert await lines_run(post(app)) == alone > 0
    release.set()
    await asyncio.gather(*waiting)


async def lines_run(request: Awaitable[Answer]) -> int:
    """How many lines of the interface's own a request runs."""
    count = 0

    def look(frame: FrameType, what: str, _: object) -> Any:
        nonlocal count
        count += what == "line"
        return look if "/runtimes/" in frame.f_code.co_filename else None

    sys.settrace(look)
    try:
        assert (await request).status == 200
    finally:
        sys.settrace(None)
    return count


# Metrics.


@pytest.mark.case("runtimes-A21", "runtimes-J1")
async def test_requests_and_values_that_are_not_finite_are_counted() -> None:
    async def does(call: Call) -> Reply:
        return Reply(b"[null]", non_finite=3)

    app = interface(Engine(does))
    await post(app)
    await post(app, content_encoding="br")
    text = (await ask(app, "GET", "/metrics")).body.decode()
    labels = 'endpoint="wine",version="7"'
    assert f"knobless_runtime_non_finite_values_total{{{labels}}} 3.0" in text
    assert f'knobless_runtime_requests_total{{code="200",{labels}}} 1.0' in text
    assert f'knobless_runtime_requests_total{{code="415",{labels}}} 1.0' in text
    assert f"knobless_runtime_requests_in_flight{{{labels}}} 0.0" in text


@pytest.mark.case("runtimes-B3", "runtimes-B4")
@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
async def test_what_fails_outside_of_a_prediction_has_the_shape_of_its_path_too(path: str) -> None:
    class Failing(Collector):
        def collect(self) -> Iterable[Metric]:
            if known:
                raise ValueError("token 4711")
            return []

    async def does(call: Call) -> Reply:
        raise ValueError("token 4711")

    known: list[bool] = []
    app = interface(Engine(does, tells_itself=True))
    app._metrics.also(Failing())
    known.append(True)
    answer = await ask(app, "GET", path)
    assert (answer.status, b"4711" in answer.body) == (500, False)
    assert set(answer.json["error"]) >= {"code", "message"}


async def test_metadata_come_from_the_engine_where_it_tells_itself() -> None:
    async def does(call: Call) -> Reply:
        return Reply(f"{call.method} {call.path}".encode())

    own = interface(Engine(does, tells_itself=True))
    for path in ("/v1/models", "/v2/models/a-name-of-its-own/ready"):
        answer: Answer = await ask(own, "GET", path)
        assert (answer.status, answer.body) == (200, f"GET {path}".encode())
