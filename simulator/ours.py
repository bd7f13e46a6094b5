"""The production autoscaler as a policy: the same samples, cycle and learner as in the controller.

Owns nothing of the decisions. Its one idea: what HAProxy's counters tell of one back end is made into samples exactly
as `controllers.autoscaler.load` makes them, and from there on the code that runs is the code that is judged.
"""

from __future__ import annotations

from collections import deque

from controllers.autoscaler.checkpoint import Arrivals, Checkpoint, entry_of, parse_entry
from controllers.autoscaler.cycle import Inputs, Remembered, cycle
from controllers.autoscaler.demand import presses
from controllers.autoscaler.gap import BRIDGE_MAX_S, bridged, mean_rps
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Prior, Revision, Role, observation_of
from controllers.autoscaler.settings import Settings
from simulator.learning import Learning
from simulator.policy import NewPolicy, Plain, Probe, QueueRules, Sample, Seen
from simulator.scenario import Scenario
from spec.endpoint import QUEUE_AT_LEAST
from spec.sizing import target_of

# Readings further apart are two beginnings, not one interval.
_INTERVAL_MAX_S = 5.0
_QUEUE_TIMEOUT_S = 5.0
_REVISION, _BALANCER = "simulated", "balancer"


def ours(
    scenario: Scenario, settings: Settings | None = None, queue: QueueRules | None = None, *, vertical: bool = True
) -> NewPolicy:
    """Makes the policy for an endpoint that declares the scenario's range, in requests."""
    chosen = settings or Settings()
    target = target_of(scenario.slots, chosen.utilization)
    concurrency = (int(scenario.min_replicas * target), int(scenario.max_replicas * target))
    rules = queue or QueueRules(total=max(QUEUE_AT_LEAST, concurrency[1]), timeout_s=_QUEUE_TIMEOUT_S)

    def made() -> Ours:
        self_test_s = scenario.service.mean_s
        learning = Learning(scenario.slots, self_test_s, concurrency[1]) if vertical else None
        return Ours(concurrency, chosen, rules, learning, self_test_s)

    return made


class Ours(Plain):
    """`concurrency`: the endpoint's min and max; `self_test_s`: what a request took alone before a replica was ready.
    The queue's defaults are an endpoint file's."""

    name = "ours"
    metric_delay_s = 0.0

    def __init__(
        self,
        concurrency: tuple[int, int],
        settings: Settings,
        queue: QueueRules,
        learning: Learning | None = None,
        self_test_s: float | None = None,
    ) -> None:
        self.queue = queue
        self.period_s = settings.sample_s  # to look whether a decision is due, as the controller does
        self._due_s = float("-inf")
        self.window_s = max(settings.up_window_s, settings.service_window_s) + 2.0
        self._concurrency, self._settings, self._learning = concurrency, settings, learning
        self._self_tested = Prior(self_test_s, measured=False) if self_test_s is not None else None
        self._remembered = Remembered()
        self._before: Checkpoint | None = None
        self._arrivals: Arrivals = {}
        self._asked: int | None = None
        self._samples: deque[LoadSample] = deque(maxlen=int(self.window_s))

    @property
    def limit(self) -> int | None:  # type: ignore[override]
        """The learnt limit of a replica; None where nothing learns."""
        return self._learning.limit if self._learning else None

    @property
    def probe(self) -> Probe | None:  # type: ignore[override]
        return self._learning.probe if self._learning else None

    @property
    def knee(self) -> float | None:
        """The learnt knee, None until one was met."""
        return self._learning.knee if self._learning else None

    def decide(self, seen: Seen) -> int | None:
        self._take_in(seen)
        if not self._is_due(seen.now_s):
            return None
        samples = tuple(self._samples)
        if self._learning:
            self._learning.learn_if_due(samples, seen)
        revisions = (self._revision(seen),)
        prior = self._remembered.prior or self._self_tested
        observation = observation_of(samples, revisions, self._concurrency, self._settings, seen.now_s, prior)
        inputs = Inputs(observation, self._settings, seen.now_s)
        self._remembered, turn = cycle(self._bridged(seen.now_s), inputs)
        self._asked = turn.verdict.decisions[0].desired
        return self._asked

    def keep(self, now_s: float) -> str:
        """A checkpoint, as the controller writes it. Moments are those of the run's own clock."""
        knowledge = {_REVISION: self._learning.to_keep} if self._learning else {}
        return entry_of(Checkpoint(_REVISION, now_s, self._remembered, self._arrivals, knowledge), 0.0)

    def resume(self, kept: str) -> None:
        before = parse_entry(kept, 0.0)
        self._before, self._remembered = before, before.remembered
        if self._learning and _REVISION in before.knowledge:
            self._learning.resume(before.knowledge[_REVISION])

    def _bridged(self, now_s: float) -> Remembered:
        """Over the gap since the checkpoint, where the balancer's count of arrivals tells it."""
        before = self._before
        if before is None:
            return self._remembered
        elapsed_s = now_s - before.written_s
        rps = mean_rps(before.arrivals, self._arrivals, elapsed_s)
        if rps is not None or elapsed_s > BRIDGE_MAX_S:
            self._before = None
        return bridged(self._remembered, rps, self._settings, now_s)

    def _is_due(self, now_s: float) -> bool:
        """Every cycle, and at once where the newest sample shows an overload."""
        if now_s < self._due_s and not presses(self._samples[-1] if self._samples else None):
            return False
        if now_s >= self._due_s:
            self._due_s = now_s + self._settings.cycle_s
        return True

    def _take_in(self, seen: Seen) -> None:
        """The samples since the last decision; the sampler that remembers them dies with the controller too."""
        last_s = self._samples[-1].at_s if self._samples else float("-inf")
        fresh = []
        for sample in reversed(seen.samples):
            if sample.at_s <= last_s:
                break
            fresh.append(sample)
        for sample in reversed(fresh):
            self._samples.append(load_sample(sample))
            if sample.known:
                self._arrivals = {_BALANCER: {_REVISION: sample.ever}}
            if self._learning:
                self._learning.count(sample)

    def _revision(self, seen: Seen) -> Revision:
        """Its target follows what is learnt; a probe is a question and moves no target."""
        limit = self._learning.limit if self._learning else seen.slots
        fleet = seen.fleet
        return Revision(
            name=_REVISION,
            role=Role.TRAFFIC,
            limit=limit,
            target=target_of(limit, self._settings.utilization),
            live=fleet.issued,
            ready=fleet.ready,
            asked=self._asked,
            starting=fleet.starting - fleet.failing,
            failing=fleet.failing,
            start_s=fleet.start_s,
            learnt=self._learning is None or self._learning.knee is not None,
        )


def load_sample(sample: Sample) -> LoadSample:
    """Gauges as they stand when read, rates over the time since the last reading."""
    if not sample.known:
        return LoadSample(sample.at_s, None, complete=False)
    load = Load(sample.in_flight_now, sample.queued_now)
    if sample.span_s <= _INTERVAL_MAX_S:
        load = Load(
            in_flight=sample.in_flight_now,
            queued=sample.queued_now,
            arrived_rps=sample.arrived,
            served_rps=sample.completed,
            refused_rps=sample.refused,
            retried_rps=sample.retried,
        )
    sane = load.sane
    return LoadSample(sample.at_s, load if sane else None, complete=sane)
