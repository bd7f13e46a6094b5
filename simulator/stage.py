"""What surrounds the requests of a run, the same for both engines: load, replicas, controller, meter, and chance.

Owns the end of each second. Its one idea: each part has its own stream of chance from the one seed, so a run that adds
a lost sample still sees the same arrivals and the same start-ups.
"""

from __future__ import annotations

import numpy as np

from simulator.control import Control
from simulator.fleet import Fleet, Moved
from simulator.meter import Meter
from simulator.policy import NewPolicy, Pods
from simulator.result import Result, result_of
from simulator.scenario import Scenario

_BINS_S = (0.25, 0.2, 0.1, 0.05, 0.025, 0.02, 0.01)
_BINS_A_SERVICE = 4


def bin_s_for(scenario: Scenario) -> float:
    """A quarter of a mean service time, between 0.01 and 0.25 s: 0.2 s -> 0.05."""
    return next((b for b in _BINS_S if b * _BINS_A_SERVICE <= scenario.service.mean_s), _BINS_S[-1])


class Stage:
    def __init__(self, scenario: Scenario, new_policy: NewPolicy, seed: int) -> None:
        self.arrivals_random, fleet, control, self.service_random, self.random = (
            np.random.default_rng(stream) for stream in np.random.SeedSequence(seed).spawn(5)
        )
        self.scenario, self._seed = scenario, seed
        self.bin_s = bin_s_for(scenario)
        self.fleet = Fleet(scenario.start_up, scenario.initial, scenario.rollouts_s, fleet)
        self.control = Control(scenario, new_policy, control)
        self.meter = Meter(scenario)

    @property
    def limit(self) -> int:
        """Requests in flight that a replica is given at most, as the policy says now."""
        said = self.control.policy.limit
        return self.scenario.slots if said is None else max(said, 1)

    def close(self, second: int, in_flight: int, queued: int, terminating: int, pods: Pods | None = None) -> Moved:
        """The end of a second: its sample, then perhaps a decision and what it moves."""
        now_s, ready = second + 1.0, self.fleet.ready
        self.control.observe(self.meter.close(second, in_flight, queued, (ready, self.fleet.issued), pods))
        wanted = self.control.wanted(now_s, self.fleet.counted(terminating))
        return Moved() if wanted is None else self.fleet.ask(wanted, now_s)

    def result(self, engine: str, unfinished: int) -> Result:
        name, warm_up_s = self.control.policy.name, self.scenario.warm_up_s
        return result_of(name, self._seed, engine, self.meter.tally, unfinished, self.meter.series, warm_up_s)
