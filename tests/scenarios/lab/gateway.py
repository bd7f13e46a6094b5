"""A gateway in small: routes by the endpoint's status, reports as the real one, and queues requests for real.

Requests are single events: a slot in a ready pod, a place in the bounded queue with a deadline, or a refusal.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from controllers.autoscaler.load import Counters
from controllers.gateway.observed import Probe
from controllers.gateway.snapshot import probed, spread
from controllers.kube import MODEL_ENDPOINTS, Object
from controllers.kube.fields import mapping
from tests.scenarios.lab.cluster import Cluster

_STEP_S = 0.1
_ROUNDING_S = 1e-6


@dataclass
class Pod:
    """`free_s`: when each of the requests that it works on at once is done; others wait inside."""

    free_s: list[float]
    limit: int = 1
    weight: int = 1
    held: int = 0
    sent: int = 0


class Gateway:
    """`rate_rps(t)` is the offered load, `service_s` what a request takes, `silent` makes its statistics fail.

    `knee` is how many requests a pod works on at once; None: as many as the endpoint's first limit says.
    """

    def __init__(
        self,
        cluster: Cluster,
        endpoint: str,
        rate_rps: Callable[[float], float],
        service_s: float,
        knee: int | None = None,
    ) -> None:
        self.knee = knee
        self._cluster, self._endpoint, self.rate_rps, self.service_s = cluster, endpoint, rate_rps, service_s
        self.routed: str | None = None
        self.applying = True
        self.silent = False
        self.refused = self.served = self.lost = 0
        self._backends: dict[str, str] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._running: list[tuple[float, str, str]] = []
        self._waiting: deque[float] = deque()
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
        obj = self._cluster.endpoint(self._endpoint)
        self._fit_pods(obj)
        for tick in range(int(1 / _STEP_S)):
            self._tick(start_s + tick * _STEP_S, obj["spec"]["routing"])

    def _fit_pods(self, obj: Object) -> None:
        """The servers of each back end, with their limits. What leaves finishes what it holds."""
        spec = obj["spec"]
        for revision in self._backends:
            held = self._pods.setdefault(revision, {})
            ready = [p["metadata"]["name"] for p in self._cluster.pods(revision) if p["status"].get("ready")]
            said = mapping(obj, "status", "autoscaler", "revisions", revision)
            probe = Probe(**({"weight": 1} | said["probe"])) if "probe" in said else None
            limit, most = int(said.get("limit") or spec["runtime"]["initialLimit"]), spec["concurrency"]["max"]
            shares = probed(spread(limit, most, ready), probe, most)
            for name in [name for name, pod in held.items() if name not in shares and not pod.held]:
                del held[name]
            for pod in held.values():
                pod.limit = 0
            for name, share in shares.items():
                pod = held.setdefault(name, Pod([0.0] * (self.knee or spec["runtime"]["initialLimit"])))
                pod.limit, pod.weight = share, probe.weight if probe is not None and probe.pod == name else 1

    def _tick(self, now_s: float, routing: dict[str, int]) -> None:
        while self._running and self._running[0][0] <= now_s + _ROUNDING_S:
            _, revision, name = heapq.heappop(self._running)
            self._pods[revision][name].held -= 1
            self.served += 1
        timeout_s = routing["queueTimeoutMs"] / 1000
        while self._waiting and now_s - self._waiting[0] > timeout_s:
            self._waiting.popleft()
            self.refused += 1
        while self._waiting and self._send(now_s):
            self._waiting.popleft()
        self._due += self.rate_rps(now_s) * _STEP_S
        while self._due >= 1:
            self._due -= 1
            self._arrive(now_s, routing["queueMax"])

    def _arrive(self, now_s: float, queue_max: int) -> None:
        if self.routed is None or not any(pod.limit for pod in self._pods.get(self.routed, {}).values()):
            self.lost += 1
            return
        backend = self._backends[self.routed]
        self._arrived[backend] = self._arrived.get(backend, 0) + 1
        if not self._waiting and self._send(now_s):
            return
        if len(self._waiting) < queue_max:
            self._waiting.append(now_s)
        else:
            self.refused += 1

    def _send(self, now_s: float) -> bool:
        """To the pod that holds the fewest by its weight; False where all are full."""
        pods = self._pods.get(self.routed or "", {})
        free = [(pod.held / pod.weight, name) for name, pod in pods.items() if pod.held < pod.limit]
        if not free or self.routed is None:
            return False
        name = min(free)[1]
        pod = pods[name]
        end_s = max(now_s, pod.free_s[0]) + self.service_s
        heapq.heapreplace(pod.free_s, end_s)
        heapq.heappush(self._running, (end_s, self.routed, name))
        pod.held += 1
        pod.sent += 1
        return True

    async def statistics(self, host: str, port: int, deadline_s: float) -> dict[str, Counters]:
        """What `show stat` would say."""
        if self.silent:
            raise TimeoutError
        return {
            backend: Counters(
                queued=len(self._waiting) if revision == self.routed else 0,
                arrived=self._arrived.get(backend, 0),
                servers={name: (pod.held, pod.sent) for name, pod in self._pods.get(revision, {}).items()},
            )
            for revision, backend in self._backends.items()
        }

    def forget(self) -> None:
        """A gateway that begins anew: every count starts at nothing."""
        self._arrived.clear()
        for pods in self._pods.values():
            for pod in pods.values():
                pod.sent = 0
