"""The frames between the front process and a predictor survive any cutting of the stream, in it and beside it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.mlflow.channel import Channel
from runtimes.mlflow.frames import (
    MAX_BODY_BYTES,
    MAX_HEAD_BYTES,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    Packet,
    encode_frame,
)
from runtimes.mlflow.pipe import AHEAD, Pipe
from runtimes.mlflow.shared import SHARED_ABOVE_BYTES, from_shared, to_shared

heads = st.dictionaries(
    st.text(max_size=8), st.none() | st.booleans() | st.integers() | st.text(max_size=8), max_size=3
)
frames = st.tuples(
    st.sampled_from(Kind), st.integers(0, 2**32 - 1), heads, st.lists(st.binary(max_size=64), max_size=3)
)


def stream_of(packet: Packet) -> bytes:
    assert packet.fd is None
    return b"".join(packet.parts)


def plain(frame: Frame) -> tuple[Kind, int, dict[str, object], bytes]:
    return frame.kind, frame.call, frame.head, bytes(frame.body)


@given(st.lists(frames, max_size=4), st.lists(st.integers(1, 40), max_size=20))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(
    sent: list[tuple[Kind, int, dict[str, object], list[bytes]]], cuts: list[int]
) -> None:
    stream = b"".join(stream_of(encode_frame(*frame)) for frame in sent)
    reader, got, at = FrameReader(), [], 0
    for cut in [*cuts, len(stream) + 1]:
        got += [plain(frame) for frame in reader.feed(stream[at : at + cut])]
        at += cut
    assert got == [(kind, call, head, b"".join(parts)) for kind, call, head, parts in sent]
    assert not reader.inside


def test_a_body_of_many_buffers_is_one_body() -> None:
    (frame,) = FrameReader().feed(stream_of(encode_frame(Kind.ANSWER, 1, {}, [b"ab"] * 2000)))
    assert bytes(frame.body) == b"ab" * 2000


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        (b"\x00" + bytes(17), "no frame has kind 0"),
        (b"\x01" + bytes(5) + (MAX_HEAD_BYTES + 1).to_bytes(4, "big") + bytes(8), "larger"),
        (b"\x01" + bytes(9) + (MAX_BODY_BYTES + 1).to_bytes(8, "big"), "larger"),
        (b"\x01" + bytes(5) + (2).to_bytes(4, "big") + bytes(8) + b"[]", "not an object"),
        (b"\x01" + bytes(5) + (2).to_bytes(4, "big") + bytes(8) + b"{]", "not JSON"),
        (b"\x01" + bytes(5) + (3).to_bytes(4, "big") + bytes(8) + b"{}1", "not JSON"),
        (b"\x01\x01" + bytes(4) + (2).to_bytes(4, "big") + (9).to_bytes(8, "big") + b"{}", "without its descriptor"),
    ],
)
def test_what_is_not_a_frame_is_an_error_with_its_reason(prefix: bytes, why: str) -> None:
    with pytest.raises(FrameError, match=why):
        list(FrameReader().feed(prefix))


def test_a_head_that_no_reader_would_take_is_not_sent() -> None:
    with pytest.raises(FrameError, match="larger"):
        encode_frame(Kind.PREDICT, 0, {"request_id": "x" * MAX_HEAD_BYTES})


# Shared memory.


def test_shared_memory_holds_all_buffers_and_a_change_is_seen_by_nobody_else() -> None:
    fd = to_shared([b"ab", b"", bytearray(b"cd"), memoryview(b"ef")])
    other = os.dup(fd)
    ours, theirs = from_shared(fd, 6), from_shared(other, 6)
    ours[0] = ord("x")
    assert (bytes(ours), bytes(theirs)) == (b"xbcdef", b"abcdef")


def test_shared_memory_that_is_shorter_than_its_message_is_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        from_shared(to_shared([b"ab"]), 3)


def test_a_long_body_does_not_pass_the_socket() -> None:
    packet = encode_frame(Kind.PREDICT, 1, {}, [bytes(SHARED_ABOVE_BYTES), b"x"])
    assert packet.fd is not None
    (frame,) = FrameReader().feed(b"".join(packet.parts), [packet.fd])
    assert bytes(frame.body) == bytes(SHARED_ABOVE_BYTES) + b"x"


# Both ends of one socket.


class Lost(list[str]):
    """Why the channel ended."""


async def talk(bodies: Sequence[bytes]) -> tuple[list[bytes], Lost]:
    """Send frames from the front to a predictor's end that sends each of them back."""
    ours, theirs = socket.socketpair()
    got: asyncio.Queue[bytes] = asyncio.Queue()
    lost = Lost()
    channel = Channel(ours, lambda frame: got.put_nowait(bytes(frame.body)), lost.append)

    def echo() -> None:
        with Pipe(theirs) as pipe:
            for frame in pipe.frames():
                pipe.send(Kind.ANSWER, frame.call, {}, [frame.body])

    echoing = asyncio.create_task(asyncio.to_thread(echo))
    for call, body in enumerate(bodies):
        channel.send(Kind.PREDICT, call, {"n": call}, [body])
    answers = [await got.get() for _ in bodies]
    channel.close()
    await echoing
    return answers, lost


