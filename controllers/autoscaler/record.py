"""A decision's record: what was remembered and seen, and what came of it, as one line of JSON that replays. Pure.

Owns the line's form and the comparison. Its one idea: a record stands alone, state included, so that a lost line
costs that line and a replay may begin anywhere. Numbers are written so that reading gives the very same ones.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from controllers.autoscaler.cycle import Inputs, Remembered, Turn, cycle
from controllers.autoscaler.learning import Lesson
from controllers.autoscaler.plain import Unreadable, from_plain, to_plain
from controllers.autoscaler.vertical.learner import learn

SCHEMA = 1


class Kind(StrEnum):
    """CHANGE: replicas were changed. SNAPSHOT: nothing was, and it was time to say so. LIMIT: a replica's limit was
    changed, or one pod asked for another."""

    CHANGE = "change"
    SNAPSHOT = "snapshot"
    LIMIT = "limit"


@dataclass(frozen=True)
class Record:
    """`at_s` is the wall clock's; the moments inside are those of the process that decided."""

    at_s: float
    namespace: str
    endpoint: str
    uid: str
    kind: Kind
    remembered: Remembered
    inputs: Inputs
    turn: Turn
    schema: int = SCHEMA


@dataclass(frozen=True)
class LimitRecord:
    """As `Record`, of one epoch of the learner."""

    at_s: float
    namespace: str
    endpoint: str
    uid: str
    kind: Kind
    lesson: Lesson
    schema: int = SCHEMA


def line_of(record: Record | LimitRecord) -> str:
    return json.dumps(to_plain(record), separators=(",", ":"))


def parse_line(line: str) -> Record | LimitRecord:
    """Raises Unreadable."""
    try:
        plain = json.loads(line)
    except ValueError as error:
        raise Unreadable(str(error)) from None
    schema = plain.get("schema") if isinstance(plain, dict) else None
    if schema != SCHEMA:
        raise Unreadable(f"schema {schema!r}; this program reads {SCHEMA}")
    return from_plain(LimitRecord, plain) if plain.get("kind") == Kind.LIMIT else from_plain(Record, plain)


def difference(record: Record | LimitRecord) -> str | None:
    """Decides once more; where the outcome differs first, and how: `verdict.decisions.0.desired: 4, was 3`."""
    if isinstance(record, LimitRecord):
        return _lesson_difference(record.lesson)
    _, turn = cycle(record.remembered, record.inputs)
    return next(_differences("", to_plain(turn), to_plain(record.turn)), None)


def _lesson_difference(lesson: Lesson) -> str | None:
    after, advice = learn(lesson.before, lesson.evidence, lesson.settings, lesson.wall_s)
    again = replace(lesson, after=after, advice=advice)
    return next(_differences("", to_plain(again), to_plain(lesson)), None)


def _differences(path: str, now: Any, was: Any) -> Iterator[str]:
    if isinstance(now, dict) and isinstance(was, dict):
        for key in sorted(now.keys() | was.keys()):
            yield from _differences(f"{path}.{key}", now.get(key), was.get(key))
    elif isinstance(now, list) and isinstance(was, list) and len(now) == len(was):
        for number, pair in enumerate(zip(now, was, strict=True)):
            yield from _differences(f"{path}.{number}", *pair)
    elif now != was:
        yield f"{path.lstrip('.')}: {now!r}, was {was!r}"
