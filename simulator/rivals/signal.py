"""What rivals take for load: requests in flight and waiting, by means over the seconds that they were shown.

Owns the two means: one over what is known, and Knative's, in which a gap between two known seconds is idle time. Leaves
to each rival which window, and how old. A number that is none (NaN, infinite) reads as unknown, which flatters some.
"""

import math
from collections.abc import Iterator, Sequence

from simulator.policy import Sample


def load_of(sample: Sample) -> float | None:
    """None: unknown."""
    load = sample.in_flight + sample.queued
    return max(load, 0.0) if sample.known and math.isfinite(load) else None


def newest(samples: Sequence[Sample], until_s: float, window_s: float) -> Iterator[Sample]:
    """The samples of (until - window, until], newest first."""
    for sample in reversed(samples):
        if sample.at_s <= until_s - window_s:
            return
        if sample.at_s <= until_s:
            yield sample


def mean_load(samples: Sequence[Sample], until_s: float, window_s: float) -> float | None:
    """The mean over the known seconds of the window; None where none is."""
    loads = [load for sample in newest(samples, until_s, window_s) if (load := load_of(sample)) is not None]
    return sum(loads) / len(loads) if loads else None


def bucket_mean(samples: Sequence[Sample], until_s: float, window_s: float) -> float | None:
    """Knative's mean over buckets of a second: seconds since the last known one are left out, an unknown one between
    two known ones is a zero. Known 6, unknown, known 12, unknown: (6 + 0 + 12) / 3 = 6."""
    total, valid, since_known, known = 0.0, 0, 0, False
    for sample in newest(samples, until_s, window_s):
        load = load_of(sample)
        if load is None:
            since_known += 1
            continue
        total += load
        valid += since_known + 1 if known else 1
        since_known, known = 0, True
    return total / valid if known else None