@pytest.mark.parametrize("size", [0, 100, SHARED_ABOVE_BYTES, SHARED_ABOVE_BYTES + 1, 3_000_000])
async def test_bodies_of_any_length_come_back_in_order(size: int) -> None:
    bodies = [bytes([number]) * size for number in range(20)]
    answers, lost = await talk(bodies)
    assert answers == bodies
    assert lost == [""]


async def test_more_than_the_socket_takes_at_once_waits_and_loses_nothing() -> None:
    bodies = [bytes([number % 251]) * SHARED_ABOVE_BYTES for number in range(100)]
    answers, _ = await talk(bodies)
    assert answers == bodies


async def test_the_other_side_s_end_is_told_once() -> None:
    ours, theirs = socket.socketpair()
    ended = asyncio.Event()
    lost = Lost()

    def on_lost(why: str) -> None:
        lost.append(why)
        ended.set()

    channel = Channel(ours, lambda frame: None, on_lost)
    theirs.close()
    await ended.wait()
    channel.send(Kind.PREDICT, 1, {}, [b"x"])
    channel.close()
    assert lost == [""]


async def test_another_protocol_ends_the_channel_with_that_reason() -> None:
    ours, theirs = socket.socketpair()
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    Channel(ours, lambda frame: None, ended.set_result)
    with theirs:
        theirs.send(bytes(18))
        assert await ended == "spoke another protocol"


def test_each_answer_has_its_own_description_whether_or_not_it_is_the_last_one_s() -> None:
    heads = [{"arrays": [[None, "i8", [1]]]}, {"arrays": [[None, "i8", [1]]]}, {}, {"arrays": [[None, "i8", [2]]]}]
    ours, theirs = socket.socketpair()
    with ours, Pipe(theirs) as pipe:
        for head in heads:
            pipe.send(Kind.ANSWER, 1, head)
        assert [frame.head for frame in FrameReader().feed(ours.recv(1 << 16))] == heads


def test_a_stream_may_run_ahead_until_somebody_takes_its_pieces() -> None:
    ours, theirs = socket.socketpair()
    with ours, Pipe(theirs) as pipe:
        ours.sendall(stream_of(encode_frame(Kind.STREAM, 5, {})))
        frames_in = pipe.frames()
        assert next(frames_in).call == 5
        window = pipe.window(5)
        assert all(window.wait() for _ in range(AHEAD))
        ours.sendall(stream_of(encode_frame(Kind.TAKEN, 5, {"more": 1})) + stream_of(encode_frame(Kind.CANCEL, 5, {})))
        ours.shutdown(socket.SHUT_WR)
        assert list(frames_in) == []
        assert not window.wait()
