"""One value, one column: what JSON or CSV sent, as the signature's type, or the reason why not.

Owns the rules of the scalar types, pure and without numpy; leaves the usual case to values, which decides a whole
column at once, and buffers to plan. One idea: a number, or text that spells one, is accepted if it lies in its column's
range and is whole where it must be; everything else is refused with column, row and reason, and never with the value.
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
FLOAT32_LIMIT = 3.4028235677973366e38  # half a step above the largest float32: from here on it rounds to infinity
EARLIEST, LATEST = datetime(1677, 9, 22), datetime(2262, 4, 11)  # what nanoseconds in 64 bits can hold
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
    if not column.scalar:
        return [None if value is ABSENT else value for value in values], []
    converter = _WRITTEN[column.type] if text else _CONVERTERS[column.type]
    converted: list[object] = []
    problems: list[Problem] = []
    for row, value in enumerate(values):
        try:
            converted.append(_missing(column) if value is None or value is ABSENT else converter(value))
        except UnfitError as unfit:
            reason = "no value where one is required" if value is ABSENT else unfit.reason
            problems.append(Problem(f"column `{column.name}`, row {row}: {reason}", str(column.name)))
            converted.append(None)
    return converted, problems


def convert_scalar(kind: str, value: object) -> tuple[object, str | None]:
    """One value of a parameter in its type, or the reason why it can't be."""
    try:
        return _CONVERTERS[kind](value), None
    except UnfitError as unfit:
        return None, unfit.reason


class UnfitError(Exception):
    """A value that does not fit; the reason never repeats it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _missing(column: Column) -> object:
    # A null in a column of floating point numbers has always meant NaN to an MLflow model.
    if column.type in ("double", "float"):
        return math.nan
    if column.required:
        raise UnfitError("null where a value is required")
    return None


def integer_rule(low: int, high: int, name: str) -> Callable[[object], int]:
    """Whole numbers from ``low`` to ``high``."""

    def convert(value: object) -> int:
        whole = _whole(value)
        if not low <= whole <= high:
            raise UnfitError(f"out of the range of {name}")
        return whole

    return convert


def _whole(value: object) -> int:
    if isinstance(value, bool):
        raise UnfitError("a boolean where a whole number is expected")
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnfitError("not a whole number")
        return _whole_decimal(Decimal(value))
    return _whole_decimal(Decimal(_numeral(value, "a whole number")))


def _whole_decimal(number: Decimal) -> int:
    if number.adjusted() > 20:  # before int() would write out every digit of 1e9999
        raise UnfitError("out of the range of a 64-bit integer")
    if number != number.to_integral_value():
        raise UnfitError("not a whole number")
    return int(number)


def floating_rule(limit: float) -> Callable[[object], float]:
    """Numbers whose magnitude is below ``limit``."""

    def convert(value: object) -> float:
        if isinstance(value, bool):
            raise UnfitError("a boolean where a number is expected")
        if not isinstance(value, int | float):
            value = _numeral(value, "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) < limit:
            raise UnfitError("out of the range of its type")
        return number

    return convert


def _numeral(value: object, expected: str) -> str:
    if isinstance(value, str):
        spelled = value.strip()
        if len(spelled) <= _LONGEST_NUMBER and _NUMBER.fullmatch(spelled):
            return spelled
    raise UnfitError(f"not {expected}")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise UnfitError("not a string")
    return value


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    raise UnfitError("not a boolean (true, false, 0 or 1)")


def _written_boolean(value: object) -> bool:
    word = _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    return _boolean(value) if word is None else word


def _datetime(value: object) -> datetime:
    if isinstance(value, datetime):
        moment = value
    else:
        try:
            moment = datetime.fromisoformat(_string(value).strip())
        except (ValueError, UnfitError):
            raise UnfitError("not a date and time in ISO 8601") from None
    try:
        naive = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except OverflowError:
        naive = LATEST
    if not EARLIEST <= naive < LATEST:
        raise UnfitError("out of the range of a timestamp in nanoseconds (the years 1678 to 2261)")
    return naive


def _binary(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode("".join(_string(value).split()), validate=True)
    except (binascii.Error, ValueError, UnfitError):
        raise UnfitError("not base64") from None


_CONVERTERS: dict[str, Callable[[object], object]] = {
    "boolean": _boolean,
    "integer": integer_rule(-(1 << 31), (1 << 31) - 1, "a 32-bit integer"),
    "long": integer_rule(-(1 << 63), (1 << 63) - 1, "a 64-bit integer"),
    "float": floating_rule(FLOAT32_LIMIT),
    "double": floating_rule(math.inf),
    "string": _string,
    "binary": _binary,
    "datetime": _datetime,
}
_WRITTEN = {**_CONVERTERS, "boolean": _written_boolean}
