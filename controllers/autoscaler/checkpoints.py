"""Checkpoints in the cluster: read when the process begins and when it takes the lease over, written every minute.

Owns the objects: ConfigMaps in the system namespace, each written whole by server-side apply and only when something
in it is news. Leaves their content to `checkpoint`. Its one idea: whatever fails here costs knowledge, never a
decision; and a shard that could not be read is not written over.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from controllers.autoscaler.checkpoint import (
    Checkpoint,
    Name,
    alive,
    entry_of,
    fitted,
    is_news,
    name_of,
    parse_entry,
    shard_count,
    shard_of,
    shards_holding,
)
from controllers.autoscaler.plain import Unreadable
from controllers.kube import CONFIG_MAPS, Gvr, KubeError, Object
from controllers.kube.fields import key_of, mapping
from controllers.lease import FencedWriter, Lease, NotLeader
from spec import names

log = logging.getLogger(__name__)

PERIOD_S = 60.0
_AT_ONCE = 8
_BREATH = 100
_LABELS = names.managed_labels(names.COMPONENT_CHECKPOINTS)
_SELECTOR = ",".join(f"{key}={value}" for key, value in _LABELS.items())


@dataclass(frozen=True)
class Kept:
    """A checkpoint and the text it was written as: to write it anew would move its times by rounding."""

    checkpoint: Checkpoint
    text: str


class Reader(Protocol):
    """What is needed of the client."""

    async def list(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> list[Object]: ...


class Checkpoints:
    """`read` before the first decision, `find` for each endpoint, `run` as a task, `save` at the end.

    `now` gives what is to be kept; the loop sets it.
    """

    def __init__(
        self,
        client: Reader,
        writer: FencedWriter,
        lease: Lease,
        namespace: str,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._client, self._writer, self._lease, self._namespace = client, writer, lease, namespace
        self._monotonic, self._wall = monotonic, wall
        self._kept: dict[Name, Kept] = {}
        self._written: dict[int, dict[str, str]] = {}
        self._shards = 1
        self._current = False  # whether what is kept is what the cluster has, or newer
        self.now: Callable[[], Mapping[Name, Checkpoint]] = dict

    def find(self, name: Name, uid: str) -> Checkpoint | None:
        """None where there is none of this very object."""
        kept = self._kept.get(name)
        return kept.checkpoint if kept is not None and kept.checkpoint.uid == uid else None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            await self.turn()

    async def turn(self) -> None:
        """With the lease: writes. Without it what is kept grows old, so that it is read again before a write."""
        if not self._lease.held():
            self._current = False
        else:
            await self.save()

    async def read(self) -> bool:
        """Takes in what the cluster has, the newer of two of one endpoint. False where it could not be read."""
        try:
            found = await self._client.list(CONFIG_MAPS, self._namespace, _SELECTOR)
        except KubeError as error:
            log.warning("checkpoints not read", extra={"error": str(error)})
            return False
        numbered = {names.checkpoint_number(key_of(obj)[1]): mapping(obj, "data") for obj in found}
        self._written = {number: data for number, data in numbered.items() if number is not None}
        self._shards = max(self._shards, shards_holding(self._written))
        for data in self._written.values():
            self._take(data)
        self._current = True
        return True

    def _take(self, data: Mapping[str, str]) -> None:
        offset_s = self._wall() - self._monotonic()
        for key, text in data.items():
            name = name_of(key)
            try:
                entry = self._not_ahead(parse_entry(text, offset_s), text, offset_s)
            except Unreadable as error:
                log.warning("checkpoint not readable", extra={"endpoint": key, "error": str(error)})
                continue
            if name is not None and self._is_newer(name, entry):
                self._kept[name] = Kept(entry, text)

    def _not_ahead(self, entry: Checkpoint, text: str, offset_s: float) -> Checkpoint:
        """Written under a clock that is ahead of ours: its times count back from when it was written. As they stand
        they would hold an endpoint until our clock has passed them. How long ago that was, nobody knows: no bridge."""
        ahead_s = entry.written_s - self._wall()
        if ahead_s <= 0:
            return entry
        return replace(parse_entry(text, offset_s + ahead_s), written_s=self._wall(), arrivals={})

    def _is_newer(self, name: Name, entry: Checkpoint) -> bool:
        return name not in self._kept or self._kept[name].checkpoint.written_s < entry.written_s

    async def save(self) -> None:
        """One write for each shard in which something is news. Raises nothing: the next minute tries again."""
        if not (self._current or await self.read()):
            return
        await self._note(self.now())
        self._shards = max(self._shards, shard_count(len(self._kept)))
        due = {n: data for n, data in self._data().items() if data != self._written.get(n, {})}
        # Shards that are new take over from those before: an entry is in two for a moment, and never in none.
        fresh = due.keys() - self._written.keys()
        if await self._write_all({number: due[number] for number in fresh}):
            await self._write_all({number: due[number] for number in due.keys() - fresh})

    async def _note(self, present: Mapping[Name, Checkpoint]) -> None:
        """Others get their turn in between: ten thousand endpoints are half a second's work."""
        offset_s, wall_s = self._wall() - self._monotonic(), self._wall()
        known = {name: kept.checkpoint for name, kept in self._kept.items()}
        self._kept = {name: self._kept[name] for name in alive(known, present, wall_s)}
        for number, (name, now) in enumerate(present.items()):
            if is_news(known.get(name), now):
                self._kept[name] = Kept(now, entry_of(now, offset_s))
            if number % _BREATH == 0:
                await asyncio.sleep(0)

    def _data(self) -> dict[int, dict[str, str]]:
        shards: dict[int, dict[Name, tuple[float, str]]] = {number: {} for number in range(self._shards)}
        for name, kept in self._kept.items():
            shards[shard_of(name, self._shards)][name] = (kept.checkpoint.written_s, kept.text)
        found = {}
        for number, entries in shards.items():
            found[number], left_out = fitted(entries)
            if left_out:
                log.warning("checkpoints left out for lack of room", extra={"shard": number, "count": left_out})
        return found

    async def _write_all(self, due: Mapping[int, dict[str, str]]) -> bool:
        gate = asyncio.Semaphore(_AT_ONCE)
        written = await asyncio.gather(*(self._write(gate, number, data) for number, data in due.items()))
        return all(written)

    async def _write(self, gate: asyncio.Semaphore, number: int, data: dict[str, str]) -> bool:
        name = names.checkpoint_object(number)
        body: Object = {"metadata": {"namespace": self._namespace, "labels": _LABELS}, "data": data}
        try:
            async with gate:
                await self._writer.apply(CONFIG_MAPS, self._namespace, name, names.MANAGER_AUTOSCALER, body)
        except (KubeError, NotLeader) as error:
            log.warning("checkpoint not written", extra={"object": name, "error": str(error)})
            return False
        self._written[number] = data
        return True
