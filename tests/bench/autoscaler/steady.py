"""Constant load with 10 % noise and 30 % of samples lost: how often replicas change, by fleet size and phase.

A phase is a tenth of a replica's load, since how restless a policy is depends on how near the load is to where one more
replica is due.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from simulator.loads import Rates
from simulator.scenario import Metrics, Scenario, Service, StartUp
from simulator.simulate import simulate
from tests.bench.autoscaler.contenders import BY_NAME, DEFAULT
from tests.bench.autoscaler.loads import Traffic

SERVICE_S, SLOTS, NOISE, LOST = 0.5, 8, 0.1, 0.3
SIZES = (1, 2, 3, 5, 10, 30)
PHASES = 10
WARM_UP_S, MEASURED_S = 900, 3600


@dataclass(frozen=True)
class SteadyJob:
    contender: str
    size: int
    phase: int


@dataclass(frozen=True)
class Steadied:
    """Changes an hour, their largest number, share of bad requests and replicas: of one phase, or means over phases."""

    contender: str
    size: int
    changes: float
    most: float
    bad_share: float
    replicas: float


def run_steady(job: SteadyJob) -> Steadied:
    setting = DEFAULT if job.contender == "ours" else 0.7
    load = (job.size - 1 + (job.phase + 0.5) / PHASES) * setting * SLOTS
    rate = load / SERVICE_S
    # Counts of a second with a standard deviation of a tenth: cv^2 x rate = (0.1 x rate)^2.
    rates = Rates([rate] * (WARM_UP_S + MEASURED_S), 1.0, NOISE * math.sqrt(rate))
    served = Traffic("steady", rates, SERVICE_S, SLOTS)
    scenario = Scenario(
        load=rates,
        service=Service(SERVICE_S, 0.3),
        start_up=StartUp(30.0),
        slots=SLOTS,
        max_replicas=100,
        initial_replicas=job.size,
        objective_s=served.objective_s,
        warm_up_s=WARM_UP_S,
        metrics=Metrics(lost=LOST),
    )
    result = simulate(scenario, BY_NAME[job.contender].make(served, 30.0, setting), job.phase)
    changes = result.changes_per_hour
    replicas = result.replica_seconds / result.measured_s
    return Steadied(job.contender, job.size, changes, changes, result.bad_share, replicas)


def steady_jobs(contenders: Sequence[str], phases: Sequence[int]) -> list[SteadyJob]:
    return [SteadyJob(name, size, phase) for name in contenders for size in SIZES for phase in phases]


def over_phases(runs: Iterable[Steadied]) -> list[Steadied]:
    by_case: dict[tuple[str, int], list[Steadied]] = {}
    for run in runs:
        by_case.setdefault((run.contender, run.size), []).append(run)
    return [
        Steadied(
            *case,
            changes=mean(run.changes for run in same),
            most=max(run.most for run in same),
            bad_share=mean(run.bad_share for run in same),
            replicas=mean(run.replicas for run in same),
        )
        for case, same in by_case.items()
    ]
