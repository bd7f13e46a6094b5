"""The controllers' own numbers, their health and what else Prometheus is to read: GET /metrics, /healthz, /targets.

Owns the names of the metrics and a small HTTP answer. Its one idea: health is about the loops' own pulse, not about
the API server's, so that an outage there restarts nothing.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from spec import names

PORT = 8407
Targets = Callable[[], list[dict[str, Any]]]
_REQUEST_S = 5.0


class Metrics:
    """One registry an instance, so that nothing is global."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        of_endpoint = ("namespace", "endpoint")

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(f"knobless_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(f"knobless_{name}", text, labels, registry=self.registry)

        self.leader = gauge("controllers_leader", "1 where this process may write.")
        self.failures = counter("controllers_failures", "Passes over an endpoint that failed.", ("loop",))
        self.desired = gauge("autoscaler_desired_replicas", "Replicas asked for.", of_endpoint)
        self.ready = gauge("autoscaler_ready_replicas", "Replicas ready.", of_endpoint)
        self.demand = gauge("autoscaler_demand", "Requests that should be in flight.", of_endpoint)
        self.unknown = gauge("autoscaler_unknown_seconds", "How long the load has been unknown.", of_endpoint)
        self.learner_age = gauge(
            "autoscaler_learner_age_seconds", "Since the limit of a replica was last looked at.", of_endpoint
        )
        self.decisions = counter("autoscaler_decisions", "Changes of replicas.", ("namespace", "endpoint", "reason"))
        self.prometheus = gauge("autoscaler_prometheus_up", "1 where Prometheus answered last.")
        self.signals = gauge("autoscaler_pods_with_signal", "Pods of which Prometheus told this last.", ("signal",))
        self.records_dropped = counter("autoscaler_records_dropped", "Lines that the log of decisions has lost.")
        self.samples = counter("autoscaler_samples", "Samples of an endpoint's load.", ("outcome",))

    def forget(self, namespace: str, endpoint: str) -> None:
        """An endpoint that is gone leaves no series behind."""
        for gauge in (self.desired, self.ready, self.demand, self.unknown, self.learner_age):
            gauge.remove_by_labels({"namespace": namespace, "endpoint": endpoint})
        self.decisions.remove_by_labels({"namespace": namespace, "endpoint": endpoint})


async def serve(
    registry: CollectorRegistry, healthy: Callable[[], bool], port: int = PORT, targets: Targets = list
) -> asyncio.Server:
    """Starts to listen; the caller closes the server."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
                # Of 10,000 endpoints it takes more than a second to write, for which no sample shall wait.
                writer.write(await asyncio.to_thread(_response, request, registry, healthy, targets))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            writer.close()

    return await asyncio.start_server(answer, "", port)


def _response(
    request: bytes, registry: CollectorRegistry, healthy: Callable[[], bool], targets: Targets = list
) -> bytes:
    path = request.split(b" ", 2)[1].split(b"?")[0] if request.count(b" ") >= 2 else b""
    if path == b"/metrics":
        return _http("200 OK", CONTENT_TYPE_LATEST, generate_latest(registry))
    if path == b"/healthz":
        ok = healthy()
        return _http("200 OK" if ok else "503 Service Unavailable", "text/plain", b"ok\n" if ok else b"stuck\n")
    if path == names.TARGETS_PATH.encode():
        return _http("200 OK", "application/json", json.dumps(targets()).encode())
    return _http("404 Not Found", "text/plain", b"/metrics, /healthz, /targets\n")


def _http(status: str, kind: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
    return head.encode() + body
