"""One value, one column: what JSON or CSV sent, as the signature's type, or the reason why not.

Owns the rules of the scalar types, pure and without numpy; leaves frames and arrays to tables and tensors. One idea: a
number, or text that spells one, is accepted if it lies in its column's range and is whole where it must be; everything
else is refused with column, row and reason, and never with the value.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum

from runtimes.mlflow.errors import Problem
from runtimes.mlflow.signature import Column

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?")
_LONGEST_NUMBER = 400
_FLOAT32_LIMIT = 3.4028235677973366e38  # half a step above the largest float32: from here on it rounds to infinity
_EARLIEST, _LATEST = datetime(1677, 9, 22), datetime(2262, 4, 11)  # what nanoseconds in 64 bits can hold
_WORDS = {"true": True, "false": False, "1": True, "0": False}


class Absent(Enum):
    """A record without this key; other than a null, which somebody wrote."""

    ABSENT = 0


ABSENT = Absent.ABSENT


def convert_column(
    column: Column, values: Sequence[object], *, text: bool = False
) -> tuple[list[object], list[Problem]]:
    """The values in the column's type, None where one is missing, and what is wrong with them.

    ``text`` is true for CSV, where every value is written out: there ``true`` and ``False`` spell booleans.
    """
    if not column.scalar or _already(column, values):
        return list(values), []
    converter = _WRITTEN[column.type] if text else _CONVERTERS[column.type]
    converted: list[object] = []
    problems: list[Problem] = []
    for row, value in enumerate(values):
        try:
            converted.append(_missing(column) if value is None or value is ABSENT else converter(value))
        except _UnfitError as unfit:
            reason = "no value where one is required" if value is ABSENT else unfit.reason
            problems.append(Problem(f"column `{column.name}`, row {row}: {reason}", str(column.name)))
            converted.append(None)
    return converted, problems


def convert_scalar(kind: str, value: object) -> tuple[object, str | None]:
    """One value of a parameter in its type, or the reason why it can't be."""
    try:
        return _CONVERTERS[kind](value), None
    except _UnfitError as unfit:
        return None, unfit.reason


class _UnfitError(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _already(column: Column, values: Sequence[object]) -> bool:
    """Whether every value is fine as it is, found out at C speed: the case that must cost nothing."""
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return False
    kind = kinds.pop()
    if kind is float and column.type == "double":
        return all(map(math.isfinite, values))  # type: ignore[arg-type]
    if kind is int and column.type in _INTEGER_BITS:
        limit = 1 << _INTEGER_BITS[column.type]
        integers: Sequence[int] = values  # type: ignore[assignment]
        return min(integers) >= -limit and max(integers) < limit
    return (kind is str and column.type == "string") or (kind is bool and column.type == "boolean")


def _missing(column: Column) -> object:
    # A null in a column of floating point numbers has always meant NaN to an MLflow model.
    if column.type in ("double", "float"):
        return math.nan
    if column.required:
        raise _UnfitError("null where a value is required")
    if column.type in _INTEGER_BITS:
        raise _UnfitError("null in an integer column, which this version can't hand to a model")
    return None


_INTEGER_BITS = {"integer": 31, "long": 63}


def _integer(bits: int) -> Callable[[object], int]:
    def convert(value: object) -> int:
        whole = _whole(value)
        if not -(1 << bits) <= whole < 1 << bits:
            raise _UnfitError(f"out of the range of a {bits + 1}-bit integer")
        return whole

    return convert


def _whole(value: object) -> int:
    if isinstance(value, bool):
        raise _UnfitError("a boolean where a whole number is expected")
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _UnfitError("not a whole number")
        return _whole_decimal(Decimal(value))
    return _whole_decimal(Decimal(_numeral(value, "a whole number")))


def _whole_decimal(number: Decimal) -> int:
    if number.adjusted() > 20:  # before int() would write out every digit of 1e9999
        raise _UnfitError("out of the range of a 64-bit integer")
    if number != number.to_integral_value():
        raise _UnfitError("not a whole number")
    return int(number)


def _floating(limit: float) -> Callable[[object], float]:
    def convert(value: object) -> float:
        if isinstance(value, bool):
            raise _UnfitError("a boolean where a number is expected")
        if not isinstance(value, int | float):
            value = _numeral(value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) < limit:
            raise _UnfitError("out of the range of its type")
        return number

    return convert


def _numeral(value: object, expected: str) -> str:
    if isinstance(value, str):
        spelled = value.strip()
        if len(spelled) <= _LONGEST_NUMBER and _NUMBER.fullmatch(spelled):
            return spelled
    raise _UnfitError(f"not {expected}")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise _UnfitError("not a string")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise _UnfitError("not a boolean (true, false, 0 or 1)")


def _written_boolean(value: object) -> bool:
    word = _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    return _boolean(value) if word is None else word


def _datetime(value: object) -> datetime:
    if isinstance(value, datetime):
        moment = value
    else:
        try:
            moment = datetime.fromisoformat(_string(value).strip())
        except (ValueError, _UnfitError):
            raise _UnfitError("not a date and time in ISO 8601") from None
    try:
        naive = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except OverflowError:
        naive = _LATEST
    if not _EARLIEST <= naive < _LATEST:
        raise _UnfitError("out of the range of a timestamp in nanoseconds (the years 1678 to 2261)")
    return naive


def _binary(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode("".join(_string(value).split()), validate=True)
    except (binascii.Error, ValueError, _UnfitError):
        raise _UnfitError("not base64") from None


_CONVERTERS: dict[str, Callable[[object], object]] = {
    "boolean": _boolean,
    "integer": _integer(31),
    "long": _integer(63),
    "float": _floating(_FLOAT32_LIMIT),
    "double": _floating(math.inf),
    "string": _string,
    "binary": _binary,
    "datetime": _datetime,
}
_WRITTEN = {**_CONVERTERS, "boolean": _written_boolean}
