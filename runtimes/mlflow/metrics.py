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
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
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
            "Time from a request's headers to its answer",
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
