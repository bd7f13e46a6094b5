"""What came of a run: bad requests, cost, changes, and the seconds behind them.

Owns counting. Its one idea: a request is judged by its first attempt, refused or late, so a client that tries again
makes no policy look better or worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass
class Series:
    """By second, for plots. `late` and `refused` count first attempts at the second of their arrival and refusal."""

    arrived: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)
    in_flight: list[float] = field(default_factory=list)
    queued: list[float] = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    issued: list[int] = field(default_factory=list)


@dataclass
class Tally:
    """Attempts over the whole run, for conservation: attempts = completed + refused + those still in the system.

    The rest only counts requests whose first attempt arrived after the warm-up. `lost`: refused at the
    last attempt too.
    """

    attempts: int = 0
    completed: int = 0
    turned_away: int = 0
    requests: int = 0
    refused: int = 0
    late: int = 0
    lost: int = 0


@dataclass(frozen=True)
class Result:
    """`replica_seconds`, `peak` and `changes` are of issued replicas, starting ones included, after the warm-up."""

    policy: str
    seed: int
    engine: str
    measured_s: float
    requests: int
    refused: int
    late: int
    lost: int
    attempts: int
    completed: int
    turned_away: int
    unfinished: int
    replica_seconds: float
    peak: int
    changes: int
    series: Series = field(repr=False)

    @property
    def bad(self) -> int:
        return self.refused + self.late

    @property
    def bad_share(self) -> float:
        return self.bad / self.requests if self.requests else 0.0

    @property
    def changes_per_hour(self) -> float:
        return self.changes * 3600 / self.measured_s if self.measured_s else 0.0


def result_of(
    policy: str, seed: int, engine: str, tally: Tally, unfinished: int, series: Series, warm_up_s: float
) -> Result:
    issued = series.issued[math.ceil(warm_up_s) :]
    changes = sum(before != after for before, after in pairwise(issued))
    return Result(
        policy=policy,
        seed=seed,
        engine=engine,
        measured_s=float(len(issued)),
        requests=tally.requests,
        refused=tally.refused,
        late=tally.late,
        lost=tally.lost,
        attempts=tally.attempts,
        completed=tally.completed,
        turned_away=tally.turned_away,
        unfinished=unfinished,
        replica_seconds=float(sum(issued)),
        peak=max(issued, default=0),
        changes=changes,
        series=series,
    )
