"""Which decisions are worth a line in the log: every change of replicas or of a limit, and now and then what stayed.

Leaves what a line says to `record` and where it goes to `journal`; without a journal nothing is recorded.
"""

from collections.abc import Callable, Container

from controllers.autoscaler.cycle import Inputs, Remembered, Turn
from controllers.autoscaler.journal import Journal
from controllers.autoscaler.learning import Lesson
from controllers.autoscaler.record import Kind, LimitRecord, Record, line_of
from controllers.autoscaler.view import Endpoint

SNAPSHOT_S = 600.0
Key = tuple[str, str, str]


class Recorder:
    def __init__(self, journal: Journal | None, monotonic: Callable[[], float], wall: Callable[[], float]) -> None:
        self._journal, self._monotonic, self._wall = journal, monotonic, wall
        self._told_at_s: dict[Key, float] = {}

    def decided(self, endpoint: Endpoint, changed: bool, remembered: Remembered, inputs: Inputs, turn: Turn) -> None:
        """One cycle of one endpoint: what it rested on, and what came of it."""
        now_s = self._monotonic()
        fresh = now_s - self._told_at_s.get(endpoint.key, float("-inf")) < SNAPSHOT_S
        if self._journal is None or (fresh and not changed):
            return
        self._told_at_s[endpoint.key] = now_s
        kind = Kind.CHANGE if changed else Kind.SNAPSHOT
        self._journal.put(line_of(Record(self._wall(), *endpoint.key, kind, remembered, inputs, turn)))

    def taught(self, endpoint: Endpoint, lesson: Lesson | None) -> None:
        """One epoch of the learner."""
        if self._journal is not None and lesson is not None and lesson.is_change:
            self._journal.put(line_of(LimitRecord(self._wall(), *endpoint.key, Kind.LIMIT, lesson)))

    def forget(self, living: Container[Key]) -> None:
        for key in [key for key in self._told_at_s if key not in living]:
            del self._told_at_s[key]
