"""An endpoint's replicas from asked for to gone, as a Deployment and a kubelet keep them.

Owns start-up, failed starts, which replica a decrease takes, and rollouts. Leaves requests to the engines. Its one
idea: an engine asks for a number and moves the time; it is told which replicas came and which went.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from simulator.policy import Fleet as Counted
from simulator.scenario import StartUp

_BACKOFF_FIRST_S, _BACKOFF_MOST_S = 10.0, 300.0
_REMEMBERED = 20  # starts


@dataclass
class Moved:
    """Replicas by number: those that take requests from now on, and those that take none any more."""

    came: list[int] = field(default_factory=list)
    went: list[int] = field(default_factory=list)


@dataclass
class _Revision:
    """`starting`: (when, which, how often it has failed), a heap; `ready`: oldest first."""

    starting: list[tuple[float, int, int]] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)

    @property
    def issued(self) -> int:
        return len(self.starting) + len(self.ready)


class Fleet:
    def __init__(self, start_up: StartUp, initial: int, rollouts_s: tuple[float, ...], random: np.random.Generator):
        self._start_up, self._random = start_up, random
        self._next = initial
        self._serving = _Revision(ready=list(range(initial)))
        self._successor: _Revision | None = None
        self._rollouts_s = sorted(rollouts_s)
        self.failed_starts = 0
        self._asked_s: dict[int, float] = {}
        self._took_s: deque[float] = deque(maxlen=_REMEMBERED)
        self.next_s = min(self._rollouts_s, default=math.inf)  # when something happens by itself

    @property
    def ready(self) -> int:
        return len(self._serving.ready)

    @property
    def serving(self) -> list[int]:
        """The replicas that take requests, oldest first."""
        return self._serving.ready

    @property
    def issued(self) -> int:
        """All that is paid for: while a successor starts, both."""
        return self._serving.issued + (self._successor.issued if self._successor else 0)

    def counted(self, terminating: int) -> Counted:
        return Counted(
            ready=len(self._serving.ready),
            starting=len(self._serving.starting),
            terminating=terminating,
            failed_starts=self.failed_starts,
            rolling=self._successor is not None,
            failing=sum(failures > 1 for _, _, failures in self._serving.starting),
            start_s=median(self._took_s) if self._took_s else None,
        )

    def ask(self, replicas: int, now_s: float) -> Moved:
        """That many of each revision; a decrease takes starting ones before ready ones, the youngest first."""
        moved = Moved()
        for revision in (self._serving, self._successor):
            if revision is None:
                continue
            for _ in range(replicas - revision.issued):
                self._start(revision, now_s)
            gone = self._remove(revision, revision.issued - replicas)
            if revision is self._serving:
                moved.went += gone
        return self._take_over(moved)

    def advance(self, now_s: float) -> Moved:
        """Everything that happens by itself up to `now_s`."""
        moved = Moved()
        while self._rollouts_s and self._rollouts_s[0] <= now_s:
            self._roll(self._rollouts_s.pop(0))
        moved.came += self._finish_starts(self._serving, now_s)
        if self._successor is not None:
            self._finish_starts(self._successor, now_s)
        return self._take_over(moved)

    def _roll(self, now_s: float) -> None:
        self._successor = _Revision()
        for _ in range(self._serving.issued):
            self._start(self._successor, now_s)

    def _take_over(self, moved: Moved) -> Moved:
        """The end of each move; the successor has the requests once all of it is ready."""
        if self._successor is None or self._successor.starting:
            self.next_s = self._next_s()
            return moved
        old, self._serving, self._successor = self._serving, self._successor, None
        self.next_s = self._next_s()
        came = [replica for replica in moved.came if replica not in old.ready]
        return Moved(came + self._serving.ready, moved.went + [r for r in old.ready if r not in moved.came])

    def _next_s(self) -> float:
        heaps = [r.starting[0][0] for r in (self._serving, self._successor) if r is not None and r.starting]
        return min(heaps + self._rollouts_s[:1], default=math.inf)

    def _start(self, revision: _Revision, now_s: float) -> None:
        takes_s = self._start_up.median_s * math.exp(self._start_up.sigma * self._random.standard_normal())
        heapq.heappush(revision.starting, (now_s + takes_s, self._next, 0))
        self._asked_s[self._next] = now_s
        self._next += 1

    def _finish_starts(self, revision: _Revision, now_s: float) -> list[int]:
        came = []
        while revision.starting and revision.starting[0][0] <= now_s:
            at_s, replica, failures = heapq.heappop(revision.starting)
            if self._start_up.failing and self._random.random() < self._start_up.failing:
                self.failed_starts += 1
                pause_s = min(_BACKOFF_FIRST_S * 2**failures, _BACKOFF_MOST_S)
                again_s = at_s + pause_s + self._start_up.median_s
                heapq.heappush(revision.starting, (again_s, replica, failures + 1))
            else:
                revision.ready.append(replica)
                came.append(replica)
                if not failures:
                    self._took_s.append(at_s - self._asked_s.pop(replica))
        return came

    @staticmethod
    def _remove(revision: _Revision, surplus: int) -> list[int]:
        """The ready ones among those removed."""
        if surplus <= 0:
            return []
        youngest = sorted(revision.starting, key=lambda start: start[1])
        kept = max(len(youngest) - surplus, 0)
        revision.starting = youngest[:kept]
        heapq.heapify(revision.starting)
        from_ready = surplus - (len(youngest) - kept)
        gone = revision.ready[len(revision.ready) - from_ready :]
        del revision.ready[len(revision.ready) - from_ready :]
        return gone
