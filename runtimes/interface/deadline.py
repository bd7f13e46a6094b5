"""How long a request may take.

Owns the arithmetic of the endpoint's own deadline and the one that the gateway passes on; leaves the clock and the
timer to patience. Pure. One idea: the smaller one counts, and it covers waiting and running.
"""

from __future__ import annotations

from runtimes.interface.errors import RefusedError

HEADER = "X-Knobless-Deadline-Ms"
_MOST_DIGITS = 12


def allowed_s(deadline_s: float, remaining_ms: bytes | None) -> float:
    """Seconds from now until the answer is due; 0 or less where it already was."""
    if remaining_ms is None:
        return deadline_s
    text = remaining_ms.strip()
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > _MOST_DIGITS:
        raise RefusedError(400, f"{HEADER} must be a whole number of milliseconds", HEADER.lower())
    return min(deadline_s, int(text) / 1000)
