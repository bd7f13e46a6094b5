"""All endpoints together: when most of the busy ones read zero in the same moment, it is the reading. Pure.

Owns the doubt. Its one idea: traffic of many endpoints does not end at once, statistics that begin anew do. For a
minute such zeros are unknown, and unknown lowers nothing; if they are true, a minute later they are believed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controllers.autoscaler.load import Load

Key = tuple[str, str, str]  # namespace, name, uid
BUSY_LEAST = 10
SHARE = 0.5
DOUBT_S = 60.0
STREAK = 5  # samples with load in a row make an endpoint busy
RECENT_S = 5.0  # "at once"


@dataclass(frozen=True)
class Activity:
    """How many samples in a row an endpoint had load, and when it last did."""

    streak: int
    at_s: float


@dataclass(frozen=True)
class Fleet:
    """Activity of the endpoints that have, or just had, load; whose zeros are doubted, and until when."""

    activity: Mapping[Key, Activity] = field(default_factory=dict)
    doubted: frozenset[Key] = frozenset()
    until_s: float = 0.0


def has_load(load: Load) -> bool:
    return load.in_flight > 0 or load.queued > 0 or (load.arrived_rps or 0.0) > 0


def watch(fleet: Fleet, loads: Mapping[Key, Load | None], now_s: float) -> tuple[Fleet, frozenset[Key]]:
    """`loads`: one sample of every endpoint, None unknown. The second value: whose zero is unknown in this sample."""
    zero = {key for key in fleet.activity if (load := loads.get(key)) is not None and not has_load(load)}
    busy = {key for key, seen in fleet.activity.items() if seen.streak >= STREAK and now_s - seen.at_s <= RECENT_S}
    silent = busy & zero
    if now_s >= fleet.until_s and len(busy) >= BUSY_LEAST and len(silent) > SHARE * len(busy):
        fleet = replace(fleet, doubted=frozenset(busy), until_s=now_s + DOUBT_S)
    fleet = replace(fleet, activity=_activity(fleet, loads, now_s))
    if now_s >= fleet.until_s:
        return replace(fleet, doubted=frozenset()), frozenset()
    unknown = (key for key in fleet.doubted if (load := loads.get(key)) is not None and not has_load(load))
    return fleet, frozenset(unknown)


def _activity(fleet: Fleet, loads: Mapping[Key, Load | None], now_s: float) -> dict[Key, Activity]:
    """A zero or an unknown ends no streak before it is older than "at once"."""
    found = {key: seen for key, seen in fleet.activity.items() if key in loads and now_s - seen.at_s <= RECENT_S}
    for key, load in loads.items():
        if load is not None and has_load(load):
            before = found.get(key)
            found[key] = Activity(before.streak + 1 if before else 1, now_s)
    return found
