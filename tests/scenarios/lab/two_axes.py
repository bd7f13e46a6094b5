"""Both axes' production code around a fleet of replicas, a second at a time: decide every 5 s, learn every 30."""

from collections import deque
from dataclasses import dataclass, replace

from controllers.autoscaler.core import State, decide
from controllers.autoscaler.load import Counters, LoadSample, difference
from controllers.autoscaler.observation import Revision, Role, observation_of
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.vertical import learner
from controllers.autoscaler.vertical.evidence import Tallies, evidence_of, next_epoch, tally
from controllers.autoscaler.vertical.knowledge import Knowledge
from controllers.autoscaler.vertical.rules import Reason
from controllers.autoscaler.vertical.settings import Settings as Vertical
from controllers.autoscaler.vertical.signals import Signals
from spec.sizing import target_of
from tests.scenarios.lab.replicas import Fleet, Pod

VERTICAL = Vertical()
HORIZONTAL = Settings()
UNIX_S = 1_700_000_000.0


@dataclass(frozen=True)
class Epoch:
    """What one epoch ended with."""

    at_s: float
    limit: int
    knee: float | None
    reason: str
    replicas: int


class TwoAxes:
    """`scale` False keeps the replicas as they are. `signals` is what every epoch is told beside the load."""

    def __init__(
        self,
        fleet: Fleet,
        limit: int,
        replicas: int,
        *,
        scale: bool = True,
        start_s: float = 10.0,
        concurrency: tuple[int, int] = (1, 1000),
        signals: Signals | None = None,
        by_pod: bool = True,
        weighted: bool = True,
        knowledge: Knowledge | None = None,
    ) -> None:
        self.fleet, self.scale, self.start_s, self.concurrency = fleet, scale, start_s, concurrency
        self.signals = signals or Signals(self_test_ms=1000 * fleet.service_s)
        self.by_pod, self.weighted = by_pod, weighted
        self.knowledge = knowledge or Knowledge(limit=limit)
        self.advice = learner.Advice(limit, None, Reason.STEADY)
        self.history: list[Epoch] = []
        self.asked: list[int] = []
        self.state = State()
        self._samples: deque[LoadSample] = deque(maxlen=70)
        self._tallies: Tallies = {}
        self._before: Counters | None = None
        self._starting: list[float] = []
        self._desired = replicas
        self._number = 0
        for _ in range(replicas):
            self._add()

    def _add(self) -> None:
        self._number += 1
        self.fleet.pods[f"pod-{self._number:03}"] = Pod(self.knowledge.limit)

    @property
    def now_s(self) -> float:
        return self.fleet.now_s

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self._second()

    def _second(self) -> None:
        self._start()
        self._apply()
        now_s = self.now_s + 1
        self.fleet.advance(now_s)
        now = self.fleet.counters()
        load = difference(self._before, now, 1.0)
        self._samples.append(LoadSample(now_s, load))
        self._tallies = tally(self._tallies, self._before, now, 1.0, now_s)
        self._before = now
        if int(now_s) % 5 == 0:
            self._decide(now_s)
        if int(now_s) % 30 == 0:
            self._learn(now_s)

    def _start(self) -> None:
        due = [at_s for at_s in self._starting if at_s <= self.now_s]
        self._starting = [at_s for at_s in self._starting if at_s > self.now_s]
        for _ in due:
            self._add()

    def _apply(self) -> None:
        for name, pod in self.fleet.pods.items():
            probe = self.advice.probe
            mine = probe if probe is not None and probe.pod in (None, name) else None
            pod.limit = mine.limit if mine else self.advice.limit
            pod.weight = mine.weight if mine and self.weighted else 1

    def _decide(self, now_s: float) -> None:
        limit = self.advice.limit
        ready = [pod for pod in self.fleet.pods.values() if not pod.leaving]
        target = target_of(limit, HORIZONTAL.utilization)
        revision = Revision("r", Role.TRAFFIC, limit, target, self._desired, len(ready), self._desired)
        observation = observation_of(list(self._samples), [revision], self.concurrency, HORIZONTAL, now_s)
        self.state, verdict = decide(self.state, observation, HORIZONTAL, now_s)
        if self.scale:
            self._size(verdict.decisions[0].desired, now_s)
        self.asked.append(self._desired)

    def _size(self, desired: int, now_s: float) -> None:
        for _ in range(max(desired - self._desired, 0)):
            self._starting.append(now_s + self.start_s)
        for _ in range(max(self._desired - desired, 0)):
            if self._starting:
                self._starting.pop()
                continue
            serving = [name for name, pod in self.fleet.pods.items() if not pod.leaving]
            self.fleet.pods[max(serving)].leaving = True
        self._desired = desired

    def _learn(self, now_s: float) -> None:
        ready = {name for name, pod in self.fleet.pods.items() if not pod.leaving}
        evidence = evidence_of(
            self._samples,
            self.advice.limit,
            len(ready),
            VERTICAL,
            now_s,
            tallies={name: held for name, held in self._tallies.items() if name in ready} if self.by_pod else None,
            signals=self.signals,
            unsettled="pods start" if self._starting else None,
            concurrency_max=self.concurrency[1],
        )
        self.knowledge, self.advice = learner.learn(self.knowledge, evidence, VERTICAL, UNIX_S + now_s)
        self._tallies = next_epoch(self._tallies)
        knee, reason = self.advice.knee, str(self.advice.reason)
        self.history.append(Epoch(now_s, self.advice.limit, knee, reason, self._desired))

    def restart(self) -> None:
        """A new process: knowledge is read back, tallies and windows are not."""
        self.knowledge = replace(self.knowledge, probe=None)
        self.state, self._tallies, self._before = State(), {}, None
        self._samples.clear()
