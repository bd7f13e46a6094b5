"""Lists of plain values as contiguous typed buffers, at C speed or not at all.

Owns the fast decision that every value of a list is fine as it is for a type; leaves each doubtful value to columns.
Pure and of the standard library, so that it runs on either side. One idea: ``set(map(type, values))`` and a range
check say in a few hundred nanoseconds what the rules of the types say value by value, and where they can't, nothing is
guessed.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from runtimes.mlflow.columns import EARLIEST, FLOAT32_LIMIT, LATEST

_FLOATS = ({float}, {int}, {float, int})
_EPOCH = datetime(1970, 1, 1)
_NAT = -(1 << 63)
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_TYPECODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}


def pack(code: str, values: Sequence[Any]) -> bytes | None:
    """The values as a buffer of this code; None where one of them needs a closer look."""
    packer = _PACKERS.get(code)
    return packer(values) if packer else None


def pack_unchecked(code: str, values: Sequence[Any]) -> bytes:
    """Values that are known to fit, NaN among them; a code without an array form is a JSON list."""
    if code == "b1":
        return bytes(values)
    typecode = _VIEWS.get(code)
    return array(typecode, values).tobytes() if typecode else pack_json(values)


def pack_json(values: Sequence[Any]) -> bytes:
    """Values without an array form, as one flat JSON list."""
    return _encode(values).encode()


def pack_times(moments: Sequence[datetime | None]) -> bytes:
    """Naive moments as nanoseconds since 1970; None is numpy's NaT."""
    return array("q", [_NAT if moment is None else _nanoseconds(moment) for moment in moments]).tobytes()


def unpack(code: str, buffer: Any) -> list[Any]:
    """A buffer of this code as plain values."""
    view: Any = memoryview(buffer)
    return view.cast("B").cast(_VIEWS[code]).tolist() if len(view) else []


def _doubles(values: Sequence[Any]) -> bytes | None:
    if values and set(map(type, values)) not in _FLOATS:
        return None
    try:
        packed = array("d", values)
    except OverflowError:  # an integer beyond every float
        return None
    # A sum is finite only where all its terms are; where it only overflowed, the closer look finds nothing wrong.
    return packed.tobytes() if math.isfinite(sum(packed)) or all(map(math.isfinite, packed)) else None


def _singles(values: Sequence[Any]) -> bytes | None:
    if values and (
        set(map(type, values)) not in _FLOATS
        or not (max(values) < FLOAT32_LIMIT and min(values) > -FLOAT32_LIMIT)
        or not all(map(math.isfinite, values))
    ):
        return None
    return array("f", values).tobytes()


def _times(values: Sequence[Any]) -> bytes | None:
    """Only the usual spelling, of which every Python reads the same: a date, or a date and a time without a zone."""
    try:
        moments = list(map(datetime.fromisoformat, values))
    except (ValueError, TypeError):
        return None
    if any(moment.tzinfo is not None or not EARLIEST <= moment < LATEST for moment in moments):
        return None
    return pack_times(moments)


def _nanoseconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


def _texts(values: Sequence[Any]) -> bytes | None:
    if values and set(map(type, values)) != {str}:
        return None
    return pack_json(values)


def _integers(typecode: str) -> Callable[[Sequence[Any]], bytes | None]:
    def packer(values: Sequence[Any]) -> bytes | None:
        if values and set(map(type, values)) != {int}:
            return None
        try:
            return array(typecode, values).tobytes()
        except OverflowError:
            return None

    return packer


def _booleans(values: Sequence[Any]) -> bytes | None:
    if values and set(map(type, values)) != {bool}:
        return None
    return bytes(values)


_PACKERS: dict[str, Callable[[Sequence[Any]], bytes | None]] = {
    "f8": _doubles,
    "f4": _singles,
    "b1": _booleans,
    "M8": _times,
    "text": _texts,
    **{code: _integers(typecode) for code, typecode in _TYPECODES.items()},
}
_VIEWS = {"f8": "d", "f4": "f", "b1": "?", **_TYPECODES}
