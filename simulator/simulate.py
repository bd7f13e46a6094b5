"""One run: a scenario, a policy, a seed -> a result. The same three give the same result, bit for bit."""

from __future__ import annotations

from enum import StrEnum

from simulator.coarse import simulate_coarsely
from simulator.exact import simulate_exactly
from simulator.policy import NewPolicy
from simulator.result import Result
from simulator.scenario import Scenario


class Engine(StrEnum):
    """EXACT: by request; COARSE: by bins of time, some ten to a hundred times as fast."""

    EXACT = "exact"
    COARSE = "coarse"


def simulate(scenario: Scenario, new_policy: NewPolicy, seed: int = 0, engine: Engine = Engine.COARSE) -> Result:
    """`new_policy` makes the policy, at the start and after each of the scenario's restarts."""
    run = simulate_exactly if engine is Engine.EXACT else simulate_coarsely
    return run(scenario, new_policy, seed)
