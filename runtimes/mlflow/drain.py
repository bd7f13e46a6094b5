"""How a process ends without losing a request.

Owns the decision when to stop accepting after SIGTERM; leaves sockets and signals to serving. Pure. One idea: removal
from the load balancer takes a moment, so one keeps accepting until it has been quiet, but never for long.
"""

from __future__ import annotations

QUIET_S = 1.0
TEARDOWN_S = 5.0  # between the last answer and the end of the process
POLL_S = 0.05


def keeps_accepting(elapsed_s: float, quiet_s: float, in_flight: int, linger_s: float) -> bool:
    """Whether new requests are still taken, so long after SIGTERM and since the last request began or ended."""
    if elapsed_s >= linger_s:
        return False
    return in_flight > 0 or min(elapsed_s, quiet_s) < min(QUIET_S, linger_s)


def finish_s(deadline_s: float) -> float:
    """How long accepted requests may still take once none is accepted any more."""
    return deadline_s + TEARDOWN_S
