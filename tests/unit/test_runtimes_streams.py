"""Streams of events, NaN in them and elsewhere, and other applications' errors."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.interface.engine import About, Api, Call, Forwarded
from runtimes.interface.errors import MODEL_FAILED, RefusedError
from runtimes.interface.finite import finite
from runtimes.interface.refusals import reworded
from runtimes.interface.sse import DONE, Whole, event
from runtimes.interface.upstream import Upstream

CANARY = "canary-4711"


def test_an_event_is_framed_as_the_standard_says() -> None:
    assert event(b'{"a":1}') == b'data: {"a":1}\n\n'
    assert event(b"{}", b"response.created") == b"event: response.created\ndata: {}\n\n"


events = st.lists(st.sampled_from([event(b'{"x": NaN}'), event(b'{"long": "%s"}' % (b"y" * 90)), DONE]), max_size=8)


@given(events, st.lists(st.integers(1, 40), max_size=60), st.booleans())
def test_events_stay_whole_whatever_the_pieces(all_events: list[bytes], sizes: list[int], carriage: bool) -> None:
    text = b"".join(all_events)
    if carriage:
        text = text.replace(b"\n", b"\r\n")
    whole, out = Whole(), []
    for size in sizes:
        out.append(whole.feed(text[:size]))
        text = text[size:]
    out += [whole.feed(text), whole.rest()]
    expected = b"".join(all_events)
    assert b"".join(out).replace(b"\r", b"") == expected
    assert all(piece.endswith((b"\n\n", b"\r\n\r\n")) for piece in out if piece)


def test_an_event_that_never_ends_is_passed_on() -> None:
    whole = Whole()
    assert whole.feed(b"x" * ((1 << 20) + 1)) != b""
    assert whole.feed(b"ab") == b""
    assert whole.rest() == b"ab"


@pytest.mark.case("runtimes-A21", "runtimes-I1")
@pytest.mark.parametrize(
    ("text", "clean", "count"),
    [
        (b'{"p": [NaN, Infinity, 1.0]}', b'{"p": [null, null, 1.0]}', 2),
        (b"[-Infinity]", b"[null]", 1),
        (b'{"text": "NaN and -Infinity", "x": NaN}', b'{"text": "NaN and -Infinity", "x": null}', 1),
        (b'{"text": "a \\" NaN"}', b'{"text": "a \\" NaN"}', 0),
        (b'{"NaN": 1}', b'{"NaN": 1}', 0),
        (b'data: {"logprob": -Infinity}\n\n', b'data: {"logprob": null}\n\n', 1),
        (b'{"p": [1.0]}', b'{"p": [1.0]}', 0),
    ],
)
def test_what_is_not_finite_becomes_null_outside_of_strings(text: bytes, clean: bytes, count: int) -> None:
    assert finite(text) == (clean, count)


values = st.recursive(
    st.floats() | st.text(st.sampled_from('NaInfity"\\- ')) | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.case("runtimes-A21")
@given(values)
def test_a_strict_parser_reads_whatever_another_encoder_wrote(value: Any) -> None:
    def strict(name: str) -> Any:
        raise AssertionError(name)

    clean, _ = finite(json.dumps(value).encode())
    lenient = json.loads(json.dumps(value), parse_constant=lambda _: None)
    assert json.loads(clean, parse_constant=strict) == lenient


# Errors of other applications.


@pytest.mark.case("runtimes-B1", "runtimes-B4", "runtimes-I5")
@pytest.mark.parametrize(
    ("answer", "message", "field"),
    [
        (
            {"error": {"message": "max_tokens is too large", "param": "max_tokens"}},
            "max_tokens is too large",
            "max_tokens",
        ),
        ({"error": f"shape of '{CANARY}' is wrong"}, "shape of '...' is wrong", None),
        ({"message": "no such thing", "object": "error"}, "no such thing", None),
        ({"detail": "not here"}, "not here", None),
        (
            {
                "detail": [
                    {"loc": ["body", "prompt"], "msg": "a text", "input": CANARY},
                    {"loc": ["body", "n"], "msg": "no"},
                ]
            },
            "`prompt`: a text; `n`: no",
            "prompt",
        ),
        ({"error": f"42424242 of {CANARY}"}, "... of ...", None),
        ({"error": 'Traceback: File "x"'}, "the engine refused this request", None),
        ("only a text", "only a text", None),
        ({}, "the engine refused this request", None),
        ({"error": {"message": ["odd"]}}, "the engine refused this request", None),
    ],
)
def test_another_error_keeps_its_words_and_field_without_what_was_sent(
    answer: Any, message: str, field: str | None
) -> None:
    request = json.dumps({"prompt": CANARY, "card": 42424242}).encode()
    refusal = reworded(400, json.dumps(answer).encode(), request)
    assert (refusal.status, refusal.message, refusal.field) == (400, message, field)


def test_words_about_a_body_that_can_not_be_read_are_not_repeated() -> None:
    refusal = reworded(400, json.dumps({"error": f"near {CANARY}"}).encode(), b'{"x": "' + CANARY.encode())
    assert refusal.message == "the engine refused this request"


@pytest.mark.case("runtimes-B3", "runtimes-B4", "runtimes-B5")
@pytest.mark.parametrize(("status", "ours"), [(302, 500), (500, 500), (501, 500), (503, 503), (504, 504)])
def test_an_engine_that_fails_says_nothing_to_the_client(status: int, ours: int) -> None:
    refusal = reworded(status, json.dumps({"error": f"ValueError: {CANARY}"}).encode(), b"")
    assert refusal.status == ours
    assert CANARY not in refusal.message
    assert (refusal.message == MODEL_FAILED) is (status >= 500 and ours == 500)


class Answers:
    """An upstream engine with one answer."""

    def __init__(self, forwarded: Forwarded) -> None:
        self._forwarded = forwarded
        self.failed: Any = None
        self.about = About("wine", "7", "container", "1")
        self.ready = self.live = True

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def forward(self, call: Call) -> Forwarded:
        return self._forwarded


CALL = Call("r1", Api.V2, "json", b"{}", 0.0)


@pytest.mark.case("runtimes-A21", "runtimes-I6")
async def test_an_answer_passes_with_its_headers_and_null_for_nan() -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"server", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"x-own", b"1"),
    ]
    reply = await Upstream(Answers(Forwarded(201, headers, b"[NaN]"))).answer(CALL)
    assert (reply.status, reply.body, reply.non_finite) == (201, b"[null]", 1)
    assert list(reply.headers) == [(b"x-own", b"1")]


async def test_bytes_that_are_no_json_pass_as_they_are() -> None:
    headers = [(b"content-type", b"application/octet-stream"), (b"inference-header-content-length", b"3")]
    body = b"abc NaN"
    reply = await Upstream(Answers(Forwarded(200, headers, body))).answer(CALL)
    assert reply.body is body
    assert (reply.content_type, list(reply.headers)) == (b"application/octet-stream", [headers[1]])


@pytest.mark.case("runtimes-A21", "runtimes-I1")
async def test_a_stream_passes_event_by_event_with_null_for_nan() -> None:
    closed = []

    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            for piece in (event(b"[1]"), b"data: [N", b"aN]\n\n", DONE):
                yield piece
        finally:
            closed.append(True)

    headers = [(b"content-type", b"text/event-stream")]
    kept = pieces()
    reply = await Upstream(Answers(Forwarded(200, headers, pieces=kept))).answer(CALL)
    assert reply.pieces is not None
    assert [piece async for piece in reply.pieces] == [event(b"[1]"), event(b"[null]"), DONE]
    assert (reply.non_finite, closed) == (1, [True])


async def test_who_closes_a_stream_closes_the_engine_s() -> None:
    async def pieces() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield event(b"1")
        finally:
            closed.append(True)

    closed: list[bool] = []
    kept = pieces()
    reply = await Upstream(Answers(Forwarded(200, [], pieces=kept))).answer(CALL)
    assert reply.pieces is not None
    await anext(reply.pieces)
    await reply.pieces.aclose()
    assert closed == [True]


async def test_another_applications_error_is_raised_as_a_refusal() -> None:
    with pytest.raises(RefusedError, match="no such model"):
        await Upstream(Answers(Forwarded(404, [], b'{"error": "no such model"}'))).answer(CALL)
