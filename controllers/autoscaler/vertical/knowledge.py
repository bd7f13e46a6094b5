"""What is learnt of one model on one kind of hardware, and remembered: numbers alone, small enough for a checkpoint.

Owns the shape and what it is keyed by. Leaves how it changes to `learner`. Its one idea: knowledge belongs to what was
measured (model, hardware, limits, runtime), so a new revision of the same keeps it and another machine starts anew.
"""

from dataclasses import dataclass, replace

from controllers.autoscaler.vertical.baseline import Baseline
from controllers.autoscaler.vertical.evidence import Point


@dataclass(frozen=True)
class Key:
    """Two revisions with an equal key are the same machine to the learner."""

    endpoint: str
    model_digest: str
    accelerator: str
    resources: str
    runtime: str

    @property
    def hardware(self) -> tuple[str, str]:
        return self.accelerator, self.resources

    def __str__(self) -> str:
        return "/".join((self.endpoint, self.model_digest, self.accelerator, self.resources, self.runtime))


@dataclass(frozen=True)
class Probe:
    """One pod under another limit until `until_s`; `before` is where the replicas worked when it began.

    weight: its share of the requests beside 1 of any other pod, so that it really holds more. up: the question is
    whether it can; it was answered if it held `enough`. `pod` None: all of them, where nothing is known pod by pod.
    mine: what the pod showed so far, in `asked` epochs.
    """

    pod: str | None
    limit: int
    until_s: float
    before: Point
    up: bool = False
    weight: int = 1
    enough: float = 0.0
    mine: Point | None = None
    asked: int = 0


@dataclass(frozen=True)
class Knowledge:
    """Times are Unix seconds, since knowledge outlives a process.

    knee: requests in flight beyond which latency grows and throughput does not; None: not met yet. proven: the largest
    limit under which latency held while half full. accepted_s: a service time above the baseline that was shown not to
    come from load. crest: the worst point met while pods were starting. relief: memory's share when it last cut.
    held_until_s: why latency is bad is not asked before. retest_at_s, retests: whether a pod can hold more is not asked
    before, and how often that had no new answer.
    """

    limit: int
    knee: float | None = None
    proven: int = 0
    baseline: Baseline | None = None
    accepted_s: float | None = None
    crest: Point | None = None
    probe: Probe | None = None
    relief: float | None = None
    held_until_s: float = 0.0
    retest_at_s: float = 0.0
    retests: int = 0
    floor_epochs: int = 0
    unsettled_since_s: float | None = None
    evidence_at_s: float | None = None
    learnt_at_s: float | None = None

    @property
    def floor_s(self) -> float | None:
        """What a request takes that waits for no other, as things are now."""
        base_s = self.baseline.service_s if self.baseline is not None else None
        return self.accepted_s if self.accepted_s is not None else base_s

    def is_held(self, now_s: float) -> bool:
        """Latency was shown to come from elsewhere a moment ago: until that is over nothing is read into it."""
        return self.accepted_s is not None and now_s < self.held_until_s


def settled(knowledge: Knowledge) -> Knowledge:
    """As it is kept: a probe ends with the process that asked."""
    return replace(knowledge, probe=None, unsettled_since_s=None)
