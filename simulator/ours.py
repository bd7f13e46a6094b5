"""The production autoscaler as a policy: the same samples, observation and decision as in the controller.

Owns nothing of the decision. Its one idea: what HAProxy's counters tell of one back end is made into samples exactly as
`controllers.autoscaler.load` makes them, and from there on the code that runs is the code that is judged.
"""

from __future__ import annotations

from collections import deque

from controllers.autoscaler.core import State, decide
from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.observation import Revision, Role, observation_of
from controllers.autoscaler.settings import Settings
from simulator.policy import NewPolicy, Plain, QueueRules, Sample, Seen
from simulator.scenario import Scenario
from spec.endpoint import QUEUE_AT_LEAST
from spec.sizing import target_of

# Readings further apart are two beginnings, not one interval.
_INTERVAL_MAX_S = 5.0
_QUEUE_TIMEOUT_S = 5.0
_REVISION = "simulated"


def ours(scenario: Scenario, settings: Settings | None = None, queue: QueueRules | None = None) -> NewPolicy:
    """Makes the policy for an endpoint that declares the scenario's range, in requests."""
    chosen = settings or Settings()
    target = target_of(scenario.slots, chosen.utilization)
    concurrency = (int(scenario.min_replicas * target), int(scenario.max_replicas * target))
    rules = queue or QueueRules(total=max(QUEUE_AT_LEAST, concurrency[1]), timeout_s=_QUEUE_TIMEOUT_S)
    return lambda: Ours(concurrency, chosen, rules)


class Ours(Plain):
    """`concurrency`: the endpoint's min and max. The queue's defaults are an endpoint file's."""

    name = "ours"
    metric_delay_s = 0.0

    def __init__(self, concurrency: tuple[int, int], settings: Settings, queue: QueueRules) -> None:
        self.queue = queue
        self.period_s = settings.cycle_s
        self.window_s = max(settings.up_window_s, settings.service_window_s) + 2.0
        self._concurrency, self._settings = concurrency, settings
        self._state = State()
        self._asked: int | None = None
        self._samples: deque[LoadSample] = deque(maxlen=int(self.window_s))

    def decide(self, seen: Seen) -> int | None:
        self._take_in(seen)
        observation = observation_of(
            tuple(self._samples), (self._revision(seen),), self._concurrency, self._settings, seen.now_s
        )
        self._state, verdict = decide(self._state, observation, self._settings, seen.now_s)
        self._asked = verdict.decisions[0].desired
        return self._asked

    def _take_in(self, seen: Seen) -> None:
        """The samples since the last decision; the sampler that remembers them dies with the controller too."""
        last_s = self._samples[-1].at_s if self._samples else float("-inf")
        fresh = []
        for sample in reversed(seen.samples):
            if sample.at_s <= last_s:
                break
            fresh.append(load_sample(sample))
        self._samples.extend(reversed(fresh))

    def _revision(self, seen: Seen) -> Revision:
        return Revision(
            name=_REVISION,
            role=Role.TRAFFIC,
            limit=seen.slots,
            target=target_of(seen.slots, self._settings.utilization),
            live=seen.fleet.issued,
            ready=seen.fleet.ready,
            asked=self._asked,
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
        )
    return LoadSample(sample.at_s, load if load.sane else None, complete=load.sane)
