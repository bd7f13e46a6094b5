"""The controller's side of a run: samples on their way to the policy, and when it decides.

Owns lost, late and absurd samples, periods, restarts and the bounds of the scenario. Leaves replicas to `fleet`. Its
one idea: a policy sees what its own delay lets through, and nothing else of the world.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from simulator.policy import Fleet, NewPolicy, Sample, Seen
from simulator.scenario import Scenario

_KEPT_EVERY_S = 60.0
_ABSURD = (math.nan, math.inf, -5.0, 1e9)


class Control:
    def __init__(self, scenario: Scenario, new_policy: NewPolicy, random: np.random.Generator) -> None:
        self._scenario, self._new_policy, self._random = scenario, new_policy, random
        self.policy = new_policy()
        self._samples: list[Sample] = []
        self._owed: list[Sample] = []  # since the last one that came through
        self._first = 0  # index of the first sample that this controller has seen
        self._dead_until_s = 0.0
        self._kept: str | None = None
        self._keep_at_s = _KEPT_EVERY_S
        self._restarts = sorted(scenario.restarts, key=lambda restart: restart.at_s)
        self._due_s = float(random.integers(0, max(int(self.policy.period_s), 1)) + 1)

    def observe(self, sample: Sample) -> None:
        """Adds one a second: as it was, lost or absurd."""
        self._owed.append(sample)
        if self._is_lost(sample.at_s):
            self._samples.append(replace(sample, known=False))
            return
        whole = sample if len(self._owed) == 1 else _over(self._owed)
        self._owed.clear()
        metrics = self._scenario.metrics
        if metrics.absurd and self._random.random() < metrics.absurd:
            wrong = _ABSURD[int(self._random.integers(len(_ABSURD)))]
            whole = replace(whole, in_flight=wrong, queued=wrong, in_flight_now=wrong, queued_now=wrong)
        self._samples.append(whole)

    def _is_lost(self, at_s: float) -> bool:
        metrics = self._scenario.metrics
        by_chance = metrics.lost > 0 and self._random.random() < metrics.lost
        return by_chance or any(at_s in span for span in metrics.silent)

    def wanted(self, now_s: float, fleet: Fleet) -> int | None:
        """The replicas to ask for, inside the scenario's bounds; None: nothing changes. Called once a second."""
        if self._restarts and self._restarts[0].at_s <= now_s:
            self._restart(now_s)
        if now_s < self._due_s or now_s < self._dead_until_s:
            return None
        self._due_s = max(self._due_s + max(self.policy.period_s, 1.0), now_s + 0.5)
        said = self.policy.decide(Seen(now_s, self._visible(now_s), fleet, self._scenario.slots))
        if now_s >= self._keep_at_s:
            self._keep_at_s = now_s + _KEPT_EVERY_S
            self._kept = self.policy.keep(now_s)
        if said is None or said == fleet.issued:
            return None
        return min(max(said, self._scenario.min_replicas), self._scenario.max_replicas)

    def _restart(self, now_s: float) -> None:
        self._dead_until_s = now_s + self._restarts.pop(0).down_s
        self._first = len(self._samples) + int(self._dead_until_s - now_s)
        self.policy = self._new_policy()
        if self._kept is not None:
            self.policy.resume(self._kept)

    def _visible(self, now_s: float) -> list[Sample]:
        """Samples are one a second, so ages are counts."""
        delay_s = self.policy.metric_delay_s + self._scenario.metrics.late_s
        end = max(len(self._samples) - math.ceil(delay_s), 0)
        begin = max(end - math.ceil(self.policy.window_s), self._first, 0)
        return self._samples[begin:end]


def _over(samples: list[Sample]) -> Sample:
    """The newest, with counts per second over all of them."""
    spans = len(samples)
    return replace(
        samples[-1],
        arrived=sum(sample.arrived for sample in samples) / spans,
        retried=sum(sample.retried for sample in samples) / spans,
        refused=sum(sample.refused for sample in samples) / spans,
        completed=sum(sample.completed for sample in samples) / spans,
        span_s=float(spans),
    )
