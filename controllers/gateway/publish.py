"""Writes the endpoints' statuses: at once where somebody waits for it, live numbers at most every 30 s.

Owns what was written last. Its one idea: a slow or absent API server delays the news, never the gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from controllers.gateway import status
from controllers.gateway.observed import Identity, Object
from controllers.gateway.status import Condition, Report
from controllers.kube import MODEL_ENDPOINTS, Gvr, KubeError, NotFound
from spec import names

log = logging.getLogger(__name__)

LIVE_NUMBERS_S: Final = 30.0
_RETRY_S: Final = 2.0
_AT_ONCE: Final = 8


class Writing(Protocol):
    """What we need of the Kubernetes client to report."""

    async def apply_status(self, gvr: Gvr, namespace: str, name: str, manager: str, body: Object) -> Object: ...


@dataclass(frozen=True)
class News:
    """An endpoint's report, or only a condition for one that is not in the snapshot."""

    generation: int
    condition: Condition
    report: Report | None


@dataclass(frozen=True)
class Written:
    news: News
    at_s: float


class Publisher:
    """`tell` replaces what is to be said; `run` says it."""

    def __init__(self, kube: Writing, objects: Mapping[Identity, Object], clock: Callable[[], float]) -> None:
        self._kube = kube
        self._objects = objects
        self._clock = clock
        self._news: Mapping[Identity, News] = {}
        self._written: dict[Identity, Written] = {}
        self._told = asyncio.Event()

    def tell(self, news: Mapping[Identity, News]) -> None:
        self._news = news
        self._told.set()

    async def run(self) -> None:
        while True:
            await self.publish(self._clock())
            self._told.clear()
            try:
                async with asyncio.timeout(_RETRY_S):
                    await self._told.wait()
            except TimeoutError:
                pass

    async def publish(self, now_s: float) -> None:
        """Everything that is due."""
        news = self._news
        for identity in [identity for identity in self._written if identity not in news]:
            del self._written[identity]
        slots = asyncio.Semaphore(_AT_ONCE)

        async def write(identity: Identity, said: News) -> None:
            async with slots:
                if await self._write(identity, said):
                    self._written[identity] = Written(said, now_s)

        due = [(identity, said) for identity, said in news.items() if self._due(identity, said, now_s)]
        await asyncio.gather(*(write(identity, said) for identity, said in due))

    def _due(self, identity: Identity, said: News, now_s: float) -> bool:
        last = self._written.get(identity)
        if last is None:
            if not stands(said, self._objects.get(identity)):
                return True
            self._written[identity] = Written(said, now_s)
            return False
        if said == last.news:
            return False
        before, now = last.news.report, said.report
        only_numbers = before is not None and now is not None and before.weighty == now.weighty
        return not only_numbers or now_s - last.at_s >= LIVE_NUMBERS_S

    async def _write(self, identity: Identity, said: News) -> bool:
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        held = condition_of(self._objects.get(identity))
        body = status.body(identity, said.condition, now, held, said.generation, said.report)
        try:
            await self._kube.apply_status(
                MODEL_ENDPOINTS, identity.namespace, identity.name, names.MANAGER_GATEWAY, body
            )
        except NotFound:
            return True
        except KubeError as error:
            fields = {"endpoint": identity.name, "namespace": identity.namespace, "error": str(error)}
            log.warning("status not written", extra=fields)
            return False
        return True


def condition_of(obj: Object | None) -> dict[str, Any] | None:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == status.CONDITION), None)


def stands(said: News, obj: Object | None) -> bool:
    """Whether the object says it already, as after a restart of ours."""
    if obj is None:
        return False
    identity = Identity(obj["metadata"]["namespace"], obj["metadata"]["name"])
    wanted = status.body(identity, said.condition, "", condition_of(obj), said.generation, said.report)["status"]
    held = obj.get("status") or {}
    gateway = {key: value for key, value in (held.get("gateway") or {}).items() if key != "at"}
    wanted_gateway = {key: value for key, value in wanted.get("gateway", {}).items() if key != "at"}
    return wanted_gateway == gateway and [condition_of(obj)] == wanted["conditions"]
