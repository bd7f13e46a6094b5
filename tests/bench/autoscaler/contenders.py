"""Who competes, and at which settings each is swept: ours and the rivals, every one with its target from low to high.

A rival whose queue its makers don't state competes with both that bracket it, and counts by its better result at each
cost. The setting is a share of a replica's slots, but for the constant fleet, where it is a size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from controllers.autoscaler.settings import Settings
from simulator.ours import ours
from simulator.policy import NewPolicy, QueueRules
from simulator.rivals.databricks import AsDescribed
from simulator.rivals.dynamo import Dynamo
from simulator.rivals.fixed import Clairvoyant, Prompt, Static, needed
from simulator.rivals.hpa import Hpa, HpaOfPods
from simulator.rivals.kpa import Kpa
from simulator.rivals.ray import RayServe
from tests.bench.autoscaler.loads import Traffic

SWEEP = (0.45, 0.6, 0.75, 0.95)
FAR = (0.5, 0.7, 0.9)  # those whom the goals do not name
ROUGH = (0.6, 0.9)
DEFAULT = Settings().utilization


@dataclass(frozen=True)
class Contender:
    """`family`: under which name its results count. `settings`: its sweep."""

    name: str
    family: str
    settings: tuple[float, ...]
    make: Callable[[Traffic, float, float], NewPolicy]


def _ours(traffic: Traffic, start_up_s: float, setting: float) -> NewPolicy:
    """The horizontal axis alone: these replicas have no knee, and the limit is as declared for everyone."""
    return ours(
        traffic.scenario(start_up_s),
        replace(Settings(), utilization=setting, pooled=min(Settings().pooled, setting + 0.1)),
        vertical=False,
    )


def _bounded(traffic: Traffic, start_up_s: float) -> QueueRules:
    """The queue that ours gets."""
    return ours(traffic.scenario(start_up_s))().queue


def _clairvoyant(traffic: Traffic, start_up_s: float, setting: float) -> NewPolicy:
    need = needed(traffic.rates_rps, traffic.service_s, setting * traffic.slots)
    return lambda: Clairvoyant(need, start_up_s * 1.3, _bounded(traffic, start_up_s))


def _prompt(traffic: Traffic, start_up_s: float, setting: float) -> NewPolicy:
    need = needed(traffic.rates_rps, traffic.service_s, setting * traffic.slots)
    return lambda: Prompt(need, queue=_bounded(traffic, start_up_s))


def _static(traffic: Traffic, start_up_s: float, setting: float) -> NewPolicy:
    return lambda: Static(int(setting), _bounded(traffic, start_up_s))


CONTENDERS = (
    Contender("ours", "ours", (0.4, 0.6, DEFAULT, 0.9), _ours),
    Contender("hpa", "hpa", SWEEP, lambda t, s, u: lambda: Hpa(u)),
    Contender("hpa-queue", "hpa", SWEEP, lambda t, s, u: lambda: Hpa(u, queue=_bounded(t, s))),
    Contender("hpa-plain", "hpa", SWEEP, lambda t, s, u: lambda: Hpa(u, behavior=False)),
    Contender("hpa-pods", "hpa", SWEEP, lambda t, s, u: lambda: HpaOfPods(u)),
    Contender("kpa", "kpa", SWEEP, lambda t, s, u: lambda: Kpa(u)),
    Contender("ray", "ray", ROUGH, lambda t, s, u: lambda: RayServe(u)),
    Contender("dynamo", "dynamo", ROUGH, lambda t, s, u: lambda: Dynamo(t.service_s, u, u / 0.7)),
    Contender("databricks", "databricks", FAR, lambda t, s, u: lambda: AsDescribed(u)),
    Contender("databricks-queue", "databricks", FAR, lambda t, s, u: lambda: AsDescribed(u, _bounded(t, s))),
    Contender("clairvoyant", "clairvoyant", (0.7,), _clairvoyant),
    Contender("prompt", "prompt", (0.4, 0.6, 0.85), _prompt),
    Contender("static", "static", (), _static),
)
# By default each family's kindest queue; the others, where a full run shows them to be no better, in a full run.
DEFAULTS = ("ours", "hpa-queue", "kpa", "databricks-queue", "ray", "dynamo", "clairvoyant", "prompt", "static")
BY_NAME = {contender.name: contender for contender in CONTENDERS}
