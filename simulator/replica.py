"""One replica of the exact engine: requests that share it, each with its own work left.

Owns service under a knee. Its one idea: work is counted in *virtual* seconds, which pass at the same pace for all
requests of a replica, so what completes next never changes order when the pace does.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass

from simulator.scenario import Service


@dataclass(slots=True)
class Request:
    """One attempt. `work_s`: its service time where nothing slows it down."""

    since_s: float
    attempt: int
    work_s: float
    admitted_s: float = 0.0


class Replica:
    """`sent`: requests ever; `weight`: its share of new ones beside 1. `waiting`: requests that found it full, where a
    policy lets them wait here."""

    def __init__(self, number: int, service: Service, limit: int) -> None:
        self.number, self._service = number, service
        self.serves = True
        self.sent = 0
        self.limit, self.weight = limit, 1
        self.version = self.told = 0  # of the next completion: as it is, and as it was last announced
        self.waiting: deque[Request] = deque()
        self._done: list[tuple[float, int, Request]] = []  # a heap by virtual end
        self._virtual_s = self._at_s = 0.0
        self._pace = 1.0

    @property
    def active(self) -> int:
        return len(self._done)

    @property
    def requests(self) -> list[Request]:
        return [request for _, _, request in self._done]

    def admit(self, request: Request, now_s: float, factor: float) -> None:
        self._pass(now_s)
        request.admitted_s = now_s
        self.sent += 1
        end = (self._virtual_s + request.work_s, self.sent, request)
        heapq.heappush(self._done, end)
        self._set_pace(factor)
        if self._done[0] is end:
            self.version += 1

    def complete(self, now_s: float, factor: float) -> Request:
        """The request whose work is over."""
        self._pass(now_s)
        _, _, request = heapq.heappop(self._done)
        self._set_pace(factor)
        self.version += 1
        return request

    def repace(self, now_s: float, factor: float) -> None:
        self._pass(now_s)
        self._set_pace(factor)

    def _set_pace(self, factor: float) -> None:
        """By what is in flight and by the dependency's `factor`."""
        pace = 1.0 / (self._service.slowdown(len(self._done)) * factor)
        if pace != self._pace:
            self._pace = pace
            self.version += 1

    def _pass(self, now_s: float) -> None:
        self._virtual_s += (now_s - self._at_s) * self._pace
        self._at_s = now_s

    @property
    def next_s(self) -> float:
        """When the next request completes, if nothing changes before."""
        if not self._done:
            return math.inf
        return self._at_s + max(self._done[0][0] - self._virtual_s, 0.0) / self._pace
