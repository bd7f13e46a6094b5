"""A revision's circuit: while its pods fail to start, no more of them are asked for. Pure.

Owns the protocol, one table of phases and events. Leaves to `pods` what a failed start is. Its one idea: a success is
worth more than a failure. One pod that becomes ready closes the circuit, and what still fails then is tolerated, so a
broken node among many good ones stops nobody.
"""

from dataclasses import dataclass
from enum import StrEnum

from controllers.autoscaler.moment import Moment
from controllers.autoscaler.observation import Revision

PAUSE_FIRST_S = 30.0
PAUSE_MAX_S = 600.0
FAILURES = 2


class Phase(StrEnum):
    """CLOSED lets everything pass, OPEN nothing more, HALF_OPEN one replica more than were asked for."""

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


class Event(StrEnum):
    """FAILED: more starts fail than are tolerated. SUCCEEDED: a pod became ready. RECOVERED: none fails any more.
    WAITED: the pause is over."""

    FAILED = "Failed"
    SUCCEEDED = "Succeeded"
    RECOVERED = "Recovered"
    WAITED = "Waited"


TABLE: dict[tuple[Phase, Event], Phase] = {
    (Phase.CLOSED, Event.FAILED): Phase.OPEN,
    (Phase.OPEN, Event.SUCCEEDED): Phase.CLOSED,
    (Phase.OPEN, Event.RECOVERED): Phase.CLOSED,
    (Phase.OPEN, Event.WAITED): Phase.HALF_OPEN,
    (Phase.HALF_OPEN, Event.SUCCEEDED): Phase.CLOSED,
    (Phase.HALF_OPEN, Event.RECOVERED): Phase.CLOSED,
    (Phase.HALF_OPEN, Event.FAILED): Phase.OPEN,
}


@dataclass(frozen=True)
class Circuit:
    """`since_s`: when the phase began; `pause_s`: how long it is open. `tolerated` failing pods open nothing;
    `ready` is what a success is measured by; `most` replicas may be asked for unless it is closed."""

    phase: Phase = Phase.CLOSED
    since_s: Moment = 0.0
    pause_s: float = 0.0
    tolerated: int = 0
    ready: int = 0
    most: int = 0


def advance(circuit: Circuit, revision: Revision, now_s: float) -> Circuit:
    """One step, by the first event that the table knows in this phase."""
    for event in _events(circuit, revision, now_s):
        phase = TABLE.get((circuit.phase, event))
        if phase is not None:
            return _entered(circuit, phase, revision, now_s)
    return Circuit(
        phase=circuit.phase,
        since_s=circuit.since_s,
        pause_s=circuit.pause_s,
        tolerated=min(circuit.tolerated, revision.failing),
        ready=min(circuit.ready, revision.ready),
        most=circuit.most,
    )


def _events(circuit: Circuit, revision: Revision, now_s: float) -> list[Event]:
    """What has happened, the good news first."""
    fresh = revision.failing - circuit.tolerated
    enough = 1 if circuit.phase is Phase.HALF_OPEN or revision.ready == 0 else FAILURES
    happened = {
        Event.SUCCEEDED: revision.ready > circuit.ready,
        Event.RECOVERED: revision.failing == 0,
        Event.FAILED: fresh >= enough,
        Event.WAITED: now_s - circuit.since_s >= circuit.pause_s,
    }
    return [event for event, true in happened.items() if true]


def _entered(circuit: Circuit, phase: Phase, revision: Revision, now_s: float) -> Circuit:
    if phase is Phase.CLOSED:
        return Circuit(phase, now_s, 0.0, revision.failing, revision.ready)
    if phase is Phase.HALF_OPEN:  # one more may be asked for; what fails already is no news
        return Circuit(phase, now_s, circuit.pause_s, revision.failing, revision.ready, revision.issued + 1)
    pause_s = min(circuit.pause_s * 2, PAUSE_MAX_S) if circuit.pause_s else PAUSE_FIRST_S
    return Circuit(phase, now_s, pause_s, circuit.tolerated, revision.ready, revision.issued)


def most(circuit: Circuit) -> int | None:
    """The most replicas that may be asked for, None where the circuit says nothing. It lowers nothing: what was
    asked for when it opened stays."""
    return None if circuit.phase is Phase.CLOSED else circuit.most
