"""What the gateway measured, in types that can't be misread: a load, a zero or unknown; whole or at least.

Owns the vocabulary from counters to samples. Its one idea: "no answer" is `None` and "some gateways did not answer"
is `complete=False`; neither is ever a number.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

_ABSURD = 1e15  # no balancer holds or counts so many, in a second or at once


@dataclass(frozen=True)
class Counters:
    """One back end at one gateway, as its statistics tell it: two gauges, three ever-growing counts.

    `servers` holds (requests in flight, requests ever sent there) by server. `retried`: those among the arrived that
    were marked as a retry; None where the gateway does not tell.
    """

    queued: int
    arrived: int
    servers: dict[str, tuple[int, int]]
    retried: int | None = None

    @property
    def in_flight(self) -> int:
        return sum(current for current, _ in self.servers.values())

    @cached_property  # what does not change is the same object, and is asked every second
    def rests(self) -> bool:
        return self.queued == 0 and self.in_flight == 0


@dataclass(frozen=True)
class Load:
    """Requests in flight and queued at a moment; per second since the moment before: arrived, served, refused.

    `arrived` counts every request that reached the back end, refused ones too; `retried` those among them that their
    client marked as a retry. The rates are None where there is no moment before.
    """

    in_flight: float
    queued: float
    arrived_rps: float | None = None
    served_rps: float | None = None
    refused_rps: float | None = None
    retried_rps: float | None = None

    @property
    def first_rps(self) -> float | None:
        """First attempts: arrived, less what is marked as a retry."""
        return None if self.arrived_rps is None else max(self.arrived_rps - (self.retried_rps or 0.0), 0.0)

    @cached_property  # asked of every sample in every window of every cycle
    def sane(self) -> bool:
        numbers = (self.in_flight, self.queued, self.arrived_rps, self.served_rps, self.refused_rps, self.retried_rps)
        return all(n is None or 0 <= n < _ABSURD for n in numbers)


@dataclass(frozen=True)
class LoadSample:
    """One endpoint at `at_s` (monotonic). `load` None: unknown. `complete` False: some gateway is missing, so the
    truth is at least this."""

    at_s: float
    load: Load | None
    complete: bool = True

    @property
    def outcome(self) -> str:
        """For a metric."""
        if self.load is None:
            return "unknown"
        return "known" if self.complete else "at_least"


ZERO = Load(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
NEW = Counters(0, 0, {}, retried=0)  # a back end before its first request


def difference(before: Counters | None, now: Counters, elapsed_s: float) -> Load:
    """The load between two readings of one gateway. A count that fell was restarted: it counts whole.

    served: what servers took in, less what they still hold more of. refused: what came and neither was sent to a
    server nor waits: turned away, timed out in the queue, or gone.
    """
    if before is None or elapsed_s <= 0:
        return Load(now.in_flight, now.queued)
    arrived = _grown(before.arrived, now.arrived)
    sent = sum(_grown(before.servers.get(name, (0, 0))[1], total) for name, (_, total) in now.servers.items())
    kept_before = sum(before.servers[name][0] for name in now.servers if name in before.servers)
    served = max(sent - (now.in_flight - kept_before), 0)
    refused = max(arrived - sent - (now.queued - before.queued), 0)
    retried = _retried(before, now)
    rates = (None if count is None else count / elapsed_s for count in (arrived, served, refused, retried))
    return Load(now.in_flight, now.queued, *rates)


def _retried(before: Counters, now: Counters) -> int | None:
    """Where arrivals fell, all counts of the back end began anew: 900 arrived and 5 retried, then 30 and 20: 20."""
    if before.retried is None or now.retried is None:
        return None
    return now.retried if now.arrived < before.arrived else _grown(before.retried, now.retried)


def _grown(before: int, now: int) -> int:
    return now - before if now >= before else now


def total(loads: Iterable[Load]) -> Load:
    """Several back ends or gateways together; a rate that one of them lacks is unknown for all."""
    parts = tuple(loads)
    return Load(
        in_flight=sum(part.in_flight for part in parts),
        queued=sum(part.queued for part in parts),
        arrived_rps=_sum(part.arrived_rps for part in parts),
        served_rps=_sum(part.served_rps for part in parts),
        refused_rps=_sum(part.refused_rps for part in parts),
        retried_rps=_sum(part.retried_rps for part in parts),
    )


def _sum(rates: Iterable[float | None]) -> float | None:
    known = list(rates)
    return None if any(rate is None for rate in known) else float(sum(rate for rate in known if rate is not None))
