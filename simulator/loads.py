"""Requests over time: rates that are expanded at random, or the requests' own times.

Owns how a rate becomes requests. Its one idea: both engines draw counts by bin from the same place, so a coarse and an
exact run of one seed see the same load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Seconds = NDArray[np.float64]

# Bursts are as long as this: within one block the rate is the same multiple of its mean.
_BURST_S = 1.0


class Load(Protocol):
    @property
    def duration_s(self) -> float: ...

    def counts(self, random: np.random.Generator, bin_s: float) -> Counts:
        """Requests that arrive in each bin of `bin_s`, which divides a second, up to the next whole second."""

    def times(self, random: np.random.Generator, bin_s: float) -> Seconds:
        """When each of the same requests arrives, in order."""


@dataclass(frozen=True)
class Rates:
    """`values[i]` requests a second from i x `step_s` on.

    `cv`: burstiness, the coefficient of variation of the time between requests: a second with mean m has variance
    cv^2 m. 1: Poisson; above: Gamma-distributed rates by the second; 0: evenly spaced.
    """

    values: Sequence[float]
    step_s: float = 1.0
    cv: float = 1.0

    @property
    def duration_s(self) -> float:
        return len(self.values) * self.step_s

    def mean_counts(self, bin_s: float) -> NDArray[np.float64]:
        """By bin: the integral of the rate, whatever the two steps."""
        edges = np.arange(_bins(self.duration_s, bin_s) + 1) * bin_s
        steps = np.arange(len(self.values) + 1) * self.step_s
        totals = np.concatenate(([0.0], np.cumsum(np.asarray(self.values, dtype=float)) * self.step_s))
        counts: NDArray[np.float64] = np.diff(np.interp(edges, steps, totals))
        return np.maximum(counts, 0.0)

    def counts(self, random: np.random.Generator, bin_s: float) -> Counts:
        mean = self.mean_counts(bin_s)
        if self.cv > 1:
            return random.poisson(mean * _bursts(mean, self.cv, round(_BURST_S / bin_s), random))
        if self.cv == 1:
            return random.poisson(mean)
        return _even(mean, self.cv, random)

    def times(self, random: np.random.Generator, bin_s: float) -> Seconds:
        counts = self.counts(random, bin_s)
        begins = np.repeat(np.arange(len(counts)) * bin_s, counts)
        return np.sort(begins + random.random(len(begins)) * bin_s)


@dataclass(frozen=True)
class Times:
    """Each request at its own second, in any order."""

    at_s: Sequence[float]
    span_s: float | None = None

    @property
    def duration_s(self) -> float:
        return self.span_s if self.span_s is not None else float(math.floor(max(self.at_s, default=0.0)) + 1)

    def counts(self, random: np.random.Generator, bin_s: float) -> Counts:
        bins = _bins(self.duration_s, bin_s)
        index = np.floor(self.times(random, bin_s) / bin_s + 1e-9).astype(np.int64)
        return np.bincount(np.minimum(index, bins - 1), minlength=bins).astype(np.int64)

    def times(self, random: np.random.Generator, bin_s: float) -> Seconds:
        at_s = np.asarray(self.at_s, dtype=float)
        return np.sort(at_s[(at_s >= 0) & (at_s < math.ceil(self.duration_s))])


def scaled(load: Load, factor: float) -> Load:
    """`factor` times as many requests: of times each stands for so many, spread evenly up to the next one's."""
    if isinstance(load, Rates):
        return replace(load, values=[value * factor for value in load.values])
    if not isinstance(load, Times):
        raise TypeError(type(load).__name__)
    at_s = sorted(load.at_s)
    made: list[float] = []
    for index, (one_s, next_s) in enumerate(zip(at_s, [*at_s[1:], load.duration_s], strict=True)):
        copies = math.floor((index + 1) * factor + 1e-9) - math.floor(index * factor + 1e-9)
        made += [one_s + (next_s - one_s) * copy / copies for copy in range(copies)]
    return Times(made, load.duration_s)


def _bins(duration_s: float, bin_s: float) -> int:
    return math.ceil(duration_s) * round(1 / bin_s)


def _bursts(mean: NDArray[np.float64], cv: float, block: int, random: np.random.Generator) -> NDArray[np.float64]:
    """Factors of mean 1 by block: Poisson of a Gamma rate has variance m + m^2 / shape; shape = m / (cv^2 - 1)."""
    of_block = np.add.reduceat(mean, np.arange(0, len(mean), block))
    shape = np.maximum(of_block / (cv * cv - 1), 1e-12)
    return np.repeat(random.gamma(shape) / shape, block)[: len(mean)]


def _even(mean: NDArray[np.float64], cv: float, random: np.random.Generator) -> Counts:
    """Of evenly spaced candidates each is taken with probability 1 - cv^2: variance m (1 - p) = m cv^2."""
    keep = 1 - cv * cv
    candidates = np.diff(np.floor(np.concatenate(([0.0], np.cumsum(mean / keep))) + random.random()))
    return random.binomial(candidates.astype(np.int64), keep).astype(np.int64)
