"""Packed bodies: what unpacks, what is refused, and how much memory a hostile one gets."""

from __future__ import annotations

import gzip
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from runtimes.interface import packing
from runtimes.interface.errors import RefusedError

LIMIT = 1 << 16
HOW = ("gzip", "zstd")


def packed(how: str, body: bytes) -> bytes:
    return gzip.compress(body) if how == "gzip" else zstandard.compress(body)


@pytest.mark.case("runtimes-A23")
@pytest.mark.parametrize("how", HOW)
@given(members=st.lists(st.binary(max_size=2000), min_size=1, max_size=4))
def test_all_members_of_a_body_are_unpacked_in_order(how: str, members: list[bytes]) -> None:
    body = b"".join(packed(how, member) for member in members)
    assert packing.unpack(how, body, LIMIT) == b"".join(members)


@pytest.mark.parametrize(
    "body",
    [
        zstandard.ZstdCompressor(write_checksum=True).compress(b"abc"),
        zstandard.ZstdCompressor(write_content_size=False).compress(b"abc" * 5000),
        zstandard.ZstdCompressor(level=19).compress(bytes(range(256)) * 200),
        b"\x50\x2a\x4d\x18\x03\x00\x00\x00xyz" + zstandard.compress(b"abc"),
    ],
)
def test_every_kind_of_zstd_frame_is_read(body: bytes) -> None:
    assert packing.unpack("zstd", body, LIMIT)[:1] in (b"a", b"\0")


@pytest.mark.case("runtimes-A23", "runtimes-B6")
@pytest.mark.parametrize("how", HOW)
@given(data=st.binary(min_size=1, max_size=500), cut=st.integers(0, 10_000))
def test_a_body_that_is_cut_off_is_400(how: str, data: bytes, cut: int) -> None:
    whole = packed(how, data)
    with pytest.raises(RefusedError) as caught:
        packing.unpack(how, whole[: cut % len(whole)], LIMIT)
    assert caught.value.status == 400


@pytest.mark.case("runtimes-B7")
@pytest.mark.parametrize("how", HOW)
@given(noise=st.binary(max_size=300), kept=st.integers(0, 40))
def test_whatever_is_no_packed_body_is_a_refusal(how: str, noise: bytes, kept: int) -> None:
    body = packed(how, b"some text that is packed")[:kept] + noise
    try:
        packing.unpack(how, body, LIMIT)
    except RefusedError as refusal:
        assert refusal.status in (400, 413)


@pytest.mark.case("runtimes-D10")
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("members", [1, 5])
def test_the_limit_counts_unpacked_bytes_over_all_members(how: str, members: int) -> None:
    part = bytes(LIMIT // members + 1)
    with pytest.raises(RefusedError) as caught:
        packing.unpack(how, packed(how, part) * members, LIMIT)
    assert caught.value.status == 413
    assert len(packing.unpack(how, packed(how, bytes(LIMIT)), LIMIT)) == LIMIT


@pytest.mark.case("runtimes-D10")
@pytest.mark.parametrize("how", HOW)
def test_a_bomb_gets_no_memory_beyond_its_limit(how: str) -> None:
    bomb = packed(how, bytes(200 << 20))
    assert len(bomb) < 300_000
    tracemalloc.start()
    try:
        with pytest.raises(RefusedError):
            packing.unpack(how, bomb, 1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_window_larger_than_http_allows_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=25)
    packer = zstandard.ZstdCompressor(compression_params=parameters, level=3).compressobj()
    body = packer.compress(bytes(1 << 10)) + packer.flush()
    with pytest.raises(RefusedError):
        packing.unpack("zstd", body, LIMIT)


@pytest.mark.case("runtimes-A24")
@pytest.mark.parametrize(
    ("accepted", "how"),
    [
        (b"gzip", "gzip"),
        (b"gzip, deflate", "gzip"),
        (b"gzip, deflate, br, zstd", "zstd"),
        (b"zstd;q=0.5, gzip;q=0.8", "gzip"),
        (b"GZIP;q=1.0", "gzip"),
        (b"gzip;q=0, zstd;q=0", None),
        (b"gzip;q=nonsense", None),
        (b"identity", None),
        (b"br", None),
        (b"", None),
    ],
)
def test_an_answer_is_packed_as_the_client_prefers(accepted: bytes, how: str | None) -> None:
    assert packing.chosen(accepted) == how


@pytest.mark.parametrize("how", HOW)
def test_what_we_pack_unpacks_to_what_it_was(how: str) -> None:
    body = b'{"predictions": [' + b"1.0, " * 5000 + b"1.0]}"
    small = packing.pack(how, body)
    assert len(small) < len(body) / 10
    assert packing.unpack(how, small, len(body)) == body
