"""What the watches have told so far, read once as it arrives.

Owns the three watches. Its one idea: nothing is decided before each kind has been seen whole once, and silence of
the API server changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Protocol

from controllers.gateway.observed import (
    Declared,
    Fault,
    Identity,
    Key,
    Object,
    Pod,
    identity_of,
    is_going,
    merge,
    read_endpoint,
    read_keys,
    read_slice,
)
from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS, Event, Gvr
from spec import names

PODS_OF_ENDPOINTS = names.LABEL_ENDPOINT


class Watching(Protocol):
    """What we need of the Kubernetes client to observe."""

    def watch(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> AsyncIterator[Event]: ...


class Observation:
    """Endpoints, pods and keys as last seen. `changed` is called after each that matters."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.objects: dict[Identity, Object] = {}
        self.endpoints: dict[Identity, Declared | Fault] = {}
        self.keys: tuple[Key, ...] = ()
        self.key_problems: tuple[str, ...] = ()
        self._pods: dict[Identity, tuple[Pod, ...]] = {}  # by slice
        self._changed = changed
        self._seen: set[Gvr] = set()
        self.complete = asyncio.Event()

    @property
    def pods(self) -> tuple[Pod, ...]:
        return merge(pod for pods in self._pods.values() for pod in pods)

    async def follow(self, kube: Watching) -> None:
        """All three watches, for ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(MODEL_ENDPOINTS, kube.watch(MODEL_ENDPOINTS)))
            slices = kube.watch(ENDPOINT_SLICES, labels=PODS_OF_ENDPOINTS)
            tasks.create_task(self._follow(ENDPOINT_SLICES, slices))
            keys = kube.watch(SECRETS, names.SYSTEM_NAMESPACE, name=names.SECRET_GATEWAY_KEYS)
            tasks.create_task(self._follow(SECRETS, keys))

    async def _follow(self, gvr: Gvr, events: AsyncIterator[Event]) -> None:
        async for event in events:
            self.take(gvr, event)

    def take(self, gvr: Gvr, event: Event) -> None:
        if event.type == "SYNC":
            self._clear(gvr)
            self._seen.add(gvr)
        news = [self._put(gvr, obj, gone=event.type == "DELETED") for obj in event.objects]
        if self._seen == {MODEL_ENDPOINTS, ENDPOINT_SLICES, SECRETS}:
            self.complete.set()
        if any(news) or event.type == "SYNC":
            self._changed()

    def load(self, endpoints: Iterable[Object], slices: Iterable[Object], keys: Iterable[Object]) -> None:
        """Everything at once, as three lists of objects."""
        for gvr, objects in ((MODEL_ENDPOINTS, endpoints), (ENDPOINT_SLICES, slices), (SECRETS, keys)):
            self.take(gvr, Event("SYNC", tuple(objects)))

    def _clear(self, gvr: Gvr) -> None:
        if gvr == MODEL_ENDPOINTS:
            self.objects.clear()
            self.endpoints.clear()
        elif gvr == ENDPOINT_SLICES:
            self._pods.clear()
        else:
            self.keys, self.key_problems = (), ()

    def _put(self, gvr: Gvr, obj: Object, *, gone: bool) -> bool:
        """Whether it says something new; what other writers put into a status mostly does not."""
        identity = identity_of(obj)
        if gvr == MODEL_ENDPOINTS:
            return self._put_endpoint(identity, None if gone or is_going(obj) else obj)
        if gvr == ENDPOINT_SLICES:
            before = self._pods.pop(identity, ())
            if not gone:
                self._pods[identity] = read_slice(obj)
            return before != self._pods.get(identity, ())
        if identity.name == names.SECRET_GATEWAY_KEYS:
            self.keys, self.key_problems = read_keys(None if gone else obj)
            return True
        return False

    def _put_endpoint(self, identity: Identity, obj: Object | None) -> bool:
        """A fault may be the same, and the generation that has it another: the condition names it."""
        before = self._said(identity)
        self.endpoints.pop(identity, None)
        self.objects.pop(identity, None)
        if obj is not None:
            self.objects[identity] = obj
            self.endpoints[identity] = read_endpoint(obj)
        return before != self._said(identity)

    def _said(self, identity: Identity) -> tuple[Declared | Fault | None, object]:
        return self.endpoints.get(identity), self.objects.get(identity, {}).get("metadata", {}).get("generation")
