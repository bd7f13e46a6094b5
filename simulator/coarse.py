"""Requests counted by bin: fast enough for a thousand simulated hours, close enough to choose a policy by.

Owns the coarse engine. Its one idea: requests admitted in one bin are a cohort whose completions are drawn at once and
laid out in *virtual* time, which passes slower while replicas are slow; so an hour costs the number of bins, whatever
the number of requests. Simpler than the exact engine in two ways: replicas share load evenly at once, and a queue at
each replica counts as one before all of them, which is kind to policies that have those.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque

import numpy as np

from simulator.control import Control
from simulator.fleet import Fleet, Moved
from simulator.policy import NewPolicy, Sample
from simulator.result import Result, Series, Tally, result_of
from simulator.scenario import Scenario

_BINS_S = (0.25, 0.2, 0.1, 0.05, 0.025, 0.02, 0.01)
_BINS_A_SERVICE = 4
_POOL = 1 << 16
_FEW = 6  # requests drawn one by one; more, by array


def bin_s_for(scenario: Scenario) -> float:
    """A quarter of a mean service time, between 0.01 and 0.25 s: 0.2 s -> 0.05."""
    return next((b for b in _BINS_S if b * _BINS_A_SERVICE <= scenario.service.mean_s), _BINS_S[-1])


def simulate_coarsely(scenario: Scenario, new_policy: NewPolicy, seed: int) -> Result:
    return _Run(scenario, new_policy, seed).run()


class _Service:
    """Requests in service: when they complete, in bins of virtual time.

    A request that arrives evenly within its bin and takes `s` bins completes floor(s + U) bins on, which is `s` in
    the mean, U in [0, 1).
    """

    def __init__(self, scenario: Scenario, bin_s: float, random: np.random.Generator) -> None:
        service = scenario.service
        if service.cv > 0:
            shape = 1 / service.cv**2
            taken_s = random.gamma(shape, service.mean_s / shape, _POOL)
        else:
            taken_s = np.full(_POOL, service.mean_s)
        self._draws = taken_s / bin_s + random.random(_POOL)
        self.longest = float(self._draws.max())
        self._span = int(self.longest) + 2
        self._few = self._draws.tolist()
        self._taken = 0
        self._ahead = np.zeros(self._span * 16 + 64, dtype=np.int64)
        self._at, self._beyond = 0, 0.0

    def pass_time(self, bins: float) -> int:
        """Completions while `bins` of virtual time pass, at most one."""
        if bins != 1.0:
            self._beyond += bins
            if self._beyond < 1.0:
                return 0
            self._beyond -= 1.0
        self._at += 1
        if self._at + self._span >= len(self._ahead):
            rest = self._ahead[self._at :].copy()
            self._ahead[:] = 0
            self._ahead[: len(rest)] = rest
            self._at = 0
        return int(self._ahead[self._at])

    def admit(self, count: int, late_after_bins: float) -> tuple[int, int]:
        """(done within the bin already, late ones): `late_after_bins` in virtual bins of service."""
        begin = self._taken
        if begin + count > _POOL:
            begin = 0
        self._taken = begin + count
        if count > _POOL:
            return self._admit_parts(count, late_after_bins)
        if count <= _FEW:
            return self._admit_few(self._few[begin : begin + count], late_after_bins + 0.5)
        draws = self._draws[begin : begin + count]
        done = np.bincount((draws + self._beyond).astype(np.int64))
        self._ahead[self._at + 1 : self._at + len(done)] += done[1:]
        is_late = late_after_bins + 0.5 < self.longest
        return int(done[0]), int(np.count_nonzero(draws > late_after_bins + 0.5)) if is_late else 0

    def _admit_few(self, draws: list[float], late_after: float) -> tuple[int, int]:
        at_once = late = 0
        for draw in draws:
            bins = int(draw + self._beyond)
            if bins:
                self._ahead[self._at + bins] += 1
            else:
                at_once += 1
            if draw > late_after:
                late += 1
        return at_once, late

    def _admit_parts(self, count: int, late_after_bins: float) -> tuple[int, int]:
        at_once = late = 0
        for part in [_POOL] * (count // _POOL) + [count % _POOL]:
            more = self.admit(part, late_after_bins)
            at_once, late = at_once + more[0], late + more[1]
        return at_once, late


class _Run:
    def __init__(self, scenario: Scenario, new_policy: NewPolicy, seed: int) -> None:
        streams = [np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(5)]
        self._scenario, self._seed = scenario, seed
        self._bin_s = bin_s_for(scenario)
        self._per_s = round(1 / self._bin_s)
        self._arrivals = scenario.load.counts(streams[0], self._bin_s).tolist()
        self._fleet = Fleet(scenario.start_up, scenario.initial, scenario.rollouts_s, streams[1])
        self._service = _Service(scenario, self._bin_s, streams[2])
        self._control = Control(scenario, new_policy, streams[3])
        self._rounding = streams[4]
        self._ready = self._fleet.ready
        self._active = self._draining = 0
        self._queue: deque[list[int]] = deque()  # [bin of arrival, attempt, count]
        self._queued = 0
        self._again: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._tally, self._series = Tally(), Series()
        self._warm_bin = math.ceil(scenario.warm_up_s) * self._per_s
        self._steady = scenario.service.knee is None and not scenario.slow
        self._set_rules()
        self._clear()

    def _set_rules(self) -> None:
        """What the policy may change with a decision, and what follows from the replicas."""
        queue, limit = self._control.policy.queue, self._control.policy.limit
        self._slots = self._ready * (self._scenario.slots if limit is None else max(limit, 1))
        bound = queue.bound(self._ready)
        self._bound = bound if self._ready or queue.holds_at_zero else 0
        self._patience = None if queue.timeout_s is None else max(int(queue.timeout_s * self._per_s), 1)

    def _clear(self) -> None:
        self._arrived = self._retried = self._refused = self._completed = self._late = self._refused_first = 0
        self._sum_in_flight = self._sum_queued = 0

    def run(self) -> Result:
        scenario = self._scenario
        for second in range(scenario.duration_s):
            for index in range(second * self._per_s, (second + 1) * self._per_s):
                self._bin(index)
            self._close(second)
        unfinished = self._active + self._draining + self._queued
        self._judge_waiting(scenario.duration_s * self._per_s)
        name = self._control.policy.name
        return result_of(name, self._seed, "coarse", self._tally, unfinished, self._series, scenario.warm_up_s)

    def _bin(self, index: int) -> None:
        now_s = index * self._bin_s
        if self._fleet.next_s <= now_s:
            self._move(self._fleet.advance(now_s))
        slow = 1.0 if self._steady else self._slowdown(now_s)
        done = self._service.pass_time(1.0 / slow)
        if done:
            self._complete(done)
        if self._queued:
            self._admit_waiting(index, slow)
        self._take_in(index, self._arrivals[index], slow)
        self._sum_in_flight += self._active + self._draining
        self._sum_queued += self._queued

    def _take_in(self, index: int, arrived: int, slow: float) -> None:
        again = self._again.pop(index, None) if self._again else None
        if again:
            self._arrive_mixed(index, [(0, arrived), *again], slow)
        elif not self._queued and arrived <= self._slots - self._active:  # most bins: nobody waits, all find room
            if arrived:
                self._arrived += arrived
                self._admit(index, index, 0, arrived, slow)
        else:
            self._arrive(index, 0, arrived, self._room(arrived), slow)

    def _slowdown(self, now_s: float) -> float:
        load = self._active / self._ready if self._ready else 0.0
        return self._scenario.service.slowdown(load) * self._scenario.slow_factor(now_s)

    def _complete(self, done: int) -> None:
        """A share of what completes was at replicas that are on their way out."""
        self._completed += done
        if self._draining:
            share = done * self._draining / (self._active + self._draining)
            leaving = min(int(share + self._rounding.random()), self._draining)
            leaving = max(leaving, done - self._active)
            self._draining -= leaving
            done -= leaving
        self._active -= done

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
        for attempt, count in parts:
            if count:
                share = count if room == total else min(int(count * room / total + self._rounding.random()), count)
                self._arrive(index, attempt, count, min(share, self._room(count)), slow)

    def _arrive(self, index: int, attempt: int, count: int, room: int, slow: float) -> None:
        self._arrived += count
        if attempt:
            self._retried += count
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
        left = (self._scenario.objective_s - (index - since) * self._bin_s) / (self._bin_s * slow)
        done, late = self._service.admit(count, left)
        self._active += count - done
        self._completed += done
        if late and not attempt and since >= self._warm_bin:
            self._late += late

    def _admit_waiting(self, index: int, slow: float) -> None:
        """First come, first served; what has waited too long leaves first. A slot may turn over within the bin."""
        queue = self._queue
        if self._patience is not None:
            while queue and index - queue[0][0] > self._patience:
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
        clients = self._scenario.clients
        self._refused += count
        if not attempt and since >= self._warm_bin:
            self._refused_first += count
        if attempt + 1 < clients.attempts:
            again = index + max(round(clients.delay_s * self._per_s), 1)
            self._again[again].append((attempt + 1, count))
        elif since - attempt * round(clients.delay_s * self._per_s) >= self._warm_bin:
            self._tally.lost += count

    def _move(self, moved: Moved) -> None:
        """Replicas that go take their share of what is in flight along, and finish it."""
        before = self._ready
        if moved.went and before:
            leaving = round(self._active * min(len(moved.went) / before, 1.0))
            self._active -= leaving
            self._draining += leaving
        self._ready = self._fleet.ready
        self._set_rules()

    def _close(self, second: int) -> None:
        """The end of a second: its sample, its place in the series, and perhaps a decision."""
        now_s = second + 1.0
        fleet = self._fleet.counted(terminating=1 if self._draining else 0)
        self._record(second)
        self._control.observe(self._sample(now_s))
        self._clear()
        wanted = self._control.wanted(now_s, fleet)
        if wanted is not None:
            self._move(self._fleet.ask(wanted, now_s))
        else:
            self._set_rules()

    def _sample(self, now_s: float) -> Sample:
        slow = 1.0 if self._steady else self._slowdown(now_s)
        return Sample(
            at_s=now_s,
            arrived=self._arrived,
            retried=self._retried if self._scenario.clients.marked else 0,
            refused=self._refused,
            completed=self._completed,
            in_flight=self._sum_in_flight / self._per_s,
            queued=self._sum_queued / self._per_s,
            in_flight_now=self._active + self._draining,
            queued_now=self._queued,
            service_s=self._scenario.service.mean_s * slow if self._completed else None,
        )

    def _record(self, second: int) -> None:
        tally, series = self._tally, self._series
        tally.attempts += self._arrived
        if second >= self._scenario.warm_up_s:
            tally.requests += self._arrived - self._retried
        tally.completed += self._completed
        tally.turned_away += self._refused
        tally.refused += self._refused_first
        tally.late += self._late
        series.arrived.append(self._arrived - self._retried)
        series.refused.append(self._refused_first)
        series.late.append(self._late)
        series.in_flight.append(self._sum_in_flight / self._per_s)
        series.queued.append(self._sum_queued / self._per_s)
        series.ready.append(self._ready)
        series.issued.append(self._fleet.issued)

    def _judge_waiting(self, end: int) -> None:
        """What still waits at the end and is late already, is late."""
        objective = self._scenario.objective_s * self._per_s
        for since, attempt, count in self._queue:
            if not attempt and since >= self._warm_bin and end - since > objective:
                self._tally.late += count
