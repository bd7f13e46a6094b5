"""What outlives the process, as text in the data of ConfigMaps: who is kept where, how long, and what it says. Pure.

Owns the form of an entry, the shards, the bounds. Leaves reading and writing to `checkpoints`. Its one idea: an entry
that is broken, newer than this program or another object's is no checkpoint, and without one nothing is lowered for a
window; so nothing that is read here can do harm.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from zlib import crc32

from controllers.autoscaler.cycle import Remembered
from controllers.autoscaler.plain import Unreadable, from_plain, to_plain
from controllers.autoscaler.vertical.knowledge import Knowledge
from spec import names

SCHEMA = 1
TTL_S = 30 * 86_400.0
REFRESH_S = 600.0
PER_SHARD = 200
# An object may hold 1 MiB; the field owners' book takes its part of it.
SHARD_BYTES_MAX = 700_000
ENTRY_BYTES_MAX = 20_000

Name = tuple[str, str]  # namespace, endpoint
# By gateway pod (uid) and revision: requests that ever arrived.
Arrivals = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Checkpoint:
    """`written_s` is the wall clock's; moments inside `remembered` are moved to the decisions' clock when read."""

    uid: str
    written_s: float
    remembered: Remembered
    arrivals: Arrivals = field(default_factory=dict)
    knowledge: Mapping[str, Knowledge] = field(default_factory=dict)
    schema: int = SCHEMA


def entry_of(checkpoint: Checkpoint, offset_s: float) -> str:
    """`offset_s`: wall clock less decisions' clock, so that the moments written are the wall's."""
    return json.dumps(to_plain(checkpoint, offset_s), separators=(",", ":"))


def parse_entry(text: str, offset_s: float) -> Checkpoint:
    """Raises Unreadable."""
    try:
        plain = json.loads(text)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        raise Unreadable(f"schema {schema!r}; this program reads {SCHEMA}")
    return from_plain(Checkpoint, plain, -offset_s)


def is_news(kept: Checkpoint | None, now: Checkpoint) -> bool:
    """Whether it is worth a write: what is remembered has changed beyond its times, or the entry grows old."""
    if kept is None or kept.uid != now.uid or now.written_s - kept.written_s >= REFRESH_S:
        return True
    if _differs(kept.remembered, now.remembered):
        return True
    return {k: each.limit for k, each in kept.knowledge.items()} != {k: each.limit for k, each in now.knowledge.items()}


def _differs(kept: Remembered, now: Remembered) -> bool:
    """Most of many endpoints rest; that there was no load for longer by now is told without a look at every span."""
    if _is_silent(kept) and _is_silent(now):
        return replace(kept, state=now.state) != now
    return bool(to_plain(kept, None) != to_plain(now, None))


def _is_silent(remembered: Remembered) -> bool:
    state = remembered.state
    return not any(demand for _, demand in (*state.demands.peaks, *state.recent.highs))


def alive(kept: Mapping[Name, Checkpoint], present: Mapping[Name, object], wall_s: float) -> dict[Name, Checkpoint]:
    """Without the entries whose endpoint has not been seen for so long; one that is briefly gone keeps its own."""
    return {name: each for name, each in kept.items() if name in present or wall_s - each.written_s < TTL_S}


def shard_count(endpoints: int) -> int:
    """A power of two, so that growth moves half of the entries and no more: 200 -> 1, 201 -> 2, 10,000 -> 64."""
    count = 1
    while count * PER_SHARD < endpoints and count < names.CHECKPOINTS_MAX:
        count *= 2
    return count


def shards_holding(numbers: Collection[int]) -> int:
    """The count of shards that the highest of these belongs to."""
    return shard_count(max(numbers, default=0) * PER_SHARD + 1)


def shard_of(name: Name, shards: int) -> int:
    return crc32("/".join(name).encode()) % shards


def data_key(name: Name) -> str:
    """`team-alpha.iris`: neither part has a dot."""
    return ".".join(name)


def name_of(key: str) -> Name | None:
    namespace, dot, endpoint = key.partition(".")
    return (namespace, endpoint) if dot and namespace and endpoint else None


def fitted(entries: Mapping[Name, tuple[float, str]]) -> tuple[dict[str, str], int]:
    """A shard's data from entries (when written, text), the newest first and within bounds; how many are left out."""
    data: dict[str, str] = {}
    size = 0
    for name, (_, text) in sorted(entries.items(), key=lambda item: (-item[1][0], item[0])):
        size += len(text) + len(data_key(name))
        if len(text) <= ENTRY_BYTES_MAX and size <= SHARD_BYTES_MAX:
            data[data_key(name)] = text
    return data, len(entries) - len(data)
