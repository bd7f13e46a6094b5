"""Traffic x start-up x policy x setting x seed: what to run, and what it says at equal cost.

Owns the choice of runs and their sums. The constant fleet's sizes are chosen after ours has run: those just below and
above its cost, so that the comparison is at equal cost to the replica.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.bench.autoscaler.contenders import BY_NAME, DEFAULT
from tests.bench.autoscaler.curves import Point, Read, bad_at, cost_at
from tests.bench.autoscaler.loads import WARM_UP_S, Kind, traffic
from tests.bench.autoscaler.runs import Job, Row, in_processes, points, run

Case = tuple[str, float]  # traffic, start-up


@dataclass(frozen=True)
class Plan:
    """`settings`: of that many, evenly picked, of each contender's sweep; ours always has its default."""

    traffics: Sequence[str]
    start_ups_s: Sequence[float]
    contenders: Sequence[str]
    seeds: int
    rival_seeds: int

    @property
    def cases(self) -> list[Case]:
        return [(name, start_up_s) for start_up_s in self.start_ups_s for name in self.traffics]

    def jobs(self) -> list[Job]:
        return [
            Job(name, start_up_s, contender, setting, seed)
            for name, start_up_s in self.cases
            for contender in self.contenders
            for setting in BY_NAME[contender].settings
            for seed in range(self.seeds if BY_NAME[contender].family in CLOSE else self.rival_seeds)
        ]


# Whom the goals compare: these get all seeds.
CLOSE = ("ours", "hpa", "kpa")


@dataclass(frozen=True)
class Pair:
    """Bad requests of both at one cost: that of ours at its default, or the rival's least where that is more.

    `beyond`: one of the two curves does not reach that cost, and its nearest end was taken.
    """

    cost: float
    ours: float
    rival: float
    beyond: bool


@dataclass(frozen=True)
class Compared:
    """One case: ours at its default; each rival's family beside us at equal cost; its cost at as many bad as ours."""

    case: Case
    ours: Point
    bad: dict[str, Pair]
    cost: dict[str, Read]

    @property
    def kind(self) -> Kind:
        return traffic(self.case[0]).kind


def sweep(plan: Plan, told: Callable[[int, int], None]) -> list[Row]:
    rows: list[Row] = []
    jobs = plan.jobs()
    for row in in_processes(run, jobs):
        rows.append(row)
        told(len(rows), len(jobs))
    if "static" in plan.contenders and "ours" in plan.contenders:
        rows += in_processes(run, _constant(rows, plan))
    return rows


def _constant(rows: Iterable[Row], plan: Plan) -> list[Job]:
    jobs = []
    for (name, start_up_s, contender), found in points(rows).items():
        if contender != "ours":
            continue
        measured_s = traffic(name).scenario(start_up_s).duration_s - WARM_UP_S
        sizes = {size for p in found if p.setting == DEFAULT for size in _around(p.cost / measured_s)}
        jobs += [Job(name, start_up_s, "static", n, seed) for n in sorted(sizes) for seed in range(plan.rival_seeds)]
    return jobs


def _around(replicas: float) -> tuple[int, ...]:
    """7.4 -> 5, 7, 8, 10."""
    low = max(math.floor(replicas), 1)
    return tuple(sorted({max(low - 2, 1), low, low + 1, low + 3}))


def compared(rows: Iterable[Row], setting: float = DEFAULT) -> list[Compared]:
    """`setting`: at which of ours."""
    found = points(rows)
    cases = dict.fromkeys((name, start_up_s) for name, start_up_s, _ in found)
    return [_case(case, found, setting) for case in cases if (*case, "ours") in found]


def _case(case: Case, found: dict[tuple[str, float, str], list[Point]], setting: float) -> Compared:
    by_family: dict[str, list[Point]] = {}
    for (name, start_up_s, contender), sweep_of in found.items():
        if (name, start_up_s) == case:
            by_family.setdefault(BY_NAME[contender].family, []).extend(sweep_of)
    curve = by_family.pop("ours")
    us = next(point for point in curve if point.setting == setting)
    return Compared(
        case=case,
        ours=us,
        bad={family: _pair(us, curve, its) for family, its in by_family.items()},
        cost={family: cost_at(its, us.bad) for family, its in by_family.items()},
    )


def _pair(us: Point, curve: Sequence[Point], its: Sequence[Point]) -> Pair:
    cost = max(us.cost, min(point.cost for point in its))
    ours, rival = bad_at(curve, cost) if cost > us.cost else Read(us.bad), bad_at(its, cost)
    return Pair(cost, ours.value, rival.value, ours.beyond or rival.beyond)


@dataclass(frozen=True)
class Sum:
    """Over cases: bad requests of both at equal cost, cost of both at as many bad as ours has by default.

    `beyond`: in how many cases a curve did not reach that far.
    """

    bad: float
    rival_bad: float
    beyond: int
    worse: int
    cost: float
    rival_cost: float
    cost_beyond: int

    @property
    def bad_ratio(self) -> float:
        return self.bad / self.rival_bad if self.rival_bad else math.inf

    @property
    def cost_ratio(self) -> float:
        return self.cost / self.rival_cost


def summed(cases: Sequence[Compared], family: str) -> Sum:
    """`worse`: in how many cases ours had more bad requests, by more than one in 10,000."""
    those = [case for case in cases if family in case.bad]
    pairs = [case.bad[family] for case in those]
    return Sum(
        bad=sum(pair.ours for pair in pairs),
        rival_bad=sum(pair.rival for pair in pairs),
        beyond=sum(pair.beyond for pair in pairs),
        worse=sum(case.bad[family].ours > case.bad[family].rival + 1e-4 * case.ours.requests for case in those),
        cost=sum(case.ours.cost for case in those),
        rival_cost=sum(case.cost[family].value for case in those),
        cost_beyond=sum(case.cost[family].beyond for case in those),
    )
