"""What the runtime counts.

Owns the names of its Prometheus metrics; leaves counting to app and pool. One idea: all labels are bound
once to the endpoint and the version, so that a request pays for an increment and never for looking up labels.
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
    """The runtime's metrics, with the endpoint and the model's version as constant labels."""

    def __init__(self, endpoint: str, version: str) -> None:
        self._registry = CollectorRegistry()
        self._fixed = (endpoint, version)
        self._requests = self._counter("requests_total", "Requests to /invocations by status code", "code")
        self._by_code = {code: self._requests.labels(*self._fixed, str(code)) for code in _CODES}
        self.duration = Histogram(
            "knobless_runtime_request_duration_seconds",
            "Time from a request's headers to the model's answer, or to its error or deadline",
            ("endpoint", "version"),
            buckets=_BUCKETS_S,
            registry=self._registry,
        ).labels(*self._fixed)
        self.in_flight = self._gauge("requests_in_flight", "Requests to /invocations being handled")
        self.waiting = self._gauge("requests_waiting", "Requests that wait for a predictor")
        self.predictors = self._gauge("predictors_ready", "Predictor processes that can take a request or run one")
        self._restarts = self._counter("predictor_restarts_total", "Predictors replaced, by cause", "cause")
        self.non_finite = self._counter("non_finite_values_total", "NaN and infinite values that left as null").labels(
            *self._fixed
        )
        self.self_test_s = self._gauge("self_test_seconds", "Median time of a prediction on the input example, alone")
        self.load_s = self._gauge(
            "model_load_seconds", "Time from the start of the first predictor to its model loaded"
        )
        self._info = self._gauge_with("info", "Always 1; what runs here", "mlflow", "python")
        ProcessCollector(registry=self._registry)

    def count(self, code: int, seconds: float) -> None:
        """One request that ended with this code after this time."""
        bound = self._by_code.get(code)
        if bound is None:
            bound = self._by_code[code] = self._requests.labels(*self._fixed, str(code))
        bound.inc()
        if code in _OF_THE_MODEL:
            self.duration.observe(seconds)

    def restarted(self, cause: str) -> None:
        """One predictor had to be replaced: it was stuck, or it died."""
        self._restarts.labels(*self._fixed, cause).inc()

    def describe(self, mlflow: str, python: str) -> None:
        """The versions of the model's environment, once they are known."""
        self._info.labels(*self._fixed, mlflow, python).set(1)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        names = ("endpoint", "version", *labels)
        return Counter(f"knobless_runtime_{name}", about, names, registry=self._registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return self._gauge_with(name, about).labels(*self._fixed)

    def _gauge_with(self, name: str, about: str, *labels: str) -> Gauge:
        names = ("endpoint", "version", *labels)
        return Gauge(f"knobless_runtime_{name}", about, names, registry=self._registry)
