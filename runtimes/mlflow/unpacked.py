"""What a Parquet file or an Arrow stream becomes once it is unpacked, from the headers that its reader will follow.

Owns walking those headers; leaves the limits' words and everything behind the headers to arrow. Pure, of the standard
library. One idea: a reader allocates what the header of a page or of a buffer says before it unpacks it, and refuses
more than that, so the sum of those numbers is what it takes. The sums in a file's footer bind nobody.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Thrift's compact protocol: the types of what is on the wire.
_I32, _I64, _TEXT, _LIST, _STRUCT = 5, 6, 8, 9, 12
_FIXED = {1: 0, 2: 0, 3: 1, 7: 8}  # true, false, a byte, a double
_VARINTS = (4, _I32, _I64)
_DEEPEST = 8
_LAST_FIELD = 1000
MOST_FOOTER_BYTES = 1 << 22  # some ten thousand columns; objects take a hundred times the bytes that describe them
MOST_HEADER_BYTES = 1 << 22  # of all pages, each as often as a column refers to it: a second's walk

# What lists hold and structures are, where it counts: a reader takes a list's elements for what they should be,
# whatever the list itself says.
Shape = dict[int, tuple[int, "Shape"]]
_SIZES: Shape = {2: (_I64, {}), 3: (_I64, {})}
_COLUMN: Shape = {2: (_I32, {}), 3: (_TEXT, {}), 8: (_STRUCT, {}), 13: (_STRUCT, {}), 16: (_STRUCT, _SIZES),
                  17: (_STRUCT, {2: (_I32, {})})}  # fmt: skip
_GROUP: Shape = {
    1: (_STRUCT, {3: (_STRUCT, _COLUMN), 8: (_STRUCT, {2: (_STRUCT, {1: (_TEXT, {})})})}),
    4: (_STRUCT, {}),
}
_FOOTER: Shape = {2: (_STRUCT, {}), 4: (_STRUCT, _GROUP), 5: (_STRUCT, {}), 7: (_STRUCT, {})}
_DATA_HEADERS = {5: 2, 8: 4}  # data pages of both versions: the field of the header, and in it of the encoding
_PAGE: Shape = dict.fromkeys(_DATA_HEADERS, (_STRUCT, {}))

_DICTIONARY_PAGE = 2
_PREFIXES = 7  # each value is the beginning of the one before and what follows: a byte may stand for a long text
_SCHEMA, _DICTIONARY_BATCH, _RECORD_BATCH = 1, 2, 3
_TIMESTAMP = 10
_OLD_PACKED = b"ARROW:experimental_compression"  # how a batch's own pairs told it, before batches had a field for it
_COLUMN_BYTES, _PAIR_BYTES = 256, 64  # of the objects for one


@dataclass(frozen=True)
class Chunk:
    """The pages of one column in one row group: bytes once unpacked, values, and what makes values longer than that."""

    column: int
    unpacked_bytes: int
    values: int
    dictionary: bool
    longest_prefixed: int  # bytes of the longest page whose values repeat their predecessors; 0 without one


def chunks(body: bytes) -> Iterator[Chunk]:
    """Every column of every row group of a Parquet file; ValueError or LookupError where it is none."""
    size = int.from_bytes(body[-8:-4], "little")
    if size > MOST_FOOTER_BYTES:
        raise ValueError("a footer that is too long")
    footer, _ = _structure(body, len(body) - 8 - size, len(body) - 8, _FOOTER, _DEEPEST)
    left = MOST_HEADER_BYTES
    for group in footer[4, _LIST]:
        for number, chunk in enumerate(group[1, _LIST]):
            told = chunk[3, _STRUCT]
            begin, first = told[9, _I64], told.get((11, _I64), 0)
            if 0 < first < begin:
                begin = first
            if told[5, _I64]:  # nobody reads a chunk without values
                found, left = _chunk(body, number, begin, begin + told[7, _I64], left)
                yield found


def _chunk(body: bytes, column: int, begin: int, end: int, left: int) -> tuple[Chunk, int]:
    """The chunk, and what is left of the bytes that headers may have."""
    unpacked, values, dictionary, longest = 0, 0, False, 0
    while begin < end:
        header, behind = _structure(body, begin, min(end, begin + left), _PAGE, _DEEPEST)
        left, begin = left - (behind - begin), behind
        size, packed = header[2, _I32], header[3, _I32]
        if size < 0 or packed < 0:
            raise ValueError("a page without a size")
        unpacked += size
        begin += packed
        dictionary = dictionary or header[1, _I32] == _DICTIONARY_PAGE
        for field, encoding in _DATA_HEADERS.items():
            if (data := header.get((field, _STRUCT))) is not None:
                values += max(data[1, _I32], 0)
                if data[encoding, _I32] == _PREFIXES:
                    longest = max(longest, size)
    if begin != end:
        raise ValueError("the pages do not end where they should")
    return Chunk(column, unpacked, values, dictionary, longest), left


def _structure(body: bytes, at: int, end: int, shape: Shape, depth: int) -> tuple[dict[tuple[int, int], Any], int]:
    """The numbers of a structure, and the structures and lists of its shape, by field and type; and where it ends."""
    found: dict[tuple[int, int], Any] = {}
    field = 0
    while at < end:
        head, at = body[at], at + 1
        if head == 0:
            return found, at
        kind, delta = head & 15, head >> 4
        if delta:
            field += delta
        else:
            number, at = _varint(body, at, end)
            field = _signed(number)
        if not 0 < field <= _LAST_FIELD or (field, kind) in found:
            raise ValueError("a field that is there twice, or nobody's")  # of which readers make different things
        value, at = _value(body, at, end, kind, shape.get(field), depth)
        if kind in (_I32, _I64) or field in shape:
            found[field, kind] = value
    raise ValueError("a structure without an end")


def _value(body: bytes, at: int, end: int, kind: int, known: tuple[int, Shape] | None, depth: int) -> tuple[Any, int]:
    if depth == 0:
        raise ValueError("nested too deeply")
    if kind in _VARINTS:
        number, at = _varint(body, at, end)
        return _signed(number & 0xFFFFFFFF if kind == _I32 else number), at
    if kind == _TEXT:
        length, at = _varint(body, at, end)
        return None, at + length
    if kind == _STRUCT:
        return _structure(body, at, end, {} if known is None else known[1], depth - 1)
    return _list(body, at, end, known, depth) if kind == _LIST else (None, at + _FIXED[kind])


def _list(body: bytes, at: int, end: int, known: tuple[int, Shape] | None, depth: int) -> tuple[list[Any], int]:
    head, at = body[at], at + 1
    kind, count = head & 15, head >> 4
    if count == 15:
        count, at = _varint(body, at, end)
    if known is not None and kind != known[0]:
        raise ValueError("a list of something else")
    found = []
    for _ in range(count):
        if kind in (1, 2):
            value, at = None, at + 1
        else:
            value, at = _value(body, at, end, kind, known, depth - 1)
        if at > end:
            raise ValueError("a list without an end")
        if known is not None and known[1]:
            found.append(value)
    return found, at


def _varint(body: bytes, at: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while at < end and shift < 64:
        byte, at = body[at], at + 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number & 0xFFFFFFFF_FFFFFFFF, at
    raise ValueError("a number without an end")


def _signed(number: int) -> int:
    return number >> 1 ^ -(number & 1)


def message(metadata: bytes, body: memoryview, most: int) -> int:
    """Bytes that an Arrow message takes beside itself: its packed buffers unpacked, or the columns that it describes.

    What refers to one thing many times is counted no further than a little above ``most``.
    """
    if _OLD_PACKED in metadata:
        raise ValueError("buffers that are packed as nobody writes them any more")
    root = _Flat(metadata, 0).table()
    kind, header = root.byte(1), root.field(2)
    if header is None:
        return 0
    if kind == _SCHEMA:
        return _described(header.table(), 1, 2, most)
    if kind == _DICTIONARY_BATCH:
        header = header.table().field(1)
    if header is None or kind not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return 0
    records = header.table()
    if records.field(3) is None:
        return 0
    return sum(_length(body, offset) for offset, length in records.pairs(2) if length >= 8)


def _described(table: _Flat, fields: int, pairs: int, most: int) -> int:
    """A schema's or a column's columns and pairs of texts, which it has under these numbers."""
    size = 0
    for pair in table.tables(pairs):
        size += _PAIR_BYTES + pair.text(0) + pair.text(1)
        if size > most:
            return size
    for column in table.tables(fields):
        size += _COLUMN_BYTES + column.text(0) + _described(column, 5, 6, most - size)
        if column.byte(2) == _TIMESTAMP and (kind := column.field(3)) is not None:
            size += kind.table().text(1)
        if size > most:
            break
    return size


def _length(body: memoryview, offset: int) -> int:
    if offset < 0:
        raise ValueError("a buffer before its message")
    return max(int(struct.unpack_from("<q", body, offset)[0]), 0)  # -1: this one is not packed


class _Flat:
    """A place in a FlatBuffers message."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def table(self) -> _Flat:
        """The table that is referred to from here."""
        return _Flat(self._data, self._at + self._number("<I", self._at))

    def field(self, number: int) -> _Flat | None:
        """Where a table has one of its fields."""
        fields = self._at - self._number("<i", self._at)
        place = 4 + 2 * number
        if place >= self._number("<H", fields):
            return None
        offset = self._number("<H", fields + place)
        return _Flat(self._data, self._at + offset) if offset else None

    def byte(self, number: int) -> int:
        """A field of one byte."""
        found = self.field(number)
        return 0 if found is None else self._number("<B", found._at)

    def text(self, number: int) -> int:
        """The length of a field that is a text."""
        found = self.field(number)
        return 0 if found is None else self._number("<I", found.table()._at)

    def tables(self, number: int) -> Iterator[_Flat]:
        """A field that is a list of tables."""
        if (found := self.field(number)) is not None:
            at = found.table()._at
            for index in range(self._number("<I", at)):
                yield _Flat(self._data, at + 4 + 4 * index).table()

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """A field that is a list of two numbers of 64 bits each."""
        if (found := self.field(number)) is not None:
            at = found.table()._at
            for index in range(self._number("<I", at)):
                place = at + 4 + 16 * index
                yield self._number("<q", place), self._number("<q", place + 8)

    def _number(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError("a place before the message")
        return int(struct.unpack_from(form, self._data, at)[0])
