"""A watch that never ends: the whole state once, then each change, through outages and expired versions.

Owns resumption: after a broken or silent connection it goes on from the last resourceVersion it saw; where
that is too old (410) it lists again and yields a new SYNC, which replaces everything the caller held.
While the API server is away it yields nothing and keeps trying. Its one idea: the caller sees state, never
connections. A kind that the cluster may lack is watched for as well: ABSENT until it is there.
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from controllers.kube.errors import Gone, KubeError, NotFound, Unreachable, error_from
from controllers.kube.resources import Gvr, Object

log = logging.getLogger(__name__)

EventType = Literal["SYNC", "ABSENT", "ADDED", "MODIFIED", "DELETED"]

# The server ends each watch after this; more silence than that and a margin means a dead connection.
_WATCH_S = 50
_READ_TIMEOUT_S = 65.0
_PAUSE_S = 0.1
_BACKOFF_FIRST_S = 0.25
_BACKOFF_MAX_S = 5.0
_ABSENT_S = 10.0


@dataclass(frozen=True)
class Event:
    """`objects` is the whole state for SYNC, nothing for ABSENT (the cluster has no such kind), and one object
    otherwise (for DELETED its last state)."""

    type: EventType
    objects: tuple[Object, ...]

    @property
    def object(self) -> Object:
        return self.objects[0]


class Source(Protocol):
    """What a watch needs of the client."""

    async def list_with_version(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> tuple[list[Object], str]: ...

    def stream(
        self, path: str, params: dict[str, str], read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]: ...


class Backoff:
    """0.25, 0.5, 1, 2, 4, 5, 5 ... s, each between half and the whole of it, so that watchers spread."""

    def __init__(self) -> None:
        self._next_s = _BACKOFF_FIRST_S

    def reset(self) -> None:
        self._next_s = _BACKOFF_FIRST_S

    async def wait(self) -> None:
        delay_s, self._next_s = self._next_s, min(self._next_s * 2, _BACKOFF_MAX_S)
        await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))


def selection(labels: str | None, name: str | None) -> dict[str, str]:
    """The query parameters that narrow a list or a watch."""
    chosen = {"labelSelector": labels, "fieldSelector": f"metadata.name={name}" if name else None}
    return {key: value for key, value in chosen.items() if value}


async def follow(
    source: Source,
    gvr: Gvr,
    namespace: str | None,
    labels: str | None,
    name: str | None = None,
    optional: bool = False,
) -> AsyncIterator[Event]:
    """See the module. Ends only by cancellation."""
    backoff = Backoff()
    version: str | None = None
    while True:
        try:
            if version is None:
                objects, version = await source.list_with_version(gvr, namespace, labels, name)
                yield Event("SYNC", tuple(objects))
            async for kind, obj in _changes(source, gvr.path(namespace), selection(labels, name), version):
                backoff.reset()
                version = obj["metadata"]["resourceVersion"]
                if kind is not None:
                    yield Event(kind, (obj,))
            await asyncio.sleep(_PAUSE_S)  # the server ended it: nothing is lost, and nobody spins
        except Gone:
            version = None
            await asyncio.sleep(_PAUSE_S)
        except (KubeError, ValueError, KeyError) as error:
            if optional and isinstance(error, NotFound):
                version = None
                yield Event("ABSENT", ())
                await asyncio.sleep(_ABSENT_S)
                continue
            level = logging.INFO if isinstance(error, Unreachable) else logging.WARNING
            log.log(level, "watch interrupted", extra={"resource": gvr.plural, "error": str(error)})
            await backoff.wait()


async def _changes(
    source: Source, path: str, selected: dict[str, str], version: str
) -> AsyncIterator[tuple[EventType | None, Object]]:
    """One connection's changes after `version`; None for a bookmark, which only moves the version on."""
    params = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": str(_WATCH_S),
    } | selected
    async with source.stream(path, params, _READ_TIMEOUT_S) as lines:
        async for line in lines:
            if not line.strip():
                continue
            change = json.loads(line)
            kind, obj = change["type"], change["object"]
            if kind == "ERROR":
                raise error_from(int(obj.get("code") or 500), obj)
            yield (None if kind == "BOOKMARK" else kind), obj
