"""Loads by a word: `step:from=10,to=200,at=300`. Rates by second, from a closed set of shapes.

Owns the shapes, their parameters and how they are written. Its one idea: whatever is wrong with a shape is said with
the column where it stands and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simulator.loads import Rates

Rate = Callable[[float, Mapping[str, float]], float]


@dataclass(frozen=True)
class Shape:
    """`rate_rps` at a second; `defaults` name its parameters."""

    says: str
    defaults: Mapping[str, float]
    rate_rps: Rate


class ShapeError(ValueError):
    """A shape that can't be meant."""


def _ramp(at_s: float, p: Mapping[str, float]) -> float:
    done = min(max((at_s - p["at"]) / max(p["over"], 1e-9), 0.0), 1.0)
    return p["from"] + (p["to"] - p["from"]) * done


def _crowd(at_s: float, p: Mapping[str, float]) -> float:
    """Straight up in `rise` seconds, then down by half in each `half`."""
    since_s = at_s - p["at"]
    if since_s <= p["rise"]:
        share = max(since_s, 0.0) / max(p["rise"], 1e-9)
    else:
        share = 0.5 ** ((since_s - p["rise"]) / max(p["half"], 1e-9))
    return p["base"] + (p["peak"] - p["base"]) * share


SHAPES: Mapping[str, Shape] = {
    "constant": Shape("the same all the time", {"rps": 100}, lambda t, p: p["rps"]),
    "step": Shape(
        "from one rate to another", {"from": 10, "to": 200, "at": 300}, lambda t, p: p["to" if t >= p["at"] else "from"]
    ),
    "ramp": Shape("evenly from one rate to another", {"from": 10, "to": 200, "at": 300, "over": 600}, _ramp),
    "sine": Shape(
        "around a mean",
        {"mean": 100, "swing": 80, "period": 900},
        lambda t, p: p["mean"] + p["swing"] * math.sin(2 * math.pi * t / max(p["period"], 1e-9)),
    ),
    "crowd": Shape("a flash crowd", {"base": 20, "peak": 400, "at": 300, "rise": 20, "half": 180}, _crowd),
}


def is_shape(text: str) -> bool:
    return text.partition(":")[0] in SHAPES


def read_shape(text: str, duration_s: int, cv: float = 1.0) -> Rates:
    """Raises ShapeError. Rates are those of each second's middle, never below zero."""
    name, colon, rest = text.partition(":")
    shape = SHAPES.get(name)
    if shape is None:
        raise ShapeError(f"column 1: {name!r} is no shape; shapes are {', '.join(SHAPES)}")
    given = _parameters(shape, name, rest, len(name) + 2) if colon else {}
    values = {**shape.defaults, **given}
    return Rates([max(shape.rate_rps(second + 0.5, values), 0.0) for second in range(duration_s)], cv=cv)


def _parameters(shape: Shape, name: str, text: str, column: int) -> dict[str, float]:
    found = {}
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key.strip() not in shape.defaults:
            raise ShapeError(f"column {column}: {name} has no {key.strip()!r}; it has {', '.join(shape.defaults)}")
        found[key.strip()] = _number(value, column + len(key) + 1)
        column += len(part) + 1
    return found


def _number(text: str, column: int) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ShapeError(f"column {column}: {text.strip()!r} is no number") from None
    if not math.isfinite(value) or value < 0:
        raise ShapeError(f"column {column}: {text.strip()} must be a number from zero up")
    return value
