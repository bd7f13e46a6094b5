"""What the interface counts, whatever the engine.

Owns the registry and the names of what is counted of each request; an engine adds what it has besides. One idea: all
labels are bound once to the endpoint and the version, and what each request counts is a number that only the event loop
changes, so a request pays for an addition: no labels, no locks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

disable_created_metrics()  # type: ignore[no-untyped-call]  # a series more for each counter, which nobody here reads
CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"
CLIENT_LEFT = 499  # no answer was sent: the client closed its connection first
# About six a decade, each less than half above the last: a quantile that grows by half always shows.
_STEPS = (1, 1.5, 2.2, 3.3, 4.7, 6.8)
_BUCKETS_S = (*(round(step * 10.0**power, 4) for power in (-3, -2, -1, 0, 1) for step in _STEPS), 100, 150, 220, 300)
# What the model itself took its time for. A refusal is quick and would make an overloaded model look quick.
_OF_THE_MODEL = frozenset({200, 500, 504})
_CODES = (200, 400, 413, 415, 429, CLIENT_LEFT, 500, 503, 504)


class Metrics:
    """The endpoint's metrics, with its name and the model's version as constant labels."""

    def __init__(self, endpoint: str, version: str) -> None:
        self._registry = CollectorRegistry()
        self._fixed = (endpoint, version)
        self._requests = Requests(self._fixed)
        self.also(self._requests)
        self._duration = self.histogram(
            "request_duration_seconds",
            "Time from a request's headers to the model's answer, or to its error or deadline",
            _BUCKETS_S,
        )
        self.in_flight = self.gauge("requests_in_flight", "Requests for predictions being handled")
        self.buffered = self.gauge("buffered_bytes", "Bytes of bodies in memory")
        self.non_finite = self.counter("non_finite_values_total", "NaN and infinite values that left as null")
        self.hooks_failed = self.counter("hook_failures_total", "Requests that a trace or payload log did not take")
        ProcessCollector(registry=self._registry)

    def count(self, code: int, seconds: float) -> None:
        """One request that ended with this code after this time."""
        by_code = self._requests.by_code
        by_code[code] = by_code.get(code, 0) + 1
        if code in _OF_THE_MODEL:
            self._duration.observe(seconds)

    def also(self, collector: Collector) -> None:
        """Show another collector's metrics beside ours."""
        self._registry.register(collector)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    # For engines.

    def counter(self, name: str, about: str) -> Counter:
        """A counter of the endpoint, bound."""
        return self._counter(name, about).labels(*self._fixed)

    def counters(self, name: str, about: str, label: str) -> Counters:
        """A counter with one label of its own."""
        return Counters(self._counter(name, about, label), self._fixed)

    def gauge(self, name: str, about: str) -> Gauge:
        """A gauge of the endpoint, bound."""
        return Gauge(f"knobless_runtime_{name}", about, ("endpoint", "version"), registry=self._registry).labels(
            *self._fixed
        )

    def info(self, **labels: str) -> None:
        """What runs here, as a gauge that is always 1."""
        names = ("endpoint", "version", *labels)
        info = Gauge("knobless_runtime_info", "Always 1; what runs here", names, registry=self._registry)
        info.labels(*self._fixed, *labels.values()).set(1)

    def histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        """A histogram of the endpoint, bound."""
        made = Histogram(f"knobless_runtime_{name}", about, buckets, self._fixed)
        self.also(made)
        return made

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        names = ("endpoint", "version", *labels)
        return Counter(f"knobless_runtime_{name}", about, names, registry=self._registry)


class Requests(Collector):
    """Requests by the code that they ended with."""

    def __init__(self, fixed: tuple[str, str]) -> None:
        self._fixed = fixed
        self.by_code = dict.fromkeys(_CODES, 0)

    def collect(self) -> list[CounterMetricFamily]:
        about, names = "Requests for predictions by status code", ("endpoint", "version", "code")
        family = CounterMetricFamily("knobless_runtime_requests_total", about, labels=names)
        for code, count in self.by_code.items():
            family.add_metric((*self._fixed, str(code)), count)
        return [family]


class Histogram(Collector):
    """How many observations lie at or below each of these bounds, and their sum."""

    def __init__(self, name: str, about: str, bounds: Sequence[float], fixed: tuple[str, str]) -> None:
        self._name, self._about, self._fixed = name, about, fixed
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)  # the last one is of what lies above all
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def collect(self) -> list[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._about, labels=("endpoint", "version"))
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        family.add_metric(self._fixed, list(zip(bounds, accumulate(self._counts), strict=True)), self._sum)
        return [family]


class Counters:
    """A counter by one label, whose values become known as they happen."""

    def __init__(self, counter: Counter, fixed: tuple[str, str]) -> None:
        self._counter = counter
        self._fixed = fixed

    def inc(self, value: str) -> None:
        self._counter.labels(*self._fixed, value).inc()
