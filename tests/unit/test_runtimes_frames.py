"""The frames between the front process and a predictor survive any cutting of the stream."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.mlflow.frames import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    encode_prefix,
    read_frame,
)

frames = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.dictionaries(st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=8), max_size=3),
    st.binary(max_size=64),
)


def encode(frame: Frame) -> bytes:
    return encode_prefix(frame.kind, frame.head, len(frame.body)) + frame.body


@given(st.lists(frames, max_size=4), st.lists(st.integers(1, 40), max_size=20))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(sent: list[Frame], cuts: list[int]) -> None:
    stream = b"".join(map(encode, sent))
    reader, got, at = FrameReader(), [], 0
    for cut in [*cuts, len(stream) + 1]:
        got += list(reader.feed(stream[at : at + cut]))
        at += cut
    assert got == sent


@given(st.lists(frames, max_size=4))
def test_the_blocking_reader_gives_the_same_frames_and_then_none(sent: list[Frame]) -> None:
    stream = io.BytesIO(b"".join(map(encode, sent)))
    got = [read_frame(stream) for _ in sent]
    assert (got, read_frame(stream)) == (sent, None)


@given(frames, st.data())
def test_a_stream_that_ends_inside_a_frame_is_an_error_and_not_its_end(frame: Frame, data: st.DataObject) -> None:
    whole = encode(frame)
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(FrameError, match="inside a frame"):
        read_frame(io.BytesIO(whole[:cut]))


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        (b"\x00" + bytes(12), "no frame has kind 0"),
        (b"\x01" + (MAX_HEAD_BYTES + 1).to_bytes(4, "big") + bytes(8), "larger"),
        (b"\x01" + bytes(4) + (MAX_BODY_BYTES + 1).to_bytes(8, "big"), "larger"),
        (b"\x01" + (2).to_bytes(4, "big") + bytes(8) + b"[]", "not an object"),
        (b"\x01" + (2).to_bytes(4, "big") + bytes(8) + b"{]", "not JSON"),
    ],
)
def test_what_is_not_a_frame_is_an_error_with_its_reason(prefix: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        list(FrameReader().feed(prefix))


def test_a_head_that_no_reader_would_take_is_not_sent() -> None:
    with pytest.raises(FrameError, match="larger"):
        encode_prefix(Kind.PREDICT, {"request_id": "x" * MAX_HEAD_BYTES}, 0)
