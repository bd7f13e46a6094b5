"""What is simulated: a load, replicas that serve it, clients, and what goes wrong. Frozen values with units in names.

Owns the vocabulary of a run's world. Leaves the policy to `policy` and how all this moves to the engines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simulator.loads import Load


@dataclass(frozen=True)
class Service:
    """How long a replica works on a request: Gamma of that mean and coefficient of variation.

    Beyond `knee` requests in flight a replica's throughput stays what it is, so each takes longer in proportion: knee
    8, mean 0.2 s, 16 in flight: 0.4 s each, 40 a second as before. None: as many as the scenario's slots.
    """

    mean_s: float = 0.2
    cv: float = 0.5
    knee: float | None = None

    def slowdown(self, in_flight_per_replica: float) -> float:
        return 1.0 if self.knee is None else max(1.0, in_flight_per_replica / self.knee)


@dataclass(frozen=True)
class StartUp:
    """From asking for a replica until it is ready: lognormal of that median and standard deviation of its logarithm.

    `failing` of the starts fail when they should be ready, and try again as a kubelet does: after 10, 20, 40 ... 300 s.
    """

    median_s: float = 30.0
    sigma: float = 0.1
    failing: float = 0.0


@dataclass(frozen=True)
class Clients:
    """What clients do when refused: nothing (1 attempt), or try again after `delay_s`, with a mark or without one."""

    attempts: int = 1
    delay_s: float = 1.0
    marked: bool = True


@dataclass(frozen=True)
class Span:
    """[from_s, to_s)."""

    from_s: float
    to_s: float

    def __contains__(self, at_s: float) -> bool:
        return self.from_s <= at_s < self.to_s


@dataclass(frozen=True)
class Slow:
    """A dependency that makes every request take `factor` times as long, whatever the load, during `span`."""

    span: Span
    factor: float


@dataclass(frozen=True)
class Metrics:
    """What happens to samples on their way: `lost` and `absurd` are shares, `late_s` is added to the policy's delay.

    An absurd sample is known and wrong: negative, a thousandfold or not a number. In `silent` spans all are lost.
    """

    lost: float = 0.0
    absurd: float = 0.0
    late_s: float = 0.0
    silent: tuple[Span, ...] = ()


@dataclass(frozen=True)
class Restart:
    """The controller dies at `at_s`, and another decides from `down_s` later on, with what was kept within the minute
    before."""

    at_s: float
    down_s: float = 5.0


@dataclass(frozen=True)
class Scenario:
    """One endpoint's world. `slots`: requests a replica can run at once, as declared; `objective_s`: a request is late
    when its time in the queue and in service is above. Figures leave out the first `warm_up_s`. Begins with
    `initial_replicas` (None: the minimum) ready. At each of `rollouts_s` a successor starts, of as many replicas as are
    issued; when all of it is ready it takes over.
    """

    load: Load
    service: Service = Service()
    start_up: StartUp = StartUp()
    slots: int = 10
    min_replicas: int = 1
    max_replicas: int = 1000
    initial_replicas: int | None = None
    objective_s: float = 1.0
    warm_up_s: float = 0.0
    clients: Clients = Clients()
    metrics: Metrics = Metrics()
    slow: tuple[Slow, ...] = ()
    rollouts_s: tuple[float, ...] = ()
    restarts: tuple[Restart, ...] = ()

    @property
    def duration_s(self) -> int:
        """Whole seconds, since a sample is one."""
        return math.ceil(self.load.duration_s)

    @property
    def replica(self) -> Service:
        """The service with its knee, stated or at what was declared."""
        return self.service if self.service.knee is not None else replace(self.service, knee=float(self.slots))

    @property
    def initial(self) -> int:
        return self.min_replicas if self.initial_replicas is None else self.initial_replicas

    def slow_factor(self, at_s: float) -> float:
        return math.prod(slow.factor for slow in self.slow if at_s in slow.span)
