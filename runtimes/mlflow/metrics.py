"""What the MLflow runtime counts besides what the interface counts of each request.

Owns the names of what predictors and their line tell; leaves counting to the pool.
"""

from __future__ import annotations

from runtimes.interface import metrics as interface


class Metrics:
    """Predictors, those that wait for one, and the model's own times."""

    def __init__(self, metrics: interface.Metrics) -> None:
        self._metrics = metrics
        self.waiting = metrics.gauge("requests_waiting", "Requests that wait for a predictor")
        self.predictors = metrics.gauge("predictors_ready", "Predictor processes that can take a request or run one")
        self._restarts = metrics.counters("predictor_restarts_total", "Predictors replaced, by cause", "cause")
        self.shared = metrics.histogram(
            "call_requests", "Requests that one call of the model answered", (1, 2, 4, 8, 16, 32, 64, 128, 256)
        )
        self.self_test_s = metrics.gauge("self_test_seconds", "Median time of a prediction on the input example, alone")
        self.load_s = metrics.gauge(
            "model_load_seconds", "Time from the start of the first predictor to its model loaded"
        )

    def restarted(self, cause: str) -> None:
        """One predictor had to be replaced: it was stuck, or it died."""
        self._restarts.inc(cause)

    def describe(self, mlflow: str, python: str) -> None:
        """The versions of the model's environment, once they are known."""
        self._metrics.info(mlflow=mlflow, python=python)
