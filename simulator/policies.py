"""The policies that can be named: ours and the rivals, each made for a scenario and, where it has one, at a setting.

Owns the names. Leaves what they decide to their modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from controllers.autoscaler.settings import Settings
from simulator.loads import Rates
from simulator.ours import ours
from simulator.policy import NewPolicy, QueueRules
from simulator.rivals.databricks import AsDescribed
from simulator.rivals.dynamo import Dynamo
from simulator.rivals.fixed import Clairvoyant, Static, needed
from simulator.rivals.hpa import Hpa, HpaOfPods
from simulator.rivals.kpa import Kpa
from simulator.rivals.ray import RayServe
from simulator.scenario import Scenario

_SLOWEST_START = 1.3  # of a median, for one who knows the future


@dataclass(frozen=True)
class Named:
    """`setting`: its default, a share of a replica's slots unless `of` says otherwise."""

    says: str
    setting: float
    make: Callable[[Scenario, float], NewPolicy]
    of: str = "utilization"


def _ours(scenario: Scenario, utilization: float) -> NewPolicy:
    return ours(scenario, replace(Settings(), utilization=utilization))


def _our_queue(scenario: Scenario) -> QueueRules:
    return ours(scenario)().queue


def _clairvoyant(scenario: Scenario, utilization: float) -> NewPolicy:
    load = scenario.load
    rates_rps = load.mean_counts(1.0) if isinstance(load, Rates) else load.counts(np.random.default_rng(0), 1.0)
    need = needed(rates_rps.tolist(), scenario.service.mean_s, utilization * scenario.slots)
    start_s = scenario.start_up.median_s * _SLOWEST_START
    return lambda: Clairvoyant(need, start_s, _our_queue(scenario))


POLICIES: Mapping[str, Named] = {
    "ours": Named("this platform's", Settings().utilization, _ours),
    "hpa": Named("Kubernetes HPA on requests of the whole endpoint", 0.7, lambda s, u: lambda: Hpa(u)),
    "hpa-pods": Named("Kubernetes HPA on requests by pod", 0.7, lambda s, u: lambda: HpaOfPods(u)),
    "kpa": Named("Knative", 0.7, lambda s, u: lambda: Kpa(u)),
    "ray": Named("Ray Serve", 0.7, lambda s, u: lambda: RayServe(u)),
    "dynamo": Named(
        "NVIDIA Dynamo's planner, for requests", 0.7, lambda s, u: lambda: Dynamo(s.service.mean_s, u, u / 0.7)
    ),
    "databricks": Named("Databricks, as described", 0.7, lambda s, u: lambda: AsDescribed(u)),
    "static": Named("always so many replicas", 5, lambda s, n: lambda: Static(int(n), _our_queue(s)), of="replicas"),
    "clairvoyant": Named("knows what comes", 0.7, _clairvoyant),
}


class PolicyError(ValueError):
    """A name or a setting that can't be meant."""


def named(text: str, scenario: Scenario) -> NewPolicy:
    """`hpa`, or at another setting `hpa=0.5`. Raises PolicyError."""
    name, equals, value = text.partition("=")
    found = POLICIES.get(name)
    if found is None:
        raise PolicyError(f"no policy {name!r}; there are {', '.join(POLICIES)}, and FILE.py:CLASS")
    try:
        setting = float(value) if equals else found.setting
    except ValueError:
        raise PolicyError(f"{text}: {value!r} is no number") from None
    if not 0 < setting <= (1 if found.of == "utilization" else 1_000_000):
        raise PolicyError(f"{text}: {found.of} is above 0" + (" and at most 1" if found.of == "utilization" else ""))
    return found.make(scenario, setting)
