"""One cycle of one endpoint, whole: what was remembered and what is seen -> what is remembered and what to make true.

Owns the way through the parts: starts, `decide`, a person's hold, the circuit. Its one idea: all that a cycle rests on
is two values, so a checkpoint is the first of them and a replay is this function once more. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controllers.autoscaler.circuit import Circuit, advance, most
from controllers.autoscaler.control import Control, controlled
from controllers.autoscaler.core import Decision, State, Verdict, decide
from controllers.autoscaler.moment import Moment
from controllers.autoscaler.observation import Observation, Prior, Revision, Role
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings


@dataclass(frozen=True)
class Remembered:
    """All that outlives a cycle, and by a checkpoint the process: demand, circuits by revision, W, time to ready."""

    state: State = field(default_factory=State)
    circuits: Mapping[str, Circuit] = field(default_factory=dict)
    service_time_s: float | None = None
    start_s: float | None = None

    @property
    def prior(self) -> Prior | None:
        """What a request took when that was last measured."""
        return Prior(self.service_time_s, measured=True) if self.service_time_s is not None else None


@dataclass(frozen=True)
class Inputs:
    """All that a cycle sees. `control` is a hold that is in force."""

    observation: Observation
    settings: Settings
    now_s: Moment
    control: Control | None = None


@dataclass(frozen=True)
class Turn:
    """`proposed` is what the load asks for, `verdict` what is to be made true."""

    proposed: Verdict
    verdict: Verdict


def cycle(remembered: Remembered, inputs: Inputs) -> tuple[Remembered, Turn]:
    observation = _with_start(inputs.observation, remembered.start_s)
    state, proposed = decide(remembered.state, observation, inputs.settings, inputs.now_s)
    circuits = {
        revision.name: advance(remembered.circuits.get(revision.name, Circuit()), revision, inputs.now_s)
        for revision in observation.revisions
    }
    verdict = _guarded(controlled(proposed, observation, inputs.control), circuits)
    service_time_s = observation.service_time_s
    return (
        Remembered(
            state=state,
            circuits={name: circuit for name, circuit in circuits.items() if circuit != Circuit()},
            service_time_s=service_time_s if service_time_s is not None else remembered.service_time_s,
            start_s=_start_s(observation, remembered.start_s),
        ),
        Turn(proposed, verdict),
    )


def _with_start(observation: Observation, start_s: float | None) -> Observation:
    """A revision of which no pod was ready yet is expected to start as the endpoint's pods did before."""

    def known(revision: Revision) -> Revision:
        return revision if revision.start_s is not None else replace(revision, start_s=start_s)

    return replace(observation, revisions=tuple(known(revision) for revision in observation.revisions))


def _start_s(observation: Observation, before_s: float | None) -> float | None:
    """That of the revision with the traffic, else of any."""
    order = list(Role)
    known = [r for r in observation.revisions if r.start_s is not None]
    first = min(known, key=lambda revision: order.index(revision.role), default=None)
    return first.start_s if first is not None else before_s


def _guarded(verdict: Verdict, circuits: Mapping[str, Circuit]) -> Verdict:
    return replace(verdict, decisions=tuple(_within(d, circuits.get(d.revision, Circuit())) for d in verdict.decisions))


def _within(decision: Decision, circuit: Circuit) -> Decision:
    """No more than the circuit lets pass, and nothing less than was asked for already."""
    allowed = most(circuit)
    if allowed is None or decision.desired <= max(allowed, decision.issued):
        return decision
    replicas = max(allowed, decision.issued)
    trace = (*decision.trace, ("circuit", replicas))
    return replace(decision, desired=replicas, reason=Reason.CIRCUIT, trace=trace)
