"""Owns what a team's endpoints need at least, and whether the team's quota holds it.

Leaves what they use to the autoscaler. One idea: the least is every endpoint at its floor and, beside them, one
successor of the largest; without room for that a change could be declared and never be rolled out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from spec.endpoint import EndpointSpec
from spec.platform import Quota
from spec.quantities import Cpu, Memory
from spec.sizing import floor_replicas, target_of

_NAMED: Final = 3  # endpoints that a message names; the rest is counted


def floor_of(spec: EndpointSpec, utilization: float) -> int:
    """Replicas that an endpoint always has, before its target is learnt: min 100 at 0.8 of 64 -> 2."""
    return floor_replicas(spec.concurrency.min, target_of(spec.first_limit, utilization))


def shortfalls(specs: Iterable[EndpointSpec], quota: Quota, utilization: float) -> Iterator[tuple[str, str]]:
    """(field of the quota, what it does not hold) for the endpoints of one team. CPU counts as requested."""
    floors = [(spec, floor_of(spec, utilization)) for spec in specs]
    if quota.cpu is not None:
        asked = [(spec.endpoint, count, spec.least[0].millicores * spec.pods_each) for spec, count in floors]
        yield from _shortfall("cpu", asked, quota.cpu.millicores, lambda amount: str(Cpu(amount)))
    if quota.memory is not None:
        asked = [(spec.endpoint, count, spec.least[1].bytes * spec.pods_each) for spec, count in floors]
        yield from _shortfall("memory", asked, quota.memory.bytes, lambda amount: str(Memory(amount)))
    if quota.pods is not None:
        asked = [(spec.endpoint, count, spec.pods_each) for spec, count in floors]
        yield from _shortfall("pods", asked, quota.pods, str)


def _shortfall(
    field: str, asked: list[tuple[str, int, int]], most: int, shown: Callable[[int], str]
) -> Iterator[tuple[str, str]]:
    """`asked` holds (endpoint, replicas, amount of one replica)."""
    largest_first = sorted(asked, key=lambda one: (-one[1] * one[2], one[0]))
    total = sum(count * amount for _, count, amount in asked)
    if not asked:
        return
    successor, count, amount = largest_first[0]
    if total + count * amount <= most:
        return
    parts = [f"{name} {count} x {shown(amount)}" for name, count, amount in largest_first[:_NAMED]]
    rest = len(asked) - _NAMED
    named = ", ".join([*parts, *([f"{rest} more"] if rest > 0 else [])])
    yield (
        field,
        f"the floors need {shown(total)} ({named}) and a successor of {successor} needs {shown(count * amount)} beside "
        f"them: {shown(total + count * amount)} is more than {shown(most)}",
    )
