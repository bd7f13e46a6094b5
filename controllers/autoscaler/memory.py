"""What the loop keeps of one endpoint between its cycles, and each endpoint's own place in time. Pure."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from zlib import crc32

from controllers.autoscaler.checkpoint import Checkpoint
from controllers.autoscaler.core import Verdict
from controllers.autoscaler.cycle import Remembered
from controllers.autoscaler.learning import Learnt
from controllers.autoscaler.starts import Past
from controllers.autoscaler.status import Change
from controllers.autoscaler.view import Endpoint

_FOREIGN_SHOWN_S = 60.0


@dataclass
class Memory:
    """`before`: the process before this one, until the gap to it is bridged or too old. `past`: of the pods'
    starts. `rest_s`: how long it may be left alone beyond its cycle, while the `stamp` of its objects stays; another
    such rest may follow without a cycle, until `look_at_s`."""

    remembered: Remembered = field(default_factory=Remembered)
    before: Checkpoint | None = None
    past: Past = field(default_factory=Past)
    learnt: Learnt = field(default_factory=Learnt)
    asked: dict[str, int] = field(default_factory=dict)
    due_at_s: float = 0.0
    rest_s: float = 0.0
    look_at_s: float = 0.0
    stamp: tuple[int, ...] = ()
    fingerprint: object = None
    running: bool = False
    failures: int = 0
    foreign: str | None = None
    foreign_until_s: float = 0.0

    def remember_asked(self, endpoint: Endpoint, verdict: Verdict, unwritten: Set[str]) -> None:
        """Also across a deleted Deployment (LeaderWorkerSet), of which the status says nothing: its successor gets its
        size at once."""
        asked = {d.revision: d.desired for d in verdict.decisions if d.revision not in unwritten}
        self.asked = {name: n for name, n in (self.asked | asked).items() if name in endpoint.phases}

    def note_foreign(self, changes: Iterable[Change], now_s: float) -> None:
        """Who else had set replicas is told for a while."""
        for change in changes:
            if change.foreign is not None:
                self.foreign, self.foreign_until_s = change.foreign, now_s + _FOREIGN_SHOWN_S
                self.rest_s = 0.0


def share_of(key: tuple[str, str, str]) -> float:
    """From 0 to 1, each endpoint its own: what is due for all is due for each at its own time."""
    return crc32(repr(key).encode()) / 2**32
