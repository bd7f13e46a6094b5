"""One writer at a time: a Lease of coordination.k8s.io, held 15 s, renewed every 2 s, given up after 10 s, looked at
every second by who stands by.

Owns election and the fence. Leaves to the loops what they write. Its one idea: the right to write is a fact about
time on this machine's monotonic clock (the last renewal began less than 10 s ago), checked before each write; a
process that lost the lease goes on observing and may win again. Times of the Lease object are for people:
another's lease has run out when *we* have seen it unchanged for its whole length.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from controllers.kube import LEASES, Conflict, Gvr, KubeClient, KubeError, NotFound, Object, Unreachable
from controllers.kube.fields import at, micro_timestamp, number

log = logging.getLogger(__name__)

T = TypeVar("T")
_WRITE_S = 5.0  # = duration - renew deadline


class NotLeader(Exception):  # noqa: N818 - a state of affairs
    """A write was about to be made without the right to it."""


@dataclass(frozen=True)
class Terms:
    """Seconds: how long others respect us, how long we trust ourselves, how often we renew, how often we look at
    another's."""

    duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_s: float = 2.0
    standby_s: float = 1.0


class Lease:
    """Run `run()` as a task; ask `held()`; call `check()` right before each write; `release()` at the end."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._namespace, self._name, self.identity = client, namespace, name, identity
        self._terms = terms or Terms()
        self._monotonic, self._wall = monotonic, wall
        self._renewed_at_s = float("-inf")
        self._seen: tuple[object, ...] | None = None  # another's holder, renewTime, transitions
        self._seen_at_s = 0.0
        self._was_held = False

    def held(self) -> bool:
        return self._monotonic() - self._renewed_at_s < self._terms.renew_deadline_s

    def check(self) -> None:
        """Raises NotLeader. The age is taken here and now, so a process that slept for a minute finds out."""
        if not self.held():
            raise NotLeader(f"{self.identity} does not hold {self._namespace}/{self._name}")

    async def run(self) -> None:
        while True:
            await self.try_once()
            await asyncio.sleep(self._terms.retry_s if self.held() else self._terms.standby_s)

    async def try_once(self) -> None:
        """One attempt to take or renew; never raises for the API server's troubles."""
        started_s = self._monotonic()
        try:
            async with asyncio.timeout(self._terms.renew_deadline_s / 2):
                if await self._take_or_renew():
                    self._renewed_at_s = started_s
        except (KubeError, TimeoutError) as error:
            log.warning("lease not renewed", extra={"lease": self._name, "error": str(error)})
        if self.held() != self._was_held:
            self._was_held = self.held()
            log.info("lease taken" if self._was_held else "lease lost", extra={"identity": self.identity})

    async def release(self) -> None:
        """Gives the lease up, so that the next holder need not wait for it to run out."""
        if not self.held():
            return
        self._renewed_at_s = float("-inf")
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name)
            if at(lease, "spec", "holderIdentity") == self.identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._client.replace(LEASES, self._namespace, lease)
        except KubeError as error:
            log.warning("lease not released", extra={"lease": self._name, "error": str(error)})

    async def _take_or_renew(self) -> bool:
        try:
            lease = await self._client.get(LEASES, self._namespace, self._name)
        except NotFound:
            lease = None
        if lease is not None and not self._may_take(lease):
            self._renewed_at_s = float("-inf")
            return False
        try:
            if lease is None:
                await self._client.create(LEASES, self._namespace, self._taken({"metadata": {"name": self._name}}))
            else:
                await self._client.replace(LEASES, self._namespace, self._taken(lease))
        except Conflict:  # somebody was faster; the next round sees who
            return False
        return True

    def _may_take(self, lease: Object) -> bool:
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity")
        if not holder or holder == self.identity:
            return True
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at_s = seen, self._monotonic()
        duration_s = number(spec, "leaseDurationSeconds") or self._terms.duration_s
        return self._monotonic() - self._seen_at_s >= duration_s

    def _taken(self, lease: Object) -> Object:
        spec, now = dict(lease.get("spec") or {}), micro_timestamp(self._wall())
        if spec.get("holderIdentity") != self.identity:
            spec |= {"acquireTime": now, "leaseTransitions": number(spec, "leaseTransitions") + 1}
        spec |= {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._terms.duration_s),
            "renewTime": now,
        }
        return lease | {"spec": spec}


class FencedWriter:
    """The client's writes, each behind the fence. Nothing else of ours writes what the lease protects.

    A write ends, one way or the other, within the margin between giving the lease up ourselves and another's right
    to it: what was begun in time is not still on its way when another begins.
    """

    def __init__(self, client: KubeClient, lease: Lease) -> None:
        self._client, self._lease = client, lease

    async def apply(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        return await self._fenced(lambda: self._client.apply(gvr, namespace, name, manager, body))

    async def apply_status(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object:
        return await self._fenced(lambda: self._client.apply_status(gvr, namespace, name, manager, body))

    async def patch_scale(
        self, gvr: Gvr, namespace: str, name: str, replicas: int, resource_version: str, manager: str
    ) -> Object:
        return await self._fenced(
            lambda: self._client.patch_scale(namespace, name, replicas, resource_version, manager, gvr)
        )

    async def create(self, gvr: Gvr, namespace: str, body: Object, manager: str) -> Object:
        return await self._fenced(lambda: self._client.create(gvr, namespace, body, manager))

    async def delete(self, gvr: Gvr, namespace: str, name: str, uid: str | None) -> None:
        await self._fenced(lambda: self._client.delete(gvr, namespace, name, "Background", uid))

    async def _fenced(self, write: Callable[[], Awaitable[T]]) -> T:
        self._lease.check()
        try:
            async with asyncio.timeout(_WRITE_S):
                return await write()
        except TimeoutError:
            raise Unreachable(f"no answer to a write within {_WRITE_S:.0f} s") from None
