"""The vertical axis: a declared limit four times off the knee, and a dependency that takes twice as long.

Owns both scenarios and what is read off them: how far the learnt knee is from the true one after ten minutes and at its
worst later, and how often the limit moves while load is not the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean

from simulator.loads import Rates
from simulator.ours import ours
from simulator.policy import NewPolicy, Policy, Seen
from simulator.scenario import Scenario, Service, Slow, Span, StartUp
from simulator.simulate import Engine, simulate

KNEE, SERVICE_S, RATE_RPS = 16.0, 0.2, 200.0
LEARNT_S, DURATION_S = 600, 2000
SLOW_FROM_S, SLOW_TO_S, SLOW_FACTOR = 1200.0, 1800.0, 2.0
MIS_SET = {"4x too high": 64, "4x too low": 4, "right": 16}


@dataclass
class Watched:
    """A policy, and the limit and knee that it had after each decision."""

    policy: Policy
    seen: list[tuple[float, int | None, float | None]] = field(default_factory=list)

    def __getattr__(self, name: str) -> object:
        return getattr(self.policy, name)

    def decide(self, seen: Seen) -> int | None:
        wanted = self.policy.decide(seen)
        self.seen.append((seen.now_s, self.policy.limit, getattr(self.policy, "knee", None)))
        return wanted


@dataclass(frozen=True)
class LearningJob:
    case: str
    seed: int


@dataclass(frozen=True)
class Learnt:
    """`error`: |knee / true - 1| at ten minutes and at its worst later, None: no knee was ever learnt. `steps`: of the
    limit while the dependency was slow. `bad_share`: after ten minutes."""

    case: str
    knee: float | None
    error: float | None
    worst: float | None
    limit: float | None
    steps: float
    bad_share: float


DEPENDENCY = "dependency twice as slow"


def learning_jobs(seeds: int) -> list[LearningJob]:
    return [LearningJob(case, seed) for case in (*MIS_SET, DEPENDENCY) for seed in range(seeds)]


def run_learning(job: LearningJob) -> Learnt:
    scenario = _scenario(job.case)
    watched: list[Watched] = []
    result = simulate(scenario, _watching(ours(scenario), watched), job.seed, Engine.EXACT)
    seen = watched[0].seen
    return Learnt(
        case=job.case,
        knee=_knee_at(seen, LEARNT_S),
        error=_error(_knee_at(seen, LEARNT_S)),
        worst=max((_error(knee) or 0.0 for at_s, _, knee in seen if at_s >= LEARNT_S and knee), default=None),
        limit=next((limit for at_s, limit, _ in seen if at_s >= LEARNT_S), None),
        steps=float(_steps([limit for at_s, limit, _ in seen if SLOW_FROM_S <= at_s < SLOW_TO_S])),
        bad_share=result.bad_share,
    )


def _scenario(case: str) -> Scenario:
    slots = MIS_SET.get(case, int(KNEE))
    return Scenario(
        load=Rates([RATE_RPS] * DURATION_S),
        service=Service(SERVICE_S, 0.3, KNEE),
        start_up=StartUp(30.0),
        slots=slots,
        max_replicas=40,
        initial_replicas=round(RATE_RPS * SERVICE_S / (0.7 * slots)) or 1,
        objective_s=1.0,
        warm_up_s=float(LEARNT_S),
        slow=(Slow(Span(SLOW_FROM_S, SLOW_TO_S), SLOW_FACTOR),) if case == DEPENDENCY else (),
    )


def _watching(new_policy: NewPolicy, watched: list[Watched]) -> NewPolicy:
    def made() -> Policy:
        watched.append(Watched(new_policy()))
        return watched[-1]  # type: ignore[return-value]

    return made


def _knee_at(seen: Sequence[tuple[float, int | None, float | None]], at_s: float) -> float | None:
    return next((knee for when_s, _, knee in seen if when_s >= at_s), None)


def _error(knee: float | None) -> float | None:
    return None if knee is None else abs(knee / KNEE - 1)


def _steps(limits: Sequence[int | None]) -> int:
    return sum(before != after for before, after in pairwise(limits))


def over_seeds(runs: Iterable[Learnt]) -> list[Learnt]:
    """Means, but for `worst` and `steps`, which are the worst of all."""
    by_case: dict[str, list[Learnt]] = {}
    for run in runs:
        by_case.setdefault(run.case, []).append(run)
    return [
        Learnt(
            case=case,
            knee=_mean(run.knee for run in same),
            error=_most(run.error for run in same),
            worst=_most(run.worst for run in same),
            limit=_mean(run.limit for run in same),
            steps=max(run.steps for run in same),
            bad_share=mean(run.bad_share for run in same),
        )
        for case, same in by_case.items()
    ]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _most(values: Iterable[float | None]) -> float | None:
    """None where one of them is: what was not learnt in one run was not learnt."""
    every = list(values)
    return None if None in every else max(value for value in every if value is not None)
