"""Bounded load through a gateway: clients that keep their connection, every answer counted, nothing retried.

A connection that was closed while it was idle is opened again, before anything of a request is sent on it. Once a
request was sent, a connection that ends without a whole answer is a failed request: it may have been in the model.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.gateway_lab.client import Client

FAILED = 0  # no whole answer came


@dataclass
class Tally:
    """What came back, by status; 0 where no whole answer came."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    in_order: list[tuple[float, int]] = field(default_factory=list)

    def add(self, status: int, seconds: float, note: str = "") -> None:
        self.statuses[status] += 1
        self.seconds.append(seconds)
        self.in_order.append((time.monotonic(), status))
        if status != 200 and len(self.failures) < 20:
            self.failures.append(f"{status} {note}".strip())

    @property
    def total(self) -> int:
        return sum(self.statuses.values())

    @property
    def failed(self) -> dict[int, int]:
        """Every answer that is not 200, by status."""
        return {status: count for status, count in self.statuses.items() if status != 200}


@dataclass(frozen=True)
class Target:
    """One endpoint behind a gateway, by a path below its own, or by another one of the platform's.

    An answer that does not end with `ends` is none, whatever its status: a stream tells of an error in its body."""

    host: str
    port: int
    tls: ssl.SSLContext
    endpoint: str
    key: str
    part: str = "invocations"
    path: str | None = None
    ends: bytes = b""


async def _one_client(target: Target, body: bytes, pause_s: float, stop: threading.Event, tally: Tally) -> None:
    client = Client(target.port, target.key, target.tls, target.host)
    headers = {"content-type": "application/json"}
    while not stop.is_set():
        started_s = time.monotonic()
        try:
            reply = await client.call(target.endpoint, target.part, body=body, headers=headers, path=target.path)
            status = reply.status if reply.body.endswith(target.ends) or reply.status != 200 else FAILED
            tally.add(status, reply.seconds, reply.body[-200:].decode(errors="replace"))
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            await client.leave()
            tally.add(FAILED, time.monotonic() - started_s, repr(error))
        await asyncio.sleep(pause_s)
    await client.leave()


class Load:
    """`clients` in a closed loop with a pause, in a thread of its own, until it is left or `bound_s` is over."""

    def __init__(self, target: Target, body: bytes, clients: int, pause_s: float = 0.0, bound_s: float = 240.0) -> None:
        self.tally = Tally()
        self._stop = threading.Event()
        self._bound_s = bound_s
        self._thread = threading.Thread(target=self._run, args=(target, body, clients, pause_s), daemon=True)

    def _run(self, target: Target, body: bytes, clients: int, pause_s: float) -> None:
        async def all_clients() -> None:
            work = [_one_client(target, body, pause_s, self._stop, self.tally) for _ in range(clients)]
            await asyncio.wait_for(asyncio.gather(*work), self._bound_s + 60)

        asyncio.run(all_clients())

    def __enter__(self) -> Tally:
        self._timer = threading.Timer(self._bound_s, self._stop.set)
        self._timer.daemon = True
        self._timer.start()
        self._thread.start()
        return self.tally

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._timer.cancel()
        self._thread.join(90)
