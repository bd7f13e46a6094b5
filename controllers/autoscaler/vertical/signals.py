"""What is known of a revision's replicas beside their load: latency, resources, the engine's own word.

Owns the signals, their units and each one's two thresholds. Leaves where they are read to whoever reads them, and what
follows from them to `rules`. Its one idea: None is unknown, and unknown is no evidence, neither for more nor for less.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum


@dataclass(frozen=True)
class Signals:
    """Means over one epoch and the ready replicas of one revision.

    Latencies in seconds, of a request at a replica (the gateway's queue is not in them). `self_test_s`: a prediction
    on the input example, alone, before the replica was ready. Shares are 0 to 1: `cpu` of the cgroup quota, `memory`
    of the limit, `cpu_pressure` and `io_wait` of the time in which some task waited. `waiting`: requests a replica
    holds and does not work on yet. GPU signals are shares of what the accelerator has.
    """

    p50_s: float | None = None
    p95_s: float | None = None
    self_test_s: float | None = None
    cpu: float | None = None
    cpu_pressure: float | None = None
    memory: float | None = None
    io_wait: float | None = None
    kv_cache: float | None = None
    waiting: float | None = None
    gpu_memory: float | None = None
    gpu_memory_bandwidth: float | None = None
    tensor_activity: float | None = None
    gpu_utilization: float | None = None


UNKNOWN = Signals()


class Weight(Enum):
    """What a signal may do by itself.

    HARD: what is full kills, so it cuts where latency still holds. SOFT: it holds a raise back, and tells whose the
    latency is. ADVISORY: nothing; GPU utilisation fell from 94 to 56 % as concurrency rose, and reads 60 % with one
    request, so it is shown and never acts.
    """

    HARD = "hard"
    SOFT = "soft"
    ADVISORY = "advisory"


@dataclass(frozen=True)
class Thresholds:
    """Below `free` there is room to raise; from `hot` on the replica is short of it; between them it rests."""

    free: float
    hot: float
    weight: Weight = Weight.SOFT


THRESHOLDS: dict[str, Thresholds] = {
    "cpu": Thresholds(0.75, 0.92),
    "cpu_pressure": Thresholds(0.30, 0.60),
    "memory": Thresholds(0.85, 0.95, Weight.HARD),
    "io_wait": Thresholds(0.20, 0.50),
    "kv_cache": Thresholds(0.80, 0.95),
    "waiting": Thresholds(0.5, 2.0),
    "gpu_memory": Thresholds(0.92, 0.98),
    "gpu_memory_bandwidth": Thresholds(0.75, 0.90),
    "tensor_activity": Thresholds(0.70, 0.90),
    "gpu_utilization": Thresholds(0.0, 1.0, Weight.ADVISORY),
}


def readings(signals: Signals) -> Iterator[tuple[str, float, Thresholds]]:
    """The known and sane ones that may act, by name. NaN, infinity and what is below zero are unknown."""
    for field in fields(signals):
        value = sane(getattr(signals, field.name))
        threshold = THRESHOLDS.get(field.name)
        if value is not None and threshold is not None and threshold.weight is not Weight.ADVISORY:
            yield field.name, value, threshold


def hot(signals: Signals) -> tuple[str, ...]:
    """The resources that replicas are short of."""
    return tuple(name for name, value, threshold in readings(signals) if value >= threshold.hot)


def busy(signals: Signals) -> tuple[str, ...]:
    """The resources without room for more requests: a raise waits for them. What is hot is busy too."""
    return tuple(name for name, value, threshold in readings(signals) if value >= threshold.free)


def sane(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) and value >= 0 else None
