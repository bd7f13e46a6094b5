"""A gateway in small: routes by the endpoint's status, reports as the real one, and queues requests for real.

Requests are single events: a slot in a ready pod, a place in the bounded queue with a deadline, or a refusal.
"""

import heapq
from collections import deque
from collections.abc import Callable

from controllers.autoscaler.load import Counters
from controllers.kube import MODEL_ENDPOINTS
from controllers.kube.fields import mapping
from tests.scenarios.lab.cluster import Cluster

_STEP_S = 0.1


class Gateway:
    """`rate_rps(t)` is the offered load, `service_s` what a request takes, `silent` makes its statistics fail."""

    def __init__(self, cluster: Cluster, endpoint: str, rate_rps: Callable[[float], float], service_s: float) -> None:
        self._cluster, self._endpoint, self.rate_rps, self.service_s = cluster, endpoint, rate_rps, service_s
        self.routed: str | None = None
        self.applying = True
        self.silent = False
        self.refused = self.served = self.lost = 0
        self._backends: dict[str, str] = {}
        self._running: list[tuple[float, str]] = []
        self._waiting: deque[float] = deque()
        self._sent: dict[str, int] = {}
        self._arrived: dict[str, int] = {}
        self._due = 0.0

    async def route(self) -> None:
        """Flips to the wanted revision once it has a ready pod, and reports what is in force."""
        obj = self._cluster.endpoint(self._endpoint)
        wanted = mapping(obj, "status").get("trafficRevision")
        if not self.applying or self._cluster.down:
            return
        if wanted and self._cluster.ready(wanted):
            self.routed = wanted
            self._backends.setdefault(wanted, f"b{len(self._backends):05}")
        said = {"generation": obj["metadata"]["generation"], "backends": dict(self._backends)}
        said |= {"trafficRevision": self.routed} if self.routed else {}
        if mapping(obj, "status", "gateway") != said:
            namespace = obj["metadata"]["namespace"]
            body = {"status": {"gateway": said}}
            await self._cluster.apply_status(MODEL_ENDPOINTS, namespace, self._endpoint, "knobless-gateway", body)

    def serve(self, start_s: float) -> None:
        """One second of traffic from `start_s`."""
        spec = self._cluster.endpoint(self._endpoint)["spec"]
        for tick in range(int(1 / _STEP_S)):
            self._tick(start_s + tick * _STEP_S, spec)

    def _tick(self, now_s: float, spec: dict[str, dict[str, int]]) -> None:
        while self._running and self._running[0][0] <= now_s:
            heapq.heappop(self._running)
            self.served += 1
        timeout_s = spec["routing"]["queueTimeoutMs"] / 1000
        while self._waiting and now_s - self._waiting[0] > timeout_s:
            self._waiting.popleft()
            self.refused += 1
        slots = self._slots(spec)
        while self._waiting and self._in_flight() < slots:
            self._waiting.popleft()
            self._send(now_s)
        self._due += self.rate_rps(now_s) * _STEP_S
        while self._due >= 1:
            self._due -= 1
            self._arrive(now_s, slots, spec["routing"]["queueMax"])

    def _slots(self, spec: dict[str, dict[str, int]]) -> int:
        if self.routed is None:
            return 0
        return min(self._cluster.ready(self.routed) * spec["runtime"]["initialLimit"], spec["concurrency"]["max"])

    def _arrive(self, now_s: float, slots: int, queue_max: int) -> None:
        if self.routed is None or slots == 0:
            self.lost += 1
            return
        backend = self._backends[self.routed]
        self._arrived[backend] = self._arrived.get(backend, 0) + 1
        if not self._waiting and self._in_flight() < slots:
            self._send(now_s)
        elif len(self._waiting) < queue_max:
            self._waiting.append(now_s)
        else:
            self.refused += 1

    def _in_flight(self) -> int:
        return sum(revision == self.routed for _, revision in self._running)

    def _send(self, now_s: float) -> None:
        assert self.routed is not None
        heapq.heappush(self._running, (now_s + self.service_s, self.routed))
        backend = self._backends[self.routed]
        self._sent[backend] = self._sent.get(backend, 0) + 1

    async def statistics(self, host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        """What `show stat` would say."""
        if self.silent:
            raise TimeoutError
        return {
            backend: Counters(
                queued=len(self._waiting) if revision == self.routed else 0,
                arrived=self._arrived.get(backend, 0),
                servers={"pods": (self._held_by(revision), self._sent.get(backend, 0))},
            )
            for revision, backend in self._backends.items()
        }

    def forget(self) -> None:
        """A gateway that begins anew: every count starts at nothing."""
        self._arrived.clear()
        self._sent.clear()

    def _held_by(self, revision: str) -> int:
        return sum(name == revision for _, name in self._running)
