"""The step from 1 to 1,000 requests a second at 0.2 s each: 1 -> 36 replicas, by 20 phases of the decisions' clock.

Owns the scenario and its numbers: traffic lost is in seconds of the full rate, so that the start-up, which no reactive
policy can beat, can be subtracted by eye.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean

from simulator.loads import Rates
from simulator.rivals.fixed import needed
from simulator.scenario import Clients, Scenario, Service, StartUp
from simulator.simulate import simulate
from tests.bench.autoscaler.contenders import BY_NAME, DEFAULT
from tests.bench.autoscaler.loads import Traffic

RATE_RPS, SERVICE_S, SLOTS, OBJECTIVE_S = 1000.0, 0.2, 8, 1.0
IDEAL = needed([RATE_RPS], SERVICE_S, 0.7 * SLOTS)[0]
BEFORE_S, AFTER_S, PHASE_S = 120.0, 300.0, 0.25
CLIENTS = {
    "no retries": Clients(),
    "2 retries, marked": Clients(3, 1.0, True),
    "5 retries, marked": Clients(6, 1.0, True),
    "2 retries, unmarked": Clients(3, 1.0, False),
    "5 retries, unmarked": Clients(6, 1.0, False),
}


@dataclass(frozen=True)
class StepJob:
    contender: str
    start_up_s: float
    clients: str
    phase: int


@dataclass(frozen=True)
class Stepped:
    """Of one phase, or means over phases: seconds of traffic lost, the most replicas, their cost."""

    contender: str
    start_up_s: float
    clients: str
    lost_s: float
    peak: float
    replica_seconds: float

    @property
    def peak_ratio(self) -> float:
        return self.peak / IDEAL


def _load(start_up_s: float, phase: int) -> Rates:
    low = round(BEFORE_S / PHASE_S) + phase
    high = round((start_up_s * 2 + AFTER_S) / PHASE_S)
    return Rates([1.0] * low + [RATE_RPS] * high, PHASE_S)


def run_step(job: StepJob) -> Stepped:
    served = Traffic("step", _load(job.start_up_s, job.phase), SERVICE_S, SLOTS)
    scenario = Scenario(
        load=served.load,
        service=Service(SERVICE_S, 0.3),
        start_up=StartUp(job.start_up_s),
        slots=SLOTS,
        max_replicas=IDEAL * 10,
        objective_s=OBJECTIVE_S,
        warm_up_s=BEFORE_S / 2,
        clients=CLIENTS[job.clients],
    )
    contender = BY_NAME[job.contender]
    setting = DEFAULT if job.contender == "ours" else 0.7
    result = simulate(scenario, contender.make(served, job.start_up_s, setting), job.phase)
    who = (job.contender, job.start_up_s, job.clients)
    return Stepped(*who, result.bad / RATE_RPS, result.peak, result.replica_seconds)


def step_jobs(start_ups_s: Sequence[float], phases: int, rivals: Sequence[str], rival_phases: int) -> list[StepJob]:
    us = [StepJob("ours", s, clients, p) for s in start_ups_s for clients in CLIENTS for p in range(phases)]
    # A rival's phases are spread over as long as ours.
    every = max(phases // rival_phases, 1)
    them = [
        StepJob(rival, s, clients, p * every)
        for rival in rivals
        for s in start_ups_s
        for clients in ("no retries", "2 retries, unmarked")
        for p in range(rival_phases)
    ]
    return us + them


def over_phases(runs: Iterable[Stepped]) -> list[Stepped]:
    by_case: dict[tuple[str, float, str], list[Stepped]] = {}
    for run in runs:
        by_case.setdefault((run.contender, run.start_up_s, run.clients), []).append(run)
    return [
        Stepped(
            *case,
            lost_s=mean(run.lost_s for run in same),
            peak=mean(run.peak for run in same),
            replica_seconds=mean(run.replica_seconds for run in same),
        )
        for case, same in by_case.items()
    ]
