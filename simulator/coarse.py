"""Requests counted by bin: fast enough for a thousand simulated hours, close enough to choose a policy by.

Owns the coarse engine. Its one idea: requests admitted in one bin are a cohort whose completions are drawn at once, so
an hour costs the number of bins, whatever the number of requests. Simpler than the exact engine in two ways: replicas
share load evenly at once, and a queue at each replica counts as one before all of them, which is kind to policies that
have those.
"""

from __future__ import annotations

from collections import defaultdict, deque

from simulator.cohorts import InService
from simulator.fleet import Moved
from simulator.policy import NewPolicy
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.stage import Stage


def simulate_coarsely(scenario: Scenario, new_policy: NewPolicy, seed: int) -> Result:
    return _Run(Stage(scenario, new_policy, seed)).run()


class _Run:
    def __init__(self, stage: Stage) -> None:
        scenario = stage.scenario
        self._stage, self._scenario, self._meter = stage, scenario, stage.meter
        self._bin_s, self._per_s = stage.bin_s, round(1 / stage.bin_s)
        self._arrivals = scenario.load.counts(stage.arrivals_random, stage.bin_s).tolist()
        self._replica = scenario.replica
        self._in_service = InService(self._replica, stage.bin_s, stage.service_random)
        self._ready = stage.fleet.ready
        self._active = self._draining = 0
        self._queue: deque[list[int]] = deque()  # [bin of arrival, attempt, count]
        self._queued = 0
        self._again: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._objective_bins = scenario.objective_s * self._per_s
        self._sum_in_flight = self._sum_queued = 0
        self._set_rules()

    def _set_rules(self) -> None:
        """What the policy may change with a decision, and what follows from the replicas."""
        queue = self._stage.control.policy.queue
        self._slots = self._ready * self._stage.limit
        self._steady = not self._scenario.slow and self._replica.slowdown(self._most_at_one()) == 1.0
        self._bound = queue.bound(self._ready) if self._ready or queue.holds_at_zero else 0
        self._patience = None if queue.timeout_s is None else max(int(queue.timeout_s * self._per_s), 1)

    def _most_at_one(self) -> float:
        """Requests in flight that a replica may have until the rules are set again."""
        return max(self._stage.limit, self._active / self._ready if self._ready else 0.0)

    def run(self) -> Result:
        seconds, per_s = self._scenario.duration_s, self._per_s
        for second in range(seconds):
            for index in range(second * per_s, (second + 1) * per_s):
                self._bin(index)
            self._close(second)
        self._judge_waiting(seconds * per_s)
        return self._stage.result("coarse", self._active + self._draining + self._queued)

    def _bin(self, index: int) -> None:
        now_s = index * self._bin_s
        if self._stage.fleet.next_s <= now_s:
            self._move(self._stage.fleet.advance(now_s))
        slow = 1.0 if self._steady else self._slowdown(now_s)
        done = self._in_service.pass_time(1.0 / slow)
        if done:
            self._complete(done)
        if self._queued:
            self._admit_waiting(index, slow)
        self._take_in(index, self._arrivals[index], slow)
        self._sum_in_flight += self._active + self._draining
        self._sum_queued += self._queued

    def _slowdown(self, now_s: float, more: int = 0) -> float:
        load = (self._active + more) / self._ready if self._ready else 0.0
        return self._replica.slowdown(load) * self._scenario.slow_factor(now_s)

    def _complete(self, done: int) -> None:
        """A share of what completes was at replicas that are on their way out."""
        self._meter.completed += done
        if self._draining:
            share = done * self._draining / (self._active + self._draining)
            leaving = min(int(share + self._stage.random.random()), self._draining)
            leaving = max(leaving, done - self._active)
            self._draining -= leaving
            done -= leaving
        self._active -= done

    def _take_in(self, index: int, arrived: int, slow: float) -> None:
        again = self._again.pop(index, None) if self._again else None
        if again:
            self._arrive_mixed(index, [(0, arrived), *again], slow)
        elif not self._queued and arrived <= self._slots - self._active:  # most bins: nobody waits, all find room
            if arrived:
                self._meter.arrived += arrived
                self._admit(index, index, 0, arrived, slow)
        elif arrived:
            self._arrive(index, 0, arrived, self._room(arrived), slow)

    def _room(self, arrived: int) -> int:
        """How many of `arrived` are not refused."""
        if self._bound is None:
            return arrived
        free = max(self._slots - self._active, 0) + self._bound - self._queued
        return min(max(free, 0), arrived)

    def _arrive_mixed(self, index: int, parts: list[tuple[int, int]], slow: float) -> None:
        """First attempts and later ones come in any order, so each is refused in proportion."""
        total = sum(count for _, count in parts)
        room = self._room(total)
        for part in self._stage.random.permutation(len(parts)).tolist():
            attempt, count = parts[part]
            if count:
                share = count if room == total else int(count * room / total + self._stage.random.random())
                self._arrive(index, attempt, count, self._room(min(share, count)), slow)

    def _arrive(self, index: int, attempt: int, count: int, room: int, slow: float) -> None:
        self._meter.arrived += count
        if attempt:
            self._meter.retried += count
        if room < count:
            self._refuse(index, index, attempt, count - room)
        at_once = 0 if self._queued else min(room, max(self._slots - self._active, 0))
        if at_once:
            self._admit(index, index, attempt, at_once, slow)
        if room > at_once:
            self._queue.append([index, attempt, room - at_once])
            self._queued += room - at_once
            self._admit_waiting(index, slow)

    def _admit(self, index: int, since: int, attempt: int, count: int, slow: float) -> None:
        if not self._steady:
            slow = max(slow, self._slowdown(index * self._bin_s, count))
        done, late = self._in_service.admit(count, (self._objective_bins - index + since) / slow)
        self._active += count - done
        self._meter.completed += done
        if late:
            self._meter.be_late(late, attempt, since * self._bin_s)

    def _admit_waiting(self, index: int, slow: float) -> None:
        """First come, first served; what has waited too long leaves first. A slot may turn over within the bin."""
        queue = self._queue
        while self._patience is not None and queue and index - queue[0][0] > self._patience:
            since, attempt, count = queue.popleft()
            self._queued -= count
            self._refuse(index, since, attempt, count)
        while queue and (free := self._slots - self._active) > 0:
            head = queue[0]
            taken = min(free, head[2])
            self._admit(index, head[0], head[1], taken, slow)
            self._queued -= taken
            head[2] -= taken
            if not head[2]:
                queue.popleft()

    def _refuse(self, index: int, since: int, attempt: int, count: int) -> None:
        self._meter.refuse(count, attempt, since * self._bin_s)
        clients = self._scenario.clients
        if attempt + 1 < clients.attempts:
            again = index + max(round(clients.delay_s * self._per_s), 1)
            self._again[again].append((attempt + 1, count))

    def _move(self, moved: Moved) -> None:
        """Replicas that go take their share of what is in flight along, and finish it."""
        if moved.went and self._ready:
            leaving = round(self._active * min(len(moved.went) / self._ready, 1.0))
            self._active -= leaving
            self._draining += leaving
        self._ready = self._stage.fleet.ready
        self._set_rules()

    def _close(self, second: int) -> None:
        slow = 1.0 if self._steady else self._slowdown(second + 1.0)
        meter, in_flight = self._meter, self._active + self._draining
        meter.in_flight_s, meter.queued_s = self._sum_in_flight * self._bin_s, self._sum_queued * self._bin_s
        meter.service_s = meter.completed * self._scenario.service.mean_s * slow
        self._sum_in_flight = self._sum_queued = 0
        self._move(self._stage.close(second, in_flight, self._queued, terminating=1 if self._draining else 0))

    def _judge_waiting(self, end: int) -> None:
        """What still waits at the end and is late already, is late."""
        late = [(since, attempt, n) for since, attempt, n in self._queue if end - since > self._objective_bins]
        for since, attempt, count in late:
            self._meter.be_late(count, attempt, since * self._bin_s)
        self._meter.settle()
