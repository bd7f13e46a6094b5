"""What a signal's value means: room, rest or shortage, by its own two thresholds.

Owns the thresholds and the mean over pods. Leaves what follows to `rules`. Its one idea: unknown is no evidence,
neither for more nor for less, and a signal that says nothing about load never acts.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

from controllers.autoscaler.vertical.signals import Signals


@dataclass(frozen=True)
class Thresholds:
    """Below `free` there is room to raise; from `hot` on a replica is short of it; between them it rests.

    `kills`: what is full ends the pod, so shortage cuts even where latency holds.
    """

    free: float
    hot: float
    kills: bool = False


# GPU utilisation is not here: it fell from 94 to 56 % as concurrency rose and reads 60 % with one request, so it is
# shown and never acts. Latencies have the objective as their threshold.
THRESHOLDS: dict[str, Thresholds] = {
    "cpu": Thresholds(0.75, 0.92),
    "cpu_pressure": Thresholds(0.30, 0.60),
    "memory": Thresholds(0.85, 0.95, kills=True),
    "io_wait": Thresholds(0.20, 0.50),
    "kv_cache": Thresholds(0.80, 0.95),
    "waiting": Thresholds(0.5, 2.0),
    "gpu_memory": Thresholds(0.95, 0.98),
    "gpu_bandwidth": Thresholds(0.75, 0.90),
    "tensor_activity": Thresholds(0.70, 0.90),
}


def hot(signals: Signals) -> tuple[str, ...]:
    """The resources that replicas are short of."""
    return tuple(name for name, value, threshold in _readings(signals) if value >= threshold.hot)


def busy(signals: Signals) -> tuple[str, ...]:
    """The resources without room for more requests; what is hot is busy too."""
    return tuple(name for name, value, threshold in _readings(signals) if value >= threshold.free)


def killing(signals: Signals) -> tuple[str, ...]:
    """The shortages that end pods."""
    return tuple(name for name in hot(signals) if THRESHOLDS[name].kills)


def _readings(signals: Signals) -> Iterator[tuple[str, float, Thresholds]]:
    for name, threshold in THRESHOLDS.items():
        value = sane(getattr(signals, name))
        if value is not None:
            yield name, value, threshold


def sane(value: float | None) -> float | None:
    """NaN, infinity and what is below zero are unknown."""
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def mean_of(pods: Iterable[Signals]) -> Signals:
    """Of several pods together: each signal's mean over the pods where it is known."""
    every = list(pods)
    return Signals(**{field.name: _mean(getattr(pod, field.name) for pod in every) for field in fields(Signals)})


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for each in values if (value := sane(each)) is not None]
    return sum(known) / len(known) if known else None
