"""One run: a scenario, a policy, a seed -> a result. The same three give the same result, bit for bit."""

from __future__ import annotations

from simulator.coarse import simulate_coarsely
from simulator.policy import NewPolicy
from simulator.result import Result
from simulator.scenario import Scenario


def simulate(scenario: Scenario, new_policy: NewPolicy, seed: int = 0) -> Result:
    """`new_policy` makes the policy, at the start and after each of the scenario's restarts."""
    return simulate_coarsely(scenario, new_policy, seed)
