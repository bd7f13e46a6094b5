"""One simulated run as a job that another process can do, and many of them in two processes.

Owns the format between processes: names and numbers in, a row out. A worker makes load and policy from the names.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from simulator.simulate import simulate
from tests.bench.autoscaler.contenders import BY_NAME
from tests.bench.autoscaler.curves import Point
from tests.bench.autoscaler.loads import traffic

A = TypeVar("A")
B = TypeVar("B")
PROCESSES = min(2, os.cpu_count() or 1)


@dataclass(frozen=True)
class Job:
    traffic: str
    start_up_s: float
    contender: str
    setting: float
    seed: int


@dataclass(frozen=True)
class Row:
    job: Job
    requests: int
    refused: int
    late: int
    replica_seconds: float
    peak: int
    changes_per_hour: float
    cpu_s: float


def run(job: Job) -> Row:
    began = time.process_time()
    served = traffic(job.traffic)
    new_policy = BY_NAME[job.contender].make(served, job.start_up_s, job.setting)
    result = simulate(served.scenario(job.start_up_s), new_policy, job.seed)
    return Row(
        job,
        result.requests,
        result.refused,
        result.late,
        result.replica_seconds,
        result.peak,
        result.changes_per_hour,
        time.process_time() - began,
    )


def in_processes(work: Callable[[A], B], jobs: Sequence[A]) -> Iterator[B]:
    """In order; a handful is done here, since a process costs more."""
    if len(jobs) < 4 or PROCESSES == 1:
        yield from map(work, jobs)
        return
    with ProcessPoolExecutor(PROCESSES) as pool:
        yield from pool.map(work, jobs, chunksize=2)


def points(rows: Iterable[Row]) -> dict[tuple[str, float, str], list[Point]]:
    """By (traffic, start-up, contender): a point a setting, means over its seeds."""
    by_setting: dict[tuple[str, float, str, float], list[Row]] = defaultdict(list)
    for row in rows:
        by_setting[row.job.traffic, row.job.start_up_s, row.job.contender, row.job.setting].append(row)
    found: dict[tuple[str, float, str], list[Point]] = defaultdict(list)
    for (name, start_up_s, contender, setting), same in by_setting.items():
        point = Point(
            setting=setting,
            cost=sum(row.replica_seconds for row in same) / len(same),
            bad=sum(row.refused + row.late for row in same) / len(same),
            requests=sum(row.requests for row in same) / len(same),
            peak=max(row.peak for row in same),
            changes_per_hour=sum(row.changes_per_hour for row in same) / len(same),
        )
        found[name, start_up_s, contender].append(point)
    return found
