"""The goals set for the autoscaler, each beside what was measured. Pure; a missed goal is a finding, no failure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from tests.bench.autoscaler.learning import DEPENDENCY, MIS_SET, Learnt
from tests.bench.autoscaler.loads import Kind
from tests.bench.autoscaler.steady import Steadied
from tests.bench.autoscaler.step import Stepped
from tests.bench.autoscaler.sweep import Compared, summed

AGAINST_BURSTY = {30.0: 1 / 3, 120.0: 1 / 2}
SMOOTH_COST = 0.9
LOST_OVER_START_UP_S = 6.0
PEAK = {"no retries": 1.2, "2 retries, marked": 1.2, "5 retries, marked": 1.2}
PEAK_UNMARKED = 1.6
KNEE_ERROR = 0.2
STEPS_WHILE_SLOW = 1.0
CHANGES = {True: 1.0, False: 2.0}  # at five replicas or more; below


@dataclass(frozen=True)
class Goal:
    """`measured` is to be at most `most`. `note`: what else a reader must know of the number."""

    text: str
    measured: float
    most: float
    note: str = ""

    @property
    def met(self) -> bool:
        return self.measured <= self.most

    @property
    def verdict(self) -> str:
        if self.met:
            return "met"
        over = f" ({self.measured / self.most - 1:+.0%})" if self.most else ""
        return f"missed by {self.measured - self.most:.2f}{over}"


def of_curves(cases: Sequence[Compared]) -> Iterator[Goal]:
    """The goals for bursty traffic over all of it, then over each of its two kinds."""
    for start_up_s in dict.fromkeys(case.case[1] for case in cases):
        those = [case for case in cases if case.case[1] == start_up_s]
        smooth, bursty, surge = ([case for case in those if case.kind is kind] for kind in Kind)
        yield from _bursty(bursty + surge, f"bursty and surges, {start_up_s:.0f} s", AGAINST_BURSTY.get(start_up_s))
        yield from _bursty(bursty, f"bursty alone, {start_up_s:.0f} s", AGAINST_BURSTY.get(start_up_s))
        yield from _smooth(smooth, start_up_s)


def _bursty(cases: Sequence[Compared], of: str, most: float | None) -> Iterator[Goal]:
    """`prompt` stands beside: what no policy avoids that waits for the load to come and holds no spare replicas."""
    least = summed(cases, "prompt").rival_bad
    for rival, name, goal in (("hpa", "HPA", most), ("kpa", "KPA", most), ("static", "the best constant fleet", 1.0)):
        total = summed(cases, rival)
        if goal is not None and total.rival_bad:
            note = f"{total.bad:.0f} / {total.rival_bad:.0f}; worse in {total.worse} of {len(cases)}"
            note += f"; prompt {least:.0f}" if least else ""
            yield Goal(f"{of}: bad requests over those of {name} at equal cost", total.bad_ratio, goal, note)


def _smooth(cases: Sequence[Compared], start_up_s: float) -> Iterator[Goal]:
    for rival, name in (("hpa", "HPA"), ("kpa", "KPA")):
        total = summed(cases, rival)
        if total.rival_cost:
            text = f"smooth, {start_up_s:.0f} s: cost over that of {name} at equal bad requests"
            note = f"not reached by {name} in {total.cost_beyond} of {len(cases)}" if total.cost_beyond else ""
            yield Goal(text, total.cost_ratio, SMOOTH_COST, note)


def of_steps(steps: Sequence[Stepped]) -> Iterator[Goal]:
    for step in steps:
        if step.contender != "ours":
            continue
        name = f"step, {step.start_up_s:.0f} s, {step.clients}"
        if step.clients in PEAK:
            yield Goal(
                f"{name}: traffic lost beyond the start-up, s", step.lost_s - step.start_up_s, LOST_OVER_START_UP_S
            )
        yield Goal(f"{name}: peak over ideal", step.peak_ratio, PEAK.get(step.clients, PEAK_UNMARKED))


def of_steadiness(found: Sequence[Steadied]) -> Iterator[Goal]:
    for large, most in CHANGES.items():
        sizes = [one for one in found if one.contender == "ours" and (one.size >= 5) is large]
        if sizes:
            text = f"constant load, {'5 replicas or more' if large else 'fewer than 5'}: changes an hour"
            yield Goal(
                text, mean(one.changes for one in sizes), most, f"worst size {max(s.changes for s in sizes):.1f}"
            )


def of_learning(found: Sequence[Learnt]) -> Iterator[Goal]:
    """Nothing for what no vertical axis in the loop has measured."""
    for one in found:
        if one.case in MIS_SET and one.limit is not None:
            for what, error in (("after 10 minutes", one.error), ("at its worst later", one.worst)):
                measured = math.inf if error is None else error
                yield Goal(f"limit {one.case}: error of the knee {what}", measured, KNEE_ERROR, "worst seed")
        if one.case == DEPENDENCY and one.limit is not None:
            yield Goal(f"{one.case}: steps of the limit in ten minutes", one.steps, STEPS_WHILE_SLOW, "worst seed")
