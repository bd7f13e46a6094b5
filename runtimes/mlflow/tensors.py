"""Nested lists as the flat buffer and the shape that a tensor signature asks for, or the reason why not.

Owns the check of nesting, kind, range and shape. Pure and of the standard library. One idea: the values decide, not the
type they arrived in, so whole floats fit an integer tensor, and 2.7 never becomes 2, nor true 1.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from runtimes.mlflow.columns import FLOAT32_LIMIT, UnfitError, convert_scalar, floating_rule, integer_rule
from runtimes.mlflow.errors import MOST_PROBLEMS, Problem, RefusedError, refused
from runtimes.mlflow.layout import Buffer
from runtimes.mlflow.signature import Tensor
from runtimes.mlflow.values import pack, pack_json, pack_times

_HALF_LIMIT = 65520.0  # from here on a float16 rounds to infinity
_LISTS = ({list}, {tuple}, {list, tuple})
CODES = {
    "bool": "b1", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "int64": "i8", "uint64": "u8", "float16": "f2", "float32": "f4", "float64": "f8",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Packed:
    """One tensor of a request."""

    code: str
    shape: tuple[int, ...]
    buffer: Buffer


def code_of(spec: Tensor) -> str:
    """How the values of this tensor travel."""
    return "M8" if spec.dtype.startswith("datetime64") else CODES.get(spec.dtype, "js")


def pack_tensor(spec: Tensor, value: Any) -> Packed:
    """The tensor of nested lists; shape and values fit the spec, or a refusal says what does not."""
    if isinstance(value, list) and not value:
        inner = tuple(max(length, 0) for length in spec.shape[1:])
        return Packed(code_of(spec), (0, *inner), pack_json([]) if code_of(spec) == "js" else b"")
    shape, leaves = flatten(spec, value)
    check_shape(spec, shape)
    return Packed(code_of(spec), shape, pack_leaves(spec, leaves, math.prod(shape[1:])))


def pack_plain(spec: Tensor, value: Any) -> Packed | None:
    """The same where nothing has to be looked at value by value, else None; what does not fit is refused, too."""
    code = code_of(spec)
    if code == "js" or type(value) is not list or not value:
        return None
    shape, leaves = flatten(spec, value)
    check_shape(spec, shape)
    buffer = pack(code, leaves)
    return None if buffer is None else Packed(code, shape, buffer)


def pack_leaves(spec: Tensor, leaves: Sequence[Any], row_values: int) -> Buffer:
    """The flat values as a buffer of the spec's type."""
    code = code_of(spec)
    if code == "js":
        _check_texts(spec, leaves, row_values)
        return pack_json(leaves)
    packed = pack(code, leaves)
    return packed if packed is not None else _closer_look(spec, code, leaves, row_values)


def check_shape(spec: Tensor, shape: Sequence[int]) -> None:
    """Refuse a shape that is not the spec's; -1 there fits any length."""
    fits = len(shape) == len(spec.shape) and all(
        wanted in (-1, length) for wanted, length in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise tensor_refusal(spec, f"its shape is {list(shape)}, the model takes {list(spec.shape)}")


def tensor_refusal(spec: Tensor, reason: str) -> RefusedError:
    """A 400 that names the tensor."""
    return RefusedError(400, f"{_called(spec)}: {reason}", spec.name)


def _called(spec: Tensor) -> str:
    return f"tensor `{spec.name}`" if spec.name else "the input tensor"


def flatten(spec: Tensor, value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """Shape and leaves of nested lists, down to the spec's own depth and no deeper."""
    shape: list[int] = []
    level: list[Any] = [value]
    while level and set(map(type, level)) in _LISTS:
        lengths = set(map(len, level))
        if len(lengths) != 1:
            raise tensor_refusal(spec, "its rows have different lengths")
        shape.append(lengths.pop())
        if len(shape) > len(spec.shape) and spec.dtype == "object":
            return tuple(shape[:-1]), level  # lists are what this tensor holds
        level = list(chain.from_iterable(level))
    if any(map(_LIST_TYPES.__contains__, set(map(type, level)))):
        raise tensor_refusal(spec, "its rows have different lengths")
    return tuple(shape), level


_LIST_TYPES = frozenset({list, tuple})


def _check_texts(spec: Tensor, leaves: Sequence[Any], row_values: int) -> None:
    if spec.dtype == "object":
        return  # whatever the model makes of it
    if spec.dtype not in ("str", "bytes"):
        raise tensor_refusal(spec, f"values of type {spec.dtype} have no form in a request")
    for position, value in enumerate(leaves):
        if not isinstance(value, str):
            raise tensor_refusal(spec, f"{_where(position, row_values)}: not a string")


def _closer_look(spec: Tensor, code: str, leaves: Sequence[Any], row_values: int) -> Buffer:
    rule = _RULES[code]
    converted: list[Any] = []
    problems: list[Problem] = []
    for position, value in enumerate(leaves):
        try:
            converted.append(rule(value))
        except UnfitError as unfit:
            problems.append(Problem(f"{_called(spec)}, {_where(position, row_values)}: {unfit.reason}", spec.name))
            if len(problems) > MOST_PROBLEMS:
                break
    if problems:
        raise refused(problems)
    if code == "M8":
        return pack_times(converted)
    packed = struct.pack(f"<{len(converted)}e", *converted) if code == "f2" else pack(code, converted)
    if packed is None:  # not reached: the rules let through what fits
        raise tensor_refusal(spec, "a value does not fit its type")
    return packed


def _where(position: int, row_values: int) -> str:
    return f"row {position // row_values if row_values else 0}"


def _numeric(rule: Callable[[object], Any]) -> Callable[[object], Any]:
    def convert(value: object) -> Any:
        if value is None:
            raise UnfitError("null where a value is required")
        if not isinstance(value, int | float):
            raise UnfitError("not a number")
        return rule(value)

    return convert


def _boolean(value: object) -> object:
    if isinstance(value, str):
        raise UnfitError("not a boolean (true, false, 0 or 1)")
    return _scalar("boolean")(value)


def _scalar(kind: str) -> Callable[[object], object]:
    def convert(value: object) -> object:
        converted, reason = convert_scalar(kind, value)
        if reason is not None:
            raise UnfitError(reason)
        return converted

    return convert


def _bits(name: str) -> Callable[[object], Any]:
    bits, signed = int(name.lstrip("uint")), name[0] == "i"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return _numeric(integer_rule(low, high, name))


_RULES: dict[str, Callable[[object], Any]] = {
    "b1": _boolean,
    "f2": _numeric(floating_rule(_HALF_LIMIT)),
    "f4": _numeric(floating_rule(FLOAT32_LIMIT)),
    "f8": _numeric(floating_rule(math.inf)),
    "M8": _scalar("datetime"),
    **{CODES[name]: _bits(name) for name in CODES if "int" in name},
}
