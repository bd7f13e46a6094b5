"""A revision's protocol: one table, states x events -> state. An edge that is not in it raises and changes nothing.

Owns which moves are legal. Leaves to `core` which events have happened. docs/ draws its diagram from this table.
"""

from enum import StrEnum


class Phase(StrEnum):
    """Where a revision stands. `ABSENT` and `GONE` never appear in a status."""

    ABSENT = "Absent"
    STARTING = "Starting"
    READY = "Ready"
    SERVING = "Serving"
    DRAINING = "Draining"
    HELD = "Held"
    FAILED = "Failed"
    GONE = "Gone"


class Happening(StrEnum):
    """What can happen to a revision."""

    DECLARED = "the endpoint's pod template names it"
    WITHDRAWN = "the template names another, and it never had the traffic"
    READIED = "sized to the live load and all replicas ready"
    UNREADIED = "replicas were lost before traffic moved"
    FAILED = "it can't start"
    INSTALLED = "the kind that runs it is there now"
    ROUTED = "the gateway reports its traffic on it"
    SUPERSEDED = "the traffic is another's"
    DRAINED = "every request that it had is over"
    HOLD_ENDED = "the time for an immediate revert is over, a later one is held, or its room is needed"
    VANISHED = "somebody deleted what ran it"


TABLE: dict[Phase, dict[Happening, Phase]] = {
    Phase.ABSENT: {
        Happening.DECLARED: Phase.STARTING,
        Happening.ROUTED: Phase.SERVING,  # the status was lost, the gateway's was not
    },
    Phase.STARTING: {
        Happening.READIED: Phase.READY,
        Happening.FAILED: Phase.FAILED,
        Happening.ROUTED: Phase.SERVING,
        Happening.WITHDRAWN: Phase.GONE,
        Happening.SUPERSEDED: Phase.DRAINING,
        Happening.VANISHED: Phase.GONE,
    },
    Phase.READY: {
        Happening.UNREADIED: Phase.STARTING,
        Happening.FAILED: Phase.FAILED,
        Happening.ROUTED: Phase.SERVING,
        Happening.WITHDRAWN: Phase.GONE,
        Happening.SUPERSEDED: Phase.DRAINING,
        Happening.VANISHED: Phase.GONE,
    },
    Phase.SERVING: {
        Happening.SUPERSEDED: Phase.DRAINING,
        Happening.VANISHED: Phase.GONE,
    },
    Phase.DRAINING: {
        Happening.DECLARED: Phase.STARTING,
        Happening.ROUTED: Phase.SERVING,
        Happening.DRAINED: Phase.HELD,
        Happening.VANISHED: Phase.GONE,
    },
    Phase.HELD: {
        Happening.DECLARED: Phase.STARTING,
        Happening.ROUTED: Phase.SERVING,
        Happening.HOLD_ENDED: Phase.GONE,
        Happening.VANISHED: Phase.GONE,
    },
    Phase.FAILED: {
        Happening.READIED: Phase.READY,  # the registry came back, a node arrived
        Happening.INSTALLED: Phase.STARTING,
        Happening.ROUTED: Phase.SERVING,
        Happening.WITHDRAWN: Phase.GONE,
        Happening.SUPERSEDED: Phase.DRAINING,
        Happening.VANISHED: Phase.GONE,
    },
    Phase.GONE: {},
}


class IllegalEdge(Exception):  # noqa: N818 - it names the edge
    """A happening that has no meaning in this phase."""

    def __init__(self, phase: Phase, happening: Happening) -> None:
        super().__init__(f"{phase} has no edge for {happening.name}: {happening}")


def step(phase: Phase, happening: Happening) -> Phase:
    """The next phase, or IllegalEdge."""
    try:
        return TABLE[phase][happening]
    except KeyError:
        raise IllegalEdge(phase, happening) from None


def diagram() -> str:
    """The table as a Mermaid state diagram; docs/rollout.md holds it, and a test holds them together."""
    lines = ["stateDiagram-v2", f"    [*] --> {Phase.ABSENT}"]
    for phase, edges in TABLE.items():
        lines += [f"    {phase} --> {after}: {happening.name.lower()}" for happening, after in edges.items()]
    return "\n".join([*lines, f"    {Phase.GONE} --> [*]"])
