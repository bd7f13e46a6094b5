"""Several policies on one scenario, each over the same seeds; as rows, as JSON, as a plot.

Owns sums over runs. Its one idea: bad requests are added up over the runs before a share is taken, so no small run
weighs as much as a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from simulator.policy import NewPolicy
from simulator.result import Result
from simulator.scenario import Scenario
from simulator.simulate import Engine, simulate

HEADER = ("policy", "bad", "refused", "late", "replica-seconds", "peak", "changes/h")
_EXACT_MOST = 100_000  # requests a run that the exact engine is quick enough for
_PLOTTED = 200  # points a line


@dataclass(frozen=True)
class Compared:
    """One policy: sums over its runs of requests, the mean of the rest. `first` is the first run, for a plot."""

    policy: str
    runs: int
    requests: int
    refused: int
    late: int
    lost: int
    replica_seconds: float
    peak: float
    changes_per_hour: float
    first: Result

    @property
    def bad_share(self) -> float:
        return (self.refused + self.late) / self.requests if self.requests else 0.0


def engine_for(scenario: Scenario, requests: float) -> Engine:
    """Exact where that takes about a second a run."""
    return Engine.EXACT if requests <= _EXACT_MOST else Engine.COARSE


def compared(name: str, scenario: Scenario, new_policy: NewPolicy, seeds: Sequence[int], engine: Engine) -> Compared:
    results = [simulate(scenario, new_policy, seed, engine) for seed in seeds]

    def mean(of: Callable[[Result], float]) -> float:
        return sum(of(result) for result in results) / len(results)

    return Compared(
        policy=name,
        runs=len(results),
        requests=sum(result.requests for result in results),
        refused=sum(result.refused for result in results),
        late=sum(result.late for result in results),
        lost=sum(result.lost for result in results),
        replica_seconds=mean(lambda result: result.replica_seconds),
        peak=mean(lambda result: result.peak),
        changes_per_hour=mean(lambda result: result.changes_per_hour),
        first=results[0],
    )


def row(one: Compared) -> list[str]:
    """Cells under `HEADER`."""
    return [
        one.policy,
        f"{100 * one.bad_share:.2f} %",
        f"{one.refused:,}",
        f"{one.late:,}",
        f"{one.replica_seconds:,.0f}",
        f"{one.peak:g}",
        f"{one.changes_per_hour:.1f}",
    ]


def as_json(compared: Iterable[Compared], facts: Mapping[str, Any], *, series: bool) -> dict[str, Any]:
    """`facts`: what was simulated, in the caller's words. `series`: by second, of the first run."""
    rows = []
    for one in compared:
        fields = {key: value for key, value in vars(one).items() if key != "first"}
        more = {"series": asdict(one.first.series)} if series else {}
        rows.append({**fields, "bad_share": one.bad_share, **more})
    return {**facts, "policies": rows}


def plotted(values: Sequence[float]) -> list[float]:
    """At most 200 points, each the largest of its stretch, so that no peak is lost."""
    width = max(-(-len(values) // _PLOTTED), 1)
    return [max(values[begin : begin + width]) for begin in range(0, len(values), width)]
