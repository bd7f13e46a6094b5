"""The control plane's own numbers, for /metrics. Traffic's numbers are HAProxy's."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """One registry an instance, so that nothing is global."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"knobless_gateway_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"knobless_gateway_{name}", text, labels, registry=self.registry)

        self.commands = counter("steps", "Steps sent to HAProxy, by outcome.", ("outcome",))
        self.resyncs = counter("resyncs", "Whole states read from HAProxy.")
        self.reloads = counter("reloads", "Reloads of HAProxy that a changed setting asked for.")
        self.failures = counter("failures", "Passes that ended early, by cause.", ("cause",))
        self.seconds = Histogram(
            "knobless_gateway_pass_seconds",
            "Time of a pass from snapshot to read-back.",
            buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
            registry=self.registry,
        )
        self.endpoints = gauge("endpoints", "Endpoints in the snapshot.")
        self.problems = gauge("problems", "Endpoint objects that are not in force as they stand.")
        self.key_problems = gauge("key_problems", "Entries of the keys' Secret that can't be used.")
        self.spares = gauge("spare_backends", "Back ends that no revision has.")
        self.applied = gauge("applied_timestamp_seconds", "When HAProxy last was as declared.")
        self.limit = gauge("limit", "Requests in flight that HAProxy grants.", ("endpoint", "revision"))
        self.ready = gauge("ready_servers", "Pods that HAProxy sends requests to.", ("endpoint", "revision"))
        self._counted: Mapping[tuple[str, str], tuple[int, int]] = {}

    def count(self, counted: Mapping[tuple[str, str], tuple[int, int]]) -> None:
        """Limit and pods by endpoint and revision. Only what differs is touched: of thousands, few change at once."""
        for labels in self._counted.keys() - counted.keys():
            self.limit.remove(*labels)
            self.ready.remove(*labels)
        for labels, (limit, ready) in counted.items():
            if self._counted.get(labels) != (limit, ready):
                self.limit.labels(*labels).set(limit)
                self.ready.labels(*labels).set(ready)
        self._counted = counted
