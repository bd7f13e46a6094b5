"""What the interface counts, whatever the engine.

Owns the registry and the names of what is counted of each request; an engine adds what it has besides. One idea: all
labels are bound once to the endpoint and the version, so that a request pays for an increment and never for looking up
labels.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

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
        self._requests = self._counter("requests_total", "Requests for predictions by status code", "code")
        self._by_code = {code: self._requests.labels(*self._fixed, str(code)) for code in _CODES}
        self._duration = Histogram(
            "knobless_runtime_request_duration_seconds",
            "Time from a request's headers to the model's answer, or to its error or deadline",
            ("endpoint", "version"),
            buckets=_BUCKETS_S,
            registry=self._registry,
        ).labels(*self._fixed)
        self.in_flight = self.gauge("requests_in_flight", "Requests for predictions being handled")
        self.buffered = self.gauge("buffered_bytes", "Bytes of bodies in memory")
        self.non_finite = self.counter("non_finite_values_total", "NaN and infinite values that left as null")
        self.hooks_failed = self.counter("hook_failures_total", "Requests that a trace or payload log did not take")
        ProcessCollector(registry=self._registry)

    def count(self, code: int, seconds: float) -> None:
        """One request that ended with this code after this time."""
        bound = self._by_code.get(code)
        if bound is None:
            bound = self._by_code[code] = self._requests.labels(*self._fixed, str(code))
        bound.inc()
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
        return Histogram(
            f"knobless_runtime_{name}", about, ("endpoint", "version"), buckets=buckets, registry=self._registry
        ).labels(*self._fixed)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        names = ("endpoint", "version", *labels)
        return Counter(f"knobless_runtime_{name}", about, names, registry=self._registry)


class Counters:
    """A counter by one label, whose values become known as they happen."""

    def __init__(self, counter: Counter, fixed: tuple[str, str]) -> None:
        self._counter = counter
        self._fixed = fixed

    def inc(self, value: str) -> None:
        self._counter.labels(*self._fixed, value).inc()
