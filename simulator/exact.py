"""Every request and every replica by itself: as a balancer and its pods would do it.

Owns the exact engine. Its one idea: the next event is the earliest of a heap, and an event that was overtaken by a
change at its replica carries an old version and is passed over. About 10 us a request; the coarse engine is for more.
"""

from __future__ import annotations

import heapq
from collections import deque

import numpy as np

from simulator.fleet import Moved
from simulator.policy import NewPolicy, Waits
from simulator.replica import Replica, Request
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.stage import Stage


def simulate_exactly(scenario: Scenario, new_policy: NewPolicy, seed: int) -> Result:
    return _Run(Stage(scenario, new_policy, seed)).run()


class _Works:
    """Service times, drawn ahead."""

    def __init__(self, stage: Stage) -> None:
        self._service, self._random = stage.scenario.service, stage.service_random
        self._left: list[float] = []

    def draw(self) -> float:
        if self._service.cv <= 0:
            return self._service.mean_s
        if not self._left:
            shape = 1 / self._service.cv**2
            self._left = self._random.gamma(shape, self._service.mean_s / shape, 4096).tolist()
        return self._left.pop()


class _Run:
    def __init__(self, stage: Stage) -> None:
        scenario = stage.scenario
        self._stage, self._scenario, self._meter = stage, scenario, stage.meter
        self._works = _Works(stage)
        self._arrivals = deque(scenario.load.times(stage.arrivals_random, stage.bin_s).tolist())
        self._again: list[tuple[float, int]] = []  # a heap of (when, which attempt)
        self._replicas: dict[int, Replica] = {}
        self._free: list[tuple[float, int, int, int]] = []  # a heap of (by weight, turn, replica, in flight)
        self._ends: list[tuple[float, int, int]] = []  # a heap of (when, replica, version)
        self._gone: dict[int, Replica] = {}
        self._queue: deque[Request] = deque()
        self._in_flight = self._queued = self._turn = 0
        self._at_s, self._factor = 0.0, scenario.slow_factor(0.0)
        self._edges = deque(sorted(edge for slow in scenario.slow for edge in (slow.span.from_s, slow.span.to_s)))
        self._rules, self._limit = stage.control.policy.queue, stage.limit
        self._move(Moved(came=list(range(scenario.initial))), 0.0)

    def run(self) -> Result:
        for second in range(self._scenario.duration_s):
            while (event := self._next()) and event[0] < second + 1:
                self._happen(*event)
            self._close(second)
        self._judge_unfinished(float(self._scenario.duration_s))
        return self._stage.result("exact", self._in_flight + self._queued)

    def _next(self) -> tuple[float, int]:
        """When, and which kind: 0 completion, 1 arrival, 2 retry, 3 replicas, 4 dependency. The end is infinite."""
        while self._ends and self._is_outdated(self._ends[0]):
            heapq.heappop(self._ends)
        kinds = (
            self._ends[0][0] if self._ends else np.inf,
            self._arrivals[0] if self._arrivals else np.inf,
            self._again[0][0] if self._again else np.inf,
            self._stage.fleet.next_s,
            self._edges[0] if self._edges else np.inf,
        )
        first = min(kinds)
        return first, kinds.index(first)

    def _happen(self, now_s: float, kind: int) -> None:
        self._pass(now_s)
        if kind == 0:
            self._complete(now_s)
        elif kind == 1:
            self._arrive(self._arrivals.popleft(), 0)
        elif kind == 2:
            self._arrive(*heapq.heappop(self._again))
        elif kind == 3:
            self._move(self._stage.fleet.advance(now_s), now_s)
        else:
            self._repace(self._edges.popleft())

    def _pass(self, now_s: float) -> None:
        elapsed_s = now_s - self._at_s
        self._meter.in_flight_s += self._in_flight * elapsed_s
        self._meter.queued_s += self._queued * elapsed_s
        self._at_s = now_s

    def _is_outdated(self, end: tuple[float, int, int]) -> bool:
        replica = self._replicas.get(end[1]) or self._gone.get(end[1])
        return replica is None or replica.version != end[2]

    def _arrive(self, now_s: float, attempt: int) -> None:
        self._meter.arrived += 1
        self._meter.retried += 1 if attempt else 0
        request = Request(now_s, attempt, self._works.draw())
        if self._rules.waits is Waits.REPLICA:
            self._arrive_at_one(request, now_s)
            return
        self._give_up(self._queue, now_s)
        replica = None if self._queue else self._freest()
        if replica is not None:
            self._admit(replica, request, now_s)
        elif self._has_room(self._queue, self._bound()):
            self._wait(self._queue, request)
        else:
            self._refuse(request, now_s)

    def _arrive_at_one(self, request: Request, now_s: float) -> None:
        """At a replica drawn at random, as a Service does it; while none is ready, before all of them."""
        serving = self._stage.fleet.serving
        if not serving:
            holds = self._rules.holds_at_zero and self._has_room(self._queue, self._bound())
            self._wait(self._queue, request) if holds else self._refuse(request, now_s)
            return
        replica = self._replicas[serving[int(self._stage.random.random() * len(serving))]]
        self._give_up(replica.waiting, now_s)
        if replica.active < replica.limit and not replica.waiting:
            self._admit(replica, request, now_s)
        elif self._has_room(replica.waiting, None if self._rules.total is None else self._rules.per_replica):
            self._wait(replica.waiting, request)
        else:
            self._refuse(request, now_s)

    def _bound(self) -> int | None:
        ready = self._stage.fleet.ready
        return self._rules.bound(ready) if ready or self._rules.holds_at_zero else 0

    @staticmethod
    def _has_room(queue: deque[Request], bound: int | None) -> bool:
        return bound is None or len(queue) < bound

    def _wait(self, queue: deque[Request], request: Request) -> None:
        queue.append(request)
        self._queued += 1

    def _freest(self) -> Replica | None:
        """Of those with room the one with the fewest in flight by weight; among equals, that waited longest."""
        while self._free:
            _, _, number, active = self._free[0]
            replica = self._replicas.get(number)
            if replica is not None and replica.active == active < replica.limit:
                return replica
            heapq.heappop(self._free)
        return None

    def _offer(self, replica: Replica) -> None:
        if replica.active < replica.limit:
            self._turn += 1
            by_weight = replica.active / replica.weight
            heapq.heappush(self._free, (by_weight, self._turn, replica.number, replica.active))

    def _admit(self, replica: Replica, request: Request, now_s: float) -> None:
        replica.admit(request, now_s, self._factor)
        self._in_flight += 1
        self._changed(replica)

    def _changed(self, replica: Replica) -> None:
        if replica.active and replica.version != replica.told:
            replica.told = replica.version
            heapq.heappush(self._ends, (replica.next_s, replica.number, replica.version))
        if replica.serves:
            self._offer(replica)

    def _complete(self, now_s: float) -> None:
        _, number, _ = heapq.heappop(self._ends)
        replica = self._replicas.get(number) or self._gone[number]
        request = replica.complete(now_s, self._factor)
        self._in_flight -= 1
        self._meter.completed += 1
        self._meter.service_s += now_s - request.admitted_s
        if now_s - request.since_s > self._scenario.objective_s:
            self._meter.be_late(1, request.attempt, request.since_s)
        self._changed(replica)
        self._fill(replica, now_s)

    def _fill(self, replica: Replica, now_s: float) -> None:
        """A freed replica takes what waits at it, then what waits before all. One that leaves takes only the first."""
        self._give_up(replica.waiting, now_s)
        while replica.waiting and replica.active < replica.limit:
            self._queued -= 1
            self._admit(replica, replica.waiting.popleft(), now_s)
        if replica.serves:
            self._drain(now_s)
        elif not replica.active and not replica.waiting:
            del self._gone[replica.number]

    def _drain(self, now_s: float) -> None:
        """What waits before all replicas goes to the freest; where requests wait at replicas it only waited for one."""
        self._give_up(self._queue, now_s)
        while self._queue and (replica := self._freest()) is not None:
            self._queued -= 1
            self._admit(replica, self._queue.popleft(), now_s)

    def _give_up(self, queue: deque[Request], now_s: float) -> None:
        timeout_s = self._rules.timeout_s
        while timeout_s is not None and queue and now_s - queue[0].since_s > timeout_s:
            self._queued -= 1
            self._refuse(queue.popleft(), now_s)

    def _repace(self, now_s: float) -> None:
        self._factor = self._scenario.slow_factor(now_s)
        for replica in (*self._replicas.values(), *self._gone.values()):
            replica.repace(now_s, self._factor)
            self._changed(replica)

    def _move(self, moved: Moved, now_s: float) -> None:
        for number in moved.came:
            replica = self._replicas[number] = Replica(number, self._scenario.replica, self._limit)
            self._offer(replica)
        for number in moved.went:
            replica = self._replicas.pop(number)
            replica.serves = False
            if replica.active or replica.waiting:
                self._gone[number] = replica
        self._drain(now_s)

    def _close(self, second: int) -> None:
        now_s = second + 1.0
        self._pass(now_s)
        for queue in (self._queue, *(replica.waiting for replica in self._replicas.values())):
            self._give_up(queue, now_s)
        pods = {number: (replica.active, replica.sent) for number, replica in self._replicas.items()}
        moved = self._stage.close(second, self._in_flight, self._queued, len(self._gone), pods)
        self._obey()
        self._move(moved, now_s)

    def _obey(self) -> None:
        """What the policy says of queues and limits from now on."""
        policy = self._stage.control.policy
        self._rules, self._limit, probe = policy.queue, self._stage.limit, policy.probe
        for replica in self._replicas.values():
            mine = probe if probe is not None and probe.replica == replica.number else None
            said = (mine.limit, mine.weight) if mine else (self._limit, 1)
            if said != (replica.limit, replica.weight):
                replica.limit, replica.weight = said
                self._offer(replica)

    def _judge_unfinished(self, end_s: float) -> None:
        """What is still here at the end and late already, is late."""
        replicas = (*self._replicas.values(), *self._gone.values())
        waiting = [*self._queue, *(request for replica in replicas for request in replica.waiting)]
        for request in (*waiting, *(request for replica in replicas for request in replica.requests)):
            if end_s - request.since_s > self._scenario.objective_s:
                self._meter.be_late(1, request.attempt, request.since_s)
        self._meter.settle()

    def _refuse(self, request: Request, now_s: float) -> None:
        self._meter.refuse(1, request.attempt, request.since_s)
        if request.attempt + 1 < self._scenario.clients.attempts:
            heapq.heappush(self._again, (now_s + self._scenario.clients.delay_s, request.attempt + 1))
