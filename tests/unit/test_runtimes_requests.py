"""Reading a body from ASGI: bounded by length, piece by piece, and over all requests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from runtimes.interface.engine import Message, Receive
from runtimes.interface.errors import RefusedError
from runtimes.interface.patience import ClientLeftError
from runtimes.interface.requests import Buffered, discard_body, read_body, wanted_headers


def receive(messages: Iterable[Message]) -> Receive:
    iterator = iter(messages)

    async def next_message() -> Message:
        return next(iterator)

    return next_message


def body(*parts: bytes) -> list[Message]:
    last = len(parts) - 1
    return [{"type": "http.request", "body": part, "more_body": i < last} for i, part in enumerate(parts)]


@pytest.mark.parametrize("parts", [(b"",), (b"abc",), (b"ab", b"", b"c")])
async def test_a_body_is_whole_and_counted_until_it_is_given_back(parts: tuple[bytes, ...]) -> None:
    buffered = Buffered(10)
    got = await read_body(receive(body(*parts)), 3, None, buffered)
    assert (got, buffered.held) == (b"".join(parts), len(got))
    buffered.give_back(len(got))
    assert buffered.held == 0


async def test_a_length_above_the_limit_is_413_before_anything_is_received() -> None:
    with pytest.raises(RefusedError) as caught:
        await read_body(receive([]), 3, b"4", Buffered(10))
    assert caught.value.status == 413


async def test_a_body_without_a_length_is_413_at_the_first_byte_too_many_and_holds_nothing() -> None:
    buffered = Buffered(10)
    with pytest.raises(RefusedError) as caught:
        await read_body(receive(body(b"ab", b"cd", b"never read")), 3, None, buffered)
    assert (caught.value.status, buffered.held) == (413, 0)


async def test_a_client_that_leaves_in_the_middle_holds_nothing() -> None:
    buffered = Buffered(10)
    with pytest.raises(ClientLeftError):
        await read_body(receive([*body(b"ab", b"")[:1], {"type": "http.disconnect"}]), 3, None, buffered)
    assert buffered.held == 0


@pytest.mark.case("runtimes-G4")
async def test_bodies_that_fill_the_memory_are_429_and_room_that_frees_is_used() -> None:
    buffered = Buffered(5)
    first = await read_body(receive(body(b"abc")), 3, None, buffered)
    with pytest.raises(RefusedError) as caught:
        await read_body(receive(body(b"ab", b"c")), 3, None, buffered)
    assert (caught.value.status, buffered.held) == (429, 3)
    buffered.give_back(len(first))
    assert await read_body(receive(body(b"abc")), 3, None, buffered) == b"abc"


async def test_a_refused_body_is_discarded_to_its_end_but_not_for_ever() -> None:
    read: list[int] = []

    async def endless() -> Message:
        read.append(1)
        return {"type": "http.request", "body": b"xx", "more_body": True}

    await discard_body(endless, 10)
    assert len(read) == 20  # four times the limit
    await discard_body(receive(body(b"a", b"b")), 10)


@pytest.mark.case("runtimes-G4")
async def test_an_announced_body_has_its_room_before_it_comes_and_is_429_where_there_is_none() -> None:
    buffered = Buffered(5)
    seen: list[int] = []

    async def message() -> Message:
        seen.append(buffered.held)
        return {"type": "http.request", "body": b"abcd"}

    assert await read_body(message, 9, b"4", buffered) == b"abcd"
    with pytest.raises(RefusedError) as caught:
        await read_body(message, 9, b"2", buffered)
    assert (caught.value.status, seen, buffered.held) == (429, [4], 4)


async def test_a_body_shorter_than_announced_holds_what_it_is() -> None:
    buffered = Buffered(9)
    assert await read_body(receive(body(b"ab")), 9, b"4", buffered) == b"ab"
    assert buffered.held == 2


def test_only_the_headers_that_matter_are_kept() -> None:
    headers = [(b"host", b"pod"), (b"content-type", b"text/csv"), (b"cookie", b"x"), (b"x-request-id", b"1")]
    assert wanted_headers(headers) == {b"content-type": b"text/csv", b"x-request-id": b"1"}
