"""Packed bodies: gzip and zstd, in and out.

Owns unpacking within a limit and choosing how an answer is packed; leaves threads to whoever calls it with much. Pure.
One idea: the limit counts unpacked bytes while they are unpacked, so a few kilobytes can never become gigabytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache

import zstandard

from runtimes.interface.errors import RefusedError

PACK_FROM_BYTES = 4096  # below it packing costs more than the bytes it saves
_STEP_BYTES = 1 << 18
_GZIP = 16 + zlib.MAX_WBITS
_ZSTD_WINDOW_BYTES = 1 << 23  # what RFC 9659 lets HTTP use
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50  # and the fifteen after it
_SIZE_BYTES = (0, 2, 4, 8)  # of a frame's content size, by the flag in its header
_DICTIONARY_BYTES = (0, 1, 2, 4)


def unpack(packed: str, body: bytes, limit: int) -> bytes:
    """The unpacked body, all of its members; RefusedError with 413 above the limit, with 400 where it is broken."""
    return gunzip(body, limit) if packed == "gzip" else _unzstd(body, limit)


def gunzip(body: bytes, limit: int) -> bytes:
    """The unpacked gzip body, every member of it."""
    parts = _Parts(limit)
    rest = body
    while rest or not parts.members:
        member = zlib.decompressobj(_GZIP)
        parts.members += 1
        try:
            while not member.eof:
                part = member.decompress(rest, _STEP_BYTES)
                rest = member.unconsumed_tail
                if not part and not member.eof:
                    raise RefusedError(400, "the gzip body is cut off")
                parts.add(part)
        except zlib.error:
            raise RefusedError(400, "the body is not valid gzip") from None
        rest = member.unused_data
    return parts.joined()


def _unzstd(body: bytes, limit: int) -> bytes:
    parts = _Parts(limit)
    for begin, end in _zstd_frames(body):
        decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        try:
            with decompressor.stream_reader(memoryview(body)[begin:end]) as reader:
                while part := reader.read(_STEP_BYTES):
                    parts.add(part)
        except zstandard.ZstdError:
            raise RefusedError(400, "the body is not valid zstd") from None
    return parts.joined()


class _Parts:
    """What is unpacked so far: never much more than the limit, and copied once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self.members = 0

    def add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            raise RefusedError(413, f"the unpacked body is larger than {self._limit} bytes")
        self._parts.append(part)

    def joined(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


def _zstd_frames(body: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each frame that holds data; what is cut off is a refusal before anything is unpacked."""
    at = 0
    while at < len(body) or at == 0:
        magic = _little(body, at, 4)
        if magic & ~0xF == _ZSTD_SKIPPABLE:
            at += 8 + _little(body, at + 4, 4)
        elif magic == _ZSTD_MAGIC:
            end = _zstd_end(body, at)
            yield at, end
            at = end
        else:
            raise RefusedError(400, "the body is not valid zstd")
    if at > len(body):
        raise _cut_off()


def _zstd_end(body: bytes, at: int) -> int:
    """Where the frame that begins here ends, from its header and the lengths of its blocks (RFC 8878, 3.1.1)."""
    flags = _little(body, at + 4, 1)
    single, size_flag = flags >> 5 & 1, flags >> 6
    at += 5 + (not single) + _DICTIONARY_BYTES[flags & 3] + (_SIZE_BYTES[size_flag] or single)
    last = False
    while not last:
        block = _little(body, at, 3)
        last = bool(block & 1)
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
    at += 4 if flags & 4 else 0  # the checksum
    if at > len(body):
        raise _cut_off()
    return at


def _little(body: bytes, at: int, count: int) -> int:
    part = body[at : at + count]
    if len(part) < count:
        raise _cut_off()
    return int.from_bytes(part, "little")


def _cut_off() -> RefusedError:
    return RefusedError(400, "the zstd body is cut off")


@lru_cache(maxsize=256)
def chosen(accept_encoding: bytes) -> str | None:
    """How the client wants a large answer packed: zstd, gzip, or None; the higher weight wins, zstd where they tie."""
    weights = {"gzip": 0.0, "zstd": 0.0}
    for item in accept_encoding.decode("latin-1").lower().split(","):
        name, *parameters = [part.strip() for part in item.split(";")]
        name = {"x-gzip": "gzip"}.get(name, name)
        if name in weights:
            weights[name] = _weight(parameters)
    best = max(weights, key=lambda name: (weights[name], name))
    return best if weights[best] > 0 else None


def pack(how: str, body: bytes) -> bytes:
    """The packed answer."""
    if how == "zstd":
        return zstandard.ZstdCompressor(level=3).compress(body)
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
