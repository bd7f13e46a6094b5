"""Where a process stands between its start and its end, and how it ends without losing a request.

Owns the phases and the decision when to stop accepting after SIGTERM; leaves sockets and signals to serving. Pure. One
idea: removal from the load balancer takes a moment, so one keeps accepting until it has been quiet, but never for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

QUIET_S = 1.0
TEARDOWN_S = 5.0  # between the last answer and the end of the process
POLL_S = 0.05


class Phase(Enum):
    """Where the process stands."""

    SERVING = "serving"  # ready once the engine is
    DRAINING = "draining"  # told to end: not ready, but what still arrives is served
    CLOSING = "closing"  # only what was accepted before is finished


@dataclass(slots=True)
class State:
    """What of the process changes with its requests."""

    phase: Phase = Phase.SERVING
    in_flight: int = 0
    last_request_s: float = 0.0  # time.perf_counter(), when one began or ended


def keeps_accepting(elapsed_s: float, quiet_s: float, in_flight: int, linger_s: float) -> bool:
    """Whether new requests are still taken, so long after SIGTERM and since the last request began or ended."""
    if elapsed_s >= linger_s:
        return False
    return in_flight > 0 or min(elapsed_s, quiet_s) < min(QUIET_S, linger_s)


def finish_s(deadline_s: float) -> float:
    """How long accepted requests may still take once none is accepted any more."""
    return deadline_s + TEARDOWN_S
