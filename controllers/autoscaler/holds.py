"""Who or what holds an endpoint's replicas, as conditions: each is there while it is true and gone otherwise. Pure.

Owns the words. Leaves to `status` when they are written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from controllers.autoscaler.circuit import Circuit, Phase
from controllers.autoscaler.control import Control, Mode
from controllers.autoscaler.core import Decision, Verdict
from controllers.autoscaler.cycle import Turn
from controllers.autoscaler.observation import Role
from controllers.autoscaler.rules import Reason
from controllers.autoscaler.settings import Settings
from controllers.kube.fields import timestamp

CONTROL_IGNORED = "ControlIgnored"


@dataclass(frozen=True)
class Hold:
    """`kind` is the condition's type and reason."""

    kind: str
    message: str


TYPES = (
    str(Reason.UNKNOWN),
    str(Reason.CIRCUIT),
    str(Reason.PAUSED),
    str(Reason.DRY_RUN),
    str(Reason.OVERRIDDEN),
    CONTROL_IGNORED,
    str(Reason.BUDGET),
    str(Reason.CEILING),
)


def main(decisions: tuple[Decision, ...]) -> Decision | None:
    """The one that people ask for: with the traffic, or about to get it."""
    order = list(Role)
    return min(decisions, key=lambda decision: order.index(decision.role), default=None)


def holds(
    turn: Turn,
    circuits: Mapping[str, Circuit],
    control: Control | None,
    ignored: str | None,
    settings: Settings,
) -> tuple[Hold, ...]:
    """In the order of `TYPES`. `ignored`: what is wrong with a person's hold that can't be read."""
    found = [*_unknown(turn.verdict, settings), *_circuit(circuits), *_control(turn, control)]
    if ignored is not None:
        found.append(Hold(CONTROL_IGNORED, f"the annotation of a hold is ignored: {ignored}"))
    found += _bounds(turn.verdict)
    return tuple(sorted(found, key=lambda hold: TYPES.index(hold.kind)))


def _unknown(verdict: Verdict, settings: Settings) -> Iterator[Hold]:
    if verdict.unknown_s >= settings.silence_s:
        yield Hold(str(Reason.UNKNOWN), "the load is not known in full; replicas are held, never lowered")


def _circuit(circuits: Mapping[str, Circuit]) -> Iterator[Hold]:
    shut = {name: circuit for name, circuit in sorted(circuits.items()) if circuit.phase is not Phase.CLOSED}
    if shut:
        said = "; ".join(_shut(name, circuit) for name, circuit in shut.items())
        yield Hold(str(Reason.CIRCUIT), f"pods fail to start: {said}")


def _shut(name: str, circuit: Circuit) -> str:
    if circuit.phase is Phase.HALF_OPEN:
        return f"{name} may have one more, {circuit.most} replicas, as a trial"
    return f"{name} gets no more than {circuit.most} replicas for {circuit.pause_s:.0f} s"


def _control(turn: Turn, control: Control | None) -> Iterator[Hold]:
    if control is None:
        return
    until = f" until {timestamp(control.until_s)}" if control.until_s is not None else ""
    if control.mode is Mode.SCALE:
        yield Hold(str(Reason.OVERRIDDEN), f"a person asked for {control.replicas} replicas{until}")
    elif control.mode is Mode.PAUSE:
        yield Hold(str(Reason.PAUSED), f"replicas are held{until or ', until `knobless resume`'}")
    else:
        wanted = main(turn.proposed.decisions)
        would = f"; the load asks for {wanted.desired}" if wanted is not None else ""
        yield Hold(str(Reason.DRY_RUN), f"decisions are told and not carried out{until}{would}")


def _bounds(verdict: Verdict) -> Iterator[Hold]:
    decision = main(verdict.decisions)
    spoke = {rule for rule, _ in decision.trace} if decision is not None else set()
    if "budget" in spoke:
        yield Hold(str(Reason.BUDGET), "the load asks for more than the namespace's quota leaves")
    if "ceiling" in spoke:
        yield Hold(str(Reason.CEILING), "the load asks for more than concurrency.max allows")
