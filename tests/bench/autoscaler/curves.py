"""Bad requests at equal cost, and cost at equal bad requests, from a policy's sweep. Pure.

Its one idea: a point is what one setting gave on one traffic; a curve takes the best that was to be had for a cost or
less, so a rival is compared at its best setting, and traffics are summed in requests and replica-seconds, never as
ratios.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Point:
    """One policy at one setting on one traffic: means over seeds, `peak` the largest."""

    setting: float
    cost: float
    bad: float
    requests: float
    peak: int
    changes_per_hour: float


@dataclass(frozen=True)
class Read:
    """A value off a curve; `beyond`: the curve does not reach there, and its nearest end was taken."""

    value: float
    beyond: bool = False


def frontier(points: Iterable[Point]) -> list[tuple[float, float]]:
    """(cost, bad) by rising cost, only those with fewer bad than all that are cheaper."""
    kept: list[tuple[float, float]] = []
    for point in sorted(points, key=lambda p: (p.cost, p.bad)):
        if not kept or point.bad < kept[-1][1]:
            kept.append((point.cost, point.bad))
    return kept


def bad_at(points: Iterable[Point], cost: float) -> Read:
    """Between two settings by a line; below the cheapest what that one has, although it costs more."""
    curve = frontier(points)
    if cost < curve[0][0]:
        return Read(curve[0][1], beyond=True)
    return Read(_on(curve, cost), beyond=cost > curve[-1][0])


def cost_at(points: Iterable[Point], bad: float) -> Read:
    """The cost at which no more than `bad` are bad; the dearest setting's where none is as good."""
    curve = [(b, cost) for cost, b in reversed(frontier(points))]
    if bad < curve[0][0]:
        return Read(curve[0][1], beyond=True)
    return Read(_on(curve, bad), beyond=bad > curve[-1][0])


def _on(curve: Sequence[tuple[float, float]], at: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x0 <= at <= x1:
            return y0 + (y1 - y0) * (at - x0) / (x1 - x0)
    return curve[-1][1] if at > curve[-1][0] else curve[0][1]
