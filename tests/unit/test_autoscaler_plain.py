"""States and observations as plain values and back: whole, exact, and kind to older and newer programs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.autoscaler.moment import Moment
from controllers.autoscaler.plain import Unreadable, from_plain, to_plain


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Inner:
    at_s: Moment
    pairs: tuple[tuple[Moment, float], ...] = ()


@dataclass(frozen=True)
class Outer:
    name: str
    count: int = 1
    share: float | None = None
    yes: bool = False
    colour: Colour = Colour.RED
    inner: Inner | None = None
    by_name: Mapping[str, Inner] = field(default_factory=dict)


WHOLE = Outer("n", 2, 0.5, True, Colour.RED, Inner(7.0, ((1.0, 2.0),)), {"a": Inner(3.0)})
finite = st.floats(allow_nan=False, allow_infinity=False)


def through_json(value: object, shift_s: float = 0.0) -> Any:
    return json.loads(json.dumps(to_plain(value, shift_s)))


def test_what_is_written_is_read_as_the_same_value() -> None:
    assert from_plain(Outer, through_json(WHOLE)) == WHOLE


@given(share=finite, moments=st.lists(st.tuples(finite, finite)))
def test_numbers_are_read_bit_for_bit(share: float, moments: list[tuple[float, float]]) -> None:
    value = Outer("n", share=share, inner=Inner(0.0, tuple(moments)))
    assert repr(from_plain(Outer, through_json(value))) == repr(value)


def test_moments_move_with_the_clock_and_nothing_else_does() -> None:
    plain = through_json(WHOLE, 100.0)
    assert (plain["inner"], plain["share"]) == ({"at_s": 107.0, "pairs": [[101.0, 2.0]]}, 0.5)
    assert from_plain(Outer, plain, -100.0) == WHOLE


def test_moments_can_be_left_out_to_compare_the_rest() -> None:
    other = Outer("n", 2, 0.5, True, Colour.RED, Inner(8.0, ((9.0, 2.0),)), {"a": Inner(4.0)})
    assert to_plain(WHOLE, None) == to_plain(other, None)
    assert to_plain(WHOLE, None) != to_plain(Outer("n", 3), None)


def test_a_newer_programs_field_is_passed_over_and_an_older_ones_takes_its_default() -> None:
    assert from_plain(Outer, {"name": "n", "of_tomorrow": {"x": 1}}) == Outer("n")


@pytest.mark.parametrize(
    ("plain", "says"),
    [
        ({}, "Outer without name"),
        ([], "no object"),
        ({"name": 3}, "name: 3 is no str"),
        ({"name": "n", "count": 1.5}, "count: 1.5 is no whole number"),
        ({"name": "n", "count": True}, "count: True is no whole number"),
        ({"name": "n", "share": float("nan")}, "share: nan is no finite number"),
        ({"name": "n", "share": "1"}, "share: '1' is no finite number"),
        ({"name": "n", "yes": 1}, "yes: 1 is no bool"),
        ({"name": "n", "colour": "blue"}, "colour: 'blue' is not a valid Colour"),
        ({"name": "n", "inner": {"at_s": 1, "pairs": [[1]]}}, "inner: pairs: 1 values where 2 belong"),
        ({"name": "n", "inner": {"at_s": 1, "pairs": 5}}, "inner: pairs: 5 is no list"),
    ],
)
def test_what_does_not_fit_is_unreadable_and_says_where(plain: Any, says: str) -> None:
    with pytest.raises(Unreadable, match=says.replace("(", r"\(")):
        from_plain(Outer, plain)
