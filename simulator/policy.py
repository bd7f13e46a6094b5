"""What a policy sees, says and brings along: the one joint between the simulator and whatever decides replicas.

Owns the protocol. Leaves how requests, pods and metrics behave to the engines. Its one idea: a policy comes whole, with
its own queue, its own period and its own metric delay, since a rival fed with another's queue or with fresher numbers
than it gets in the field is another product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

Pods = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Sample:
    """One endpoint at `at_s`, as its balancer counts it: one a second.

    Counts are per second over the `span_s` since the last sample that came through: 1, or more where samples were
    lost, since a balancer's counters only grow. `arrived`: attempts, refused ones too; `retried`: those among them
    that were marked as retries; `refused`: turned away, or given up on in the queue. `in_flight` and `queued` are
    means over the last second, `in_flight_now` and `queued_now` what a reading at its end shows. `service_s`: mean
    service time of what completed, None where nothing did. `known` False: lost, and its numbers mean nothing.
    `pods`: requests in flight and ever sent there, by replica; None where the engine does not tell them apart.
    `ever`: attempts since the run began.
    """

    at_s: float
    arrived: float
    retried: float
    refused: float
    completed: float
    in_flight: float
    queued: float
    in_flight_now: float
    queued_now: float
    service_s: float | None = None
    known: bool = True
    span_s: float = 1.0
    pods: Pods | None = None
    ever: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """The replicas now. `failing`: those of `starting` that have failed more than once; `start_s`: how long those that
    became ready lately took; `failed_starts` counts since the beginning; `rolling`: a successor is taking over."""

    ready: int
    starting: int
    terminating: int = 0
    failed_starts: int = 0
    rolling: bool = False
    failing: int = 0
    start_s: float | None = None

    @property
    def issued(self) -> int:
        return self.ready + self.starting


@dataclass(frozen=True, slots=True)
class Seen:
    """All that a policy may look at. `samples`: oldest first, none younger than the policy's own metric delay;
    `slots`: requests that a replica can run at once, as declared."""

    now_s: float
    samples: Sequence[Sample]
    fleet: Fleet
    slots: int


class Waits(StrEnum):
    """Where a request that no replica can take waits.

    BALANCER: in one queue before all replicas. REPLICA: at the replica that it was sent to at random, wherever else
    there is room.
    """

    BALANCER = "balancer"
    REPLICA = "replica"


@dataclass(frozen=True)
class QueueRules:
    """Up to `total` + `per_replica` x ready requests wait, each up to `timeout_s`; None: no bound. Beyond: refused.

    `holds_at_zero`: requests also wait while no replica is ready; else they are refused then.
    """

    waits: Waits = Waits.BALANCER
    total: int | None = None
    per_replica: int = 0
    timeout_s: float | None = None
    holds_at_zero: bool = True

    def bound(self, ready: int) -> int | None:
        """Two replicas ready at 10 each and 100 in all: 120."""
        return None if self.total is None else self.total + self.per_replica * ready


UNBOUNDED = QueueRules()


@dataclass(frozen=True)
class Probe:
    """One replica under a limit of its own, and its share of the requests beside 1 of any other."""

    replica: int
    limit: int
    weight: int = 1


class Policy(Protocol):
    """Decides replicas. Made anew for each run and after a simulated restart, so what it keeps it keeps in itself, or
    hands out to be kept.

    `period_s`: how often `decide` is called. `metric_delay_s`: the age of the youngest sample that it is shown.
    `window_s`: how many seconds of samples it wants. `queue`, `limit` and `probe` are read again after each decision.
    """

    @property
    def name(self) -> str: ...

    @property
    def period_s(self) -> float: ...

    @property
    def metric_delay_s(self) -> float: ...

    @property
    def window_s(self) -> float: ...

    @property
    def queue(self) -> QueueRules: ...

    @property
    def limit(self) -> int | None:
        """Requests in flight that a replica is given at most; None: as many as declared."""

    @property
    def probe(self) -> Probe | None:
        """Heeded by the exact engine alone, which tells replicas apart."""

    def decide(self, seen: Seen) -> int | None:
        """The replicas to issue, starting ones included; None: as they are."""

    def keep(self, now_s: float) -> str | None:
        """What is to outlive this controller, asked for every minute; None: nothing."""

    def resume(self, kept: str) -> None:
        """Goes on from what the one before handed out last."""


class Plain:
    """The protocol's attributes at their plainest, for a policy to inherit and to override."""

    name: str = "plain"
    period_s: float = 5.0
    metric_delay_s: float = 0.0
    window_s: float = 60.0
    queue: QueueRules = UNBOUNDED
    limit: int | None = None
    probe: Probe | None = None

    def keep(self, now_s: float) -> str | None:
        return None

    def resume(self, kept: str) -> None:
        raise NotImplementedError("what keeps something says how it goes on from it")


NewPolicy = Callable[[], Policy]
