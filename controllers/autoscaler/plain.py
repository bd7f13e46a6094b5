"""Frozen dataclasses to plain JSON values and back, for checkpoints and records alike. Pure.

Owns one rule for each kind of type; whoever adds a field to a state or an observation writes nothing here. Its one
idea: the type says how a value is written. A field that is unknown is passed over and one that is missing takes its
default, so that an older and a newer program read each other; anything else that doesn't fit is `Unreadable`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from controllers.autoscaler.moment import MOMENT

T = TypeVar("T")
# (value, seconds that moments move by; None: they are left out) -> value
Turn = Callable[[Any, float | None], Any]


class Unreadable(ValueError):  # noqa: N818 - what the value is
    """A plain value that is not what its type says; the text names where."""


def to_plain(value: Any, shift_s: float | None = 0.0) -> Any:
    """A dataclass as dicts, lists, strings and numbers. Its moments move by `shift_s`; None leaves them out."""
    kind: Any = type(value)
    return _writer(kind)(value, shift_s)


def from_plain(kind: type[T], plain: Any, shift_s: float = 0.0) -> T:
    """The way back. Raises Unreadable."""
    wanted: Any = kind
    found: T = _reader(wanted)(plain, shift_s)
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _optional(kind: Any) -> Any:
    """X of `X | None`. A type of several others can't be told apart when read."""
    (inner,) = (each for each in get_args(kind) if each is not NoneType)
    return inner


def _is_moment(kind: Any) -> bool:
    return get_origin(kind) is Annotated and MOMENT in kind.__metadata__


def _moved(at_s: float, shift_s: float) -> float:
    """-0.0 + 0.0 is 0.0: what does not move stays to the bit."""
    return at_s + shift_s if shift_s else at_s


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, UnionType)


@cache
def _writer(kind: Any) -> Turn:
    if _is_moment(kind):
        return lambda value, shift_s: None if shift_s is None else _moved(value, shift_s)
    if get_origin(kind) is Annotated:
        return _writer(get_args(kind)[0])
    if _is_union(kind):
        inner = _writer(_optional(kind))
        return lambda value, shift_s: None if value is None else inner(value, shift_s)
    if is_dataclass(kind):
        each = {f.name: _writer(_hints(kind)[f.name]) for f in fields(kind)}  # type: ignore[arg-type]
        return lambda value, shift_s: {name: write(getattr(value, name), shift_s) for name, write in each.items()}
    if get_origin(kind) is tuple:
        return _tuple_writer(get_args(kind))
    if _is_mapping(kind):
        held = _writer(get_args(kind)[1])
        return lambda value, shift_s: {str(key): held(item, shift_s) for key, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value, _: value.value
    return lambda value, _: value


def _tuple_writer(kinds: tuple[Any, ...]) -> Turn:
    if kinds[-1] is Ellipsis:
        one = _writer(kinds[0])
        return lambda value, shift_s: [one(item, shift_s) for item in value]
    each = [_writer(kind) for kind in kinds]
    return lambda value, shift_s: [write(item, shift_s) for write, item in zip(each, value, strict=True)]


def _is_mapping(kind: Any) -> bool:
    origin = get_origin(kind)
    return isinstance(origin, type) and issubclass(origin, Mapping)


@cache
def _reader(kind: Any) -> Turn:
    if _is_moment(kind):
        return lambda plain, shift_s: _moved(_number(plain), shift_s or 0.0)
    if get_origin(kind) is Annotated:
        return _reader(get_args(kind)[0])
    if _is_union(kind):
        inner = _reader(_optional(kind))
        return lambda plain, shift_s: None if plain is None else inner(plain, shift_s)
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    if get_origin(kind) is tuple:
        return _tuple_reader(get_args(kind))
    if _is_mapping(kind):
        held = _reader(get_args(kind)[1])
        return lambda plain, shift_s: {key: held(item, shift_s) for key, item in _dict(plain).items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda plain, _: _member(kind, plain)
    if kind not in _PRIMITIVE:
        raise TypeError(f"{kind} has no plain form: dataclasses, tuples, mappings by name, enums, numbers, texts do")
    return _PRIMITIVE[kind]


def _dataclass_reader(kind: Any) -> Turn:
    hints = _hints(kind)
    each = {f.name: (_reader(hints[f.name]), _is_needed(f)) for f in fields(kind)}

    def read(plain: Any, shift_s: float | None) -> Any:
        given, known = _dict(plain), {}
        for name, (turn, needed) in each.items():
            if name in given:
                known[name] = _within(name, turn, given[name], shift_s)
            elif needed:
                raise Unreadable(f"{kind.__name__} without {name}")
        return kind(**known)

    return read


def _is_needed(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _within(name: str, turn: Turn, plain: Any, shift_s: float | None) -> Any:
    try:
        return turn(plain, shift_s)
    except Unreadable as error:
        raise Unreadable(f"{name}: {error}") from None


def _tuple_reader(kinds: tuple[Any, ...]) -> Turn:
    if kinds[-1] is Ellipsis:
        one = _reader(kinds[0])
        return lambda plain, shift_s: tuple(one(item, shift_s) for item in _list(plain))
    each = [_reader(kind) for kind in kinds]

    def read(plain: Any, shift_s: float | None) -> Any:
        if len(_list(plain)) != len(each):
            raise Unreadable(f"{len(plain)} values where {len(each)} belong")
        return tuple(turn(item, shift_s) for turn, item in zip(each, plain, strict=True))

    return read


def _number(plain: Any) -> float:
    if isinstance(plain, bool) or not isinstance(plain, int | float) or not math.isfinite(plain):
        raise Unreadable(f"{plain!r} is no finite number")
    return float(plain)


def _whole(plain: Any) -> int:
    if isinstance(plain, bool) or not isinstance(plain, int):
        raise Unreadable(f"{plain!r} is no whole number")
    return plain


def _exactly(kind: type) -> Turn:
    def read(plain: Any, _: float | None) -> Any:
        if type(plain) is not kind:
            raise Unreadable(f"{plain!r} is no {kind.__name__}")
        return plain

    return read


def _dict(plain: Any) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise Unreadable(f"{plain!r:.80} is no object")
    return plain


def _list(plain: Any) -> list[Any]:
    if not isinstance(plain, list):
        raise Unreadable(f"{plain!r:.80} is no list")
    return plain


def _member(kind: type[Enum], plain: Any) -> Enum:
    try:
        return kind(plain)
    except ValueError as error:
        raise Unreadable(str(error)) from None


_PRIMITIVE: dict[Any, Turn] = {
    float: lambda plain, _: _number(plain),
    int: lambda plain, _: _whole(plain),
    str: _exactly(str),
    bool: _exactly(bool),
}
