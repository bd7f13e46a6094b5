"""The production learner of a replica's limit around a simulated endpoint.

Owns when it learns and what its advice makes of limits. Leaves learning to `controllers.autoscaler.vertical`. Its one
idea: it learns where the engine counts by replica, as HAProxy does; the coarse engine does not, and there the limit
stays as declared.
"""

from __future__ import annotations

from collections.abc import Sequence

from controllers.autoscaler.load import Counters, LoadSample
from controllers.autoscaler.vertical.evidence import Tallies, evidence_of, next_epoch, tally
from controllers.autoscaler.vertical.knowledge import Knowledge, settled
from controllers.autoscaler.vertical.learner import Advice, learn
from controllers.autoscaler.vertical.settings import Settings
from controllers.autoscaler.vertical.signals import Signals
from simulator.policy import Probe, Sample, Seen

_UNIX_S = 1_700_000_000.0  # knowledge is dated by the wall's clock


class Learning:
    """`service_s`: what the self-test at concurrency 1 took."""

    def __init__(
        self, first_limit: int, service_s: float, concurrency_max: int, settings: Settings | None = None
    ) -> None:
        self._settings = settings or Settings()
        self._signals = Signals(self_test_ms=1000 * service_s)
        self._concurrency_max = concurrency_max
        self._knowledge = Knowledge(limit=first_limit)
        self._advice: Advice | None = None
        self._due_s = self._settings.epoch_s
        self._tallies: Tallies = {}
        self._before: tuple[float, Counters] | None = None

    @property
    def limit(self) -> int:
        """Of all replicas but a probed one."""
        return self._knowledge.limit

    @property
    def probe(self) -> Probe | None:
        asked = self._advice.probe if self._advice else None
        if asked is None or asked.pod is None:
            return None
        return Probe(int(asked.pod), asked.limit, asked.weight)

    @property
    def to_keep(self) -> Knowledge:
        return settled(self._knowledge)

    def resume(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge

    def count(self, sample: Sample) -> None:
        """What each replica did since the last sample that came through."""
        if not sample.known or sample.pods is None:
            return
        now = Counters(0, 0, {f"{number:06d}": counts for number, counts in sample.pods.items()})
        before_s, before = self._before or (sample.at_s, None)
        self._tallies = tally(self._tallies, before, now, sample.at_s - before_s, sample.at_s)
        self._before = sample.at_s, now

    @property
    def knee(self) -> float | None:
        return self._knowledge.knee

    def learn_if_due(self, samples: Sequence[LoadSample], seen: Seen) -> None:
        if seen.now_s < self._due_s or not self._tallies:
            return
        self._due_s = seen.now_s + self._settings.epoch_s
        fleet = seen.fleet
        evidence = evidence_of(
            samples,
            self.limit,
            fleet.ready,
            self._settings,
            seen.now_s,
            tallies=self._tallies,
            signals=self._signals,
            unsettled="pods start" if fleet.starting or fleet.rolling else None,
            concurrency_max=self._concurrency_max,
        )
        self._knowledge, self._advice = learn(self._knowledge, evidence, self._settings, _UNIX_S + seen.now_s)
        self._tallies = next_epoch(self._tallies)
