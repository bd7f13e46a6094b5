"""Everything the watches and the balancer say of one endpoint -> what a cycle decides on. Pure.

Owns which facts a cycle sees and that all of them are of one moment. Leaves what they lead to to `cycle`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controllers.autoscaler.budget import budget_of
from controllers.autoscaler.control import in_force
from controllers.autoscaler.cycle import Inputs, Remembered
from controllers.autoscaler.load import LoadSample
from controllers.autoscaler.observation import Observation, Prior, Revision, Role, observation_of
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.starts import Past, starts_of
from controllers.autoscaler.vertical.signals import Signals
from controllers.autoscaler.vertical.thresholds import mean_of
from controllers.autoscaler.view import Endpoint, Limit, revisions_of
from controllers.kube.fields import key_of, number
from controllers.kube.resources import Object


@dataclass(frozen=True)
class Seen:
    """`endpoint.asked` is what was last asked for; `workloads` run its revisions; `past` is what is remembered of its
    pods' starts; `limits` of a replica, by revision."""

    endpoint: Endpoint
    workloads: Sequence[Object]
    pods: Sequence[Object]
    quotas: Sequence[Object]
    samples: Sequence[LoadSample]
    past: Past
    limits: Mapping[str, Limit] = field(default_factory=dict)
    prior: Prior | None = None


def prior_of(remembered: Remembered, pods: Iterable[Signals]) -> Prior | None:
    """What requests took when that was last measured, else what pods' tests of themselves took, in the mean."""
    if remembered.prior is not None:
        return remembered.prior
    self_test_ms = mean_of(pods).self_test_ms
    return Prior(self_test_ms / 1000, measured=False) if self_test_ms is not None else None


def inputs_of(seen: Seen, settings: Settings, now_s: float, wall_s: float) -> tuple[Inputs, Past]:
    """The cycle's inputs, and what is to be remembered of the pods' starts by now."""
    endpoint = seen.endpoint
    replicas = {key_of(workload)[1]: number(workload, "spec", "replicas") for workload in seen.workloads}
    starts, past = starts_of(seen.pods, seen.past, replicas)
    revisions = revisions_of(endpoint, seen.workloads, settings.utilization, starts, seen.limits)
    concurrency = (endpoint.concurrency_min, endpoint.concurrency_max)
    observation = observation_of(seen.samples, revisions, concurrency, settings, now_s, seen.prior)
    observation = replace(observation, budget=_budget(observation, seen))
    return Inputs(observation, settings, now_s, in_force(endpoint.control, wall_s)), past


def _budget(observation: Observation, seen: Seen) -> int | None:
    """That of the revision with the traffic. A successor that finds no room waits; it is never taken for sized."""
    order = list(Role)
    main: Revision | None = min(observation.revisions, key=lambda r: order.index(r.role), default=None)
    if main is None:
        return None
    workload = next(each for each in seen.workloads if key_of(each)[1] == main.name)
    return budget_of(seen.quotas, workload, main.issued)
