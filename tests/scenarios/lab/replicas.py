"""Replicas with a knee behind one queue, request by request, on a fake clock.

A replica works on `knee` requests at once and holds the others; so its throughput saturates at knee / service time,
and beyond the knee latency grows with what it holds. The balancer gives the next request to the pod that holds the
fewest, by weight, and waits where all are at their limits.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from controllers.autoscaler.load import Counters


@dataclass
class Pod:
    limit: int
    weight: int = 1
    held: int = 0
    sent: int = 0
    waiting: deque[float] = field(default_factory=deque)
    working: int = 0
    leaving: bool = False


class Fleet:
    """`slow(t)` multiplies the service time of a request that starts at t: a dependency of the model's."""

    def __init__(
        self,
        knee: int,
        service_s: float,
        rate_rps: Callable[[float], float],
        *,
        seed: int = 1,
        queue_max: int = 200,
        timeout_s: float = 5.0,
        slow: Callable[[float], float] = lambda t: 1.0,
    ) -> None:
        self.knee, self.service_s, self.rate_rps, self.slow = knee, service_s, rate_rps, slow
        self.queue_max, self.timeout_s = queue_max, timeout_s
        self.pods: dict[str, Pod] = {}
        self.arrived = self.refused = self.late = self.served = 0
        self.now_s = 0.0
        self._random = random.Random(seed)
        self._queue: deque[float] = deque()
        self._events: list[tuple[float, int, str, float]] = []
        self._number = 0
        self._next_s = 0.0

    def advance(self, to_s: float) -> None:
        while True:
            at_s = min(self._next_s, self._events[0][0] if self._events else to_s)
            if at_s >= to_s:
                break
            self.now_s = at_s
            if self._events and self._events[0][0] <= self._next_s:
                _, _, name, came_s = heapq.heappop(self._events)
                self._finish(name, came_s)
            else:
                self._arrive()
        self.now_s = to_s
        self.pods = {name: pod for name, pod in self.pods.items() if not (pod.leaving and pod.held == 0)}

    def _arrive(self) -> None:
        rate = self.rate_rps(self.now_s)
        self._next_s = self.now_s + (self._random.expovariate(rate) if rate > 0 else 0.1)
        if rate <= 0:
            return
        self.arrived += 1
        if len(self._queue) >= self.queue_max:
            self.refused += 1
            return
        self._queue.append(self.now_s)
        self._send()

    def _send(self) -> None:
        while self._queue:
            if self.now_s - self._queue[0] > self.timeout_s:
                self._queue.popleft()
                self.refused += 1
                continue
            free = [(pod.held / pod.weight, name) for name, pod in self.pods.items() if self._takes(pod)]
            if not free:
                return
            name = min(free)[1]
            pod = self.pods[name]
            pod.held += 1
            pod.sent += 1
            pod.waiting.append(self._queue.popleft())
            self._work(name, pod)

    @staticmethod
    def _takes(pod: Pod) -> bool:
        return not pod.leaving and pod.held < pod.limit

    def _work(self, name: str, pod: Pod) -> None:
        while pod.waiting and pod.working < self.knee:
            pod.working += 1
            # Gamma with shape 4: a spread of half the mean
            takes_s = self._random.gammavariate(4, self.service_s / 4) * self.slow(self.now_s)
            self._number += 1
            heapq.heappush(self._events, (self.now_s + takes_s, self._number, name, pod.waiting.popleft()))

    def _finish(self, name: str, came_s: float) -> None:
        pod = self.pods[name]
        pod.held -= 1
        pod.working -= 1
        self.served += 1
        self._work(name, pod)
        self._send()

    def counters(self) -> Counters:
        servers = {name: (pod.held, pod.sent) for name, pod in self.pods.items()}
        return Counters(len(self._queue), self.arrived, servers)
