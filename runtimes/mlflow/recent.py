"""What the calls of the model were like lately: how long one takes, and how many requests share one.

Owns both means and what follows from them for a request that comes now; leaves the requests to pool. Pure. One idea:
only short calls are worth waiting for, and only where requests come in company.
"""

from __future__ import annotations

SHORT_S = 0.001  # a call that takes less is not worth a second process
MANY = 1.5  # requests a call, from which on one that comes is hardly ever alone
_CALLS = 16  # that the means reach back


class Recent:
    """The means over the last calls, each of which counts less the longer ago it was."""

    def __init__(self) -> None:
        self._call_s = 0.0
        self._together = 1.0

    def began(self, requests: int) -> None:
        """A call for so many requests began."""
        self._together += (requests - self._together) / _CALLS

    def ended(self, seconds: float) -> None:
        """A call ended that took so long."""
        self._call_s += (seconds - self._call_s) / _CALLS

    @property
    def short(self) -> bool:
        """Whether a call is over before another process could have answered."""
        return self._call_s <= SHORT_S

    @property
    def in_company(self) -> bool:
        """Whether a request that comes now is hardly ever the only one."""
        return self._together >= MANY
