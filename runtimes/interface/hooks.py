"""What else is told of each request: traces, the payload log.

Owns the record of one request and calling whoever wants it; leaves sampling, queues and stores to the hooks. One idea:
a hook hears of a request once it is over, in one call that may not wait, so it can neither delay an answer nor lose a
request whose client left; and where there is no hook no record is made.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MOST_LOGGED_BYTES = 64 * 1024  # of each body
_log = logging.getLogger("runtimes.interface.hooks")


@dataclass(slots=True)
class Record:
    """One request that is over. Bodies are plain, cut at 64 KB; ``*_bytes`` are their whole lengths."""

    request_id: str
    path: str
    traceparent: bytes | None
    began_s: float  # time.time()
    duration_s: float = 0.0
    status: int = 0
    client_request_id: str | None = None
    request: bytes = b""
    request_bytes: int = 0
    response: bytes | bytearray = b""
    response_bytes: int = 0

    @property
    def request_cut(self) -> bool:
        return self.request_bytes > len(self.request)

    @property
    def response_cut(self) -> bool:
        return self.response_bytes > len(self.response)

    def asked(self, body: bytes) -> None:
        """The request's body, unpacked."""
        self.request = body[:MOST_LOGGED_BYTES]
        self.request_bytes = len(body)

    def answered(self, part: bytes) -> None:
        """The answer's body, or the next piece of it."""
        if not self.response:
            self.response = part[:MOST_LOGGED_BYTES]
        elif (room := MOST_LOGGED_BYTES - len(self.response)) > 0:
            if isinstance(self.response, bytes):
                self.response = bytearray(self.response)
            self.response += part[:room]
        self.response_bytes += len(part)


class Hook(Protocol):
    """Somebody who wants to know."""

    def ended(self, record: Record) -> None:
        """Called on the event loop after the answer was sent: put it somewhere, and return."""


def tell(hooks: Sequence[Hook], record: Record) -> int:
    """Tell all hooks; how many of them failed, which harms nobody."""
    failed = 0
    for hook in hooks:
        try:
            hook.ended(record)
        except Exception:
            failed += 1
            _log.exception("a hook failed", extra={"request_id": record.request_id})
    return failed
