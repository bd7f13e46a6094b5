"""What a watch has told so far: one kind's objects by namespace and name, never older than what was seen.

Owns the order of versions: an answer to our own write is put in at once, and the watch's older news of the same
object is then ignored. Its one idea: a reader sees its own writes.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count

from controllers.kube.fields import at, key_of, mapping
from controllers.kube.kept import kept
from controllers.kube.resources import Gvr, Object
from controllers.kube.watch import Event

Key = tuple[str, str]
Changed = Callable[[Gvr, Object], None]


class Store:
    """`objects` may be read at any time; `synced` is set once the first whole state is in. `absent`: the cluster has no
    such kind.

    With `index` (a label) `labelled` finds a namespace's objects by that label's value without a search.
    """

    def __init__(self, gvr: Gvr, changed: Changed = lambda gvr, obj: None, index: str | None = None) -> None:
        self.gvr = gvr
        self.objects: dict[Key, Object] = {}
        self.synced = asyncio.Event()
        self.absent = False
        self._changed = changed
        self._index = index
        self._labelled: dict[Key, dict[Key, Object]] = defaultdict(dict)
        self._stamps: dict[Key, int] = {}
        self._changes = count(1)

    def labelled(self, namespace: str, value: str) -> list[Object]:
        return list(self._labelled.get((namespace, value), {}).values())

    def stamp(self, namespace: str, value: str) -> int:
        """Another one after each change among them, 0 where there are none."""
        return self._stamps.get((namespace, value), 0)

    async def follow(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            self.take(event)

    def take(self, event: Event) -> None:
        if event.type in ("SYNC", "ABSENT"):
            self.absent = event.type == "ABSENT"
            self._replace(event.objects)
        elif event.type == "DELETED":
            self._remove(event.object)
        else:
            self.put(event.object)

    def put(self, obj: Object) -> None:
        """Takes in what is `kept` of an object, unless what is held is newer. Objects of a SYNC come so."""
        key = key_of(obj)
        held = self.objects.get(key)
        if held is not None and _same_object(held, obj) and _version(held) >= _version(obj):
            return
        obj = kept(obj)
        self._drop(key)
        self._keep(key, obj)
        self._changed(self.gvr, obj)

    def _remove(self, obj: Object) -> None:
        held = self.objects.get(key_of(obj))
        if held is not None and _same_object(held, obj):
            self._drop(key_of(obj))
            self._changed(self.gvr, obj)

    def _keep(self, key: Key, obj: Object) -> None:
        self.objects[key] = obj
        if (slot := self._slot(obj)) is not None:
            self._labelled[slot][key] = obj
            self._stamps[slot] = next(self._changes)

    def _drop(self, key: Key) -> None:
        held = self.objects.pop(key, None)
        slot = self._slot(held) if held is not None else None
        if slot is not None and slot in self._labelled:
            self._labelled[slot].pop(key, None)
            self._stamps[slot] = next(self._changes)
            if not self._labelled[slot]:
                del self._labelled[slot], self._stamps[slot]

    def _has(self, key: Key, obj: Object) -> bool:
        """Whether this very version is held: who compares objects sees no change then."""
        held, version = self.objects.get(key), at(obj, "metadata", "resourceVersion")
        if held is None or version is None:
            return False
        return _same_object(held, obj) and at(held, "metadata", "resourceVersion") == version

    def _slot(self, obj: Object) -> Key | None:
        value = mapping(obj, "metadata", "labels").get(self._index) if self._index else None
        return (key_of(obj)[0], str(value)) if value is not None else None

    def _replace(self, objects: Iterable[Object]) -> None:
        fresh = {key_of(obj): obj for obj in objects}
        gone = [obj for key, obj in self.objects.items() if key not in fresh]
        for obj in gone:
            self._drop(key_of(obj))
        for key, obj in fresh.items():
            if not self._has(key, obj):
                self._drop(key)
                self._keep(key, obj)
        self.synced.set()
        for obj in (*fresh.values(), *gone):
            self._changed(self.gvr, obj)


def _same_object(held: Object, obj: Object) -> bool:
    return bool(at(held, "metadata", "uid") == at(obj, "metadata", "uid"))


def _version(obj: Object) -> int:
    """Versions of one kind compare as numbers; one that does not is newest, so that it is always taken."""
    version = str(at(obj, "metadata", "resourceVersion") or "")
    return int(version) if version.isdecimal() else -1
