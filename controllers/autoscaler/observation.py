"""What an endpoint's decision rests on: its load by windows, its bounds, its revisions. Pure.

Owns the translation from samples to an observation. Leaves demand to `core`. Its one idea: whoever has samples (the
controller, the simulator, a recorded day) makes the same observation of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.service_time import likely_time_s, service_time_s
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Means, early_growth_rps, growth_rps, means, noise_rps, onset, surely_first_rps

_ONSET = 3


class Role(StrEnum):
    """TRAFFIC has the requests, SUCCESSOR gets them next, PARKED waits for a revert, FAILED can't start."""

    TRAFFIC = "Traffic"
    SUCCESSOR = "Successor"
    PARKED = "Parked"
    FAILED = "Failed"


@dataclass(frozen=True)
class Prior:
    """What a request took before: `measured` of the endpoint's own requests, else in a pod's test of itself."""

    seconds: float
    measured: bool


@dataclass(frozen=True)
class Revision:
    """`asked` is what we last asked for (None: never), `live` what its Deployment or LeaderWorkerSet says, `limit` a
    replica's.

    Of its pods (of a replica over several nodes the one that leads), by owner and phase: `starting` are not ready yet
    and may be, `failing` have failed to start more than once. `start_s`: how long a pod took lately from its creation
    to ready, None: not yet seen. `learnt`: the limit rests on a knee that was met. `numbers`: of its groups those that
    are ready; pods of their own have none.
    """

    name: str
    role: Role
    limit: int
    target: float
    live: int
    ready: int
    asked: int | None = None
    starting: int = 0
    failing: int = 0
    start_s: float | None = None
    learnt: bool = False
    numbers: tuple[int, ...] = ()

    @property
    def issued(self) -> int:
        return self.live if self.asked is None else self.asked


@dataclass(frozen=True)
class Observation:
    """An endpoint at one moment. `slow` and `fast` are the means of the two up windows, `sharp` of the newest seconds;
    `noise_rps` is the standard deviation of a second's arrivals; `onset` are an overload's first seconds;
    `growth_rps` is by how much arrivals keep growing from one window to the next, `early_growth_rps` the same over
    windows half as long, while nothing is refused; `surely_first_rps` are those of the newest second that are no
    retries; `likely_time_s` is W as far as it can be told while it is not measured, and `measured_before` that
    it rests on requests of this endpoint. None where unknown."""

    fast: Means | None
    slow: Means | None
    service_time_s: float | None
    concurrency_min: int
    concurrency_max: int
    revisions: tuple[Revision, ...]
    budget: int | None = None
    sharp: Means | None = None
    noise_rps: float | None = None
    onset: tuple[Load, ...] = ()
    growth_rps: float | None = None
    surely_first_rps: float | None = None
    likely_time_s: float | None = None
    early_growth_rps: float | None = None
    measured_before: bool = False

    @property
    def backlog_time_s(self) -> float | None:
        """The W that a backlog drains with: measured now, or before and no less than seems likely now."""
        if self.service_time_s is not None:
            return self.service_time_s
        return self.likely_time_s if self.measured_before else None


def observation_of(
    samples: Sequence[LoadSample],
    revisions: Iterable[Revision],
    concurrency: tuple[int, int],
    settings: Settings,
    now_s: float,
    prior: Prior | None = None,
) -> Observation:
    """`samples` of about one a `settings.sample_s`, in any order; `concurrency`: the endpoint's min and max.

    No window is shorter than a request takes: within less than W, arrivals say little of what is in flight.
    """
    completions = settings.completions / settings.sample_s
    w_s = service_time_s(samples, now_s, settings.service_window_s, completions)
    likely_s, prior_s = None, prior.seconds if prior is not None else None
    if w_s is None:
        likely_s = likely_time_s(samples, now_s, settings.service_window_s, completions, prior_s)
    least_s = min(w_s or likely_s or 0.0, settings.service_window_s)
    growth_s = max(settings.growth_window_s, least_s)
    return Observation(
        fast=means(samples, now_s, max(settings.fast_window_s, least_s)),
        slow=means(samples, now_s, max(settings.up_window_s, 2 * least_s)),
        service_time_s=w_s,
        concurrency_min=concurrency[0],
        concurrency_max=concurrency[1],
        revisions=tuple(revisions),
        sharp=means(samples, now_s, max(settings.sharp_window_s, least_s)),
        noise_rps=noise_rps(samples, now_s, settings.noise_window_s),
        onset=onset(samples, _ONSET),
        surely_first_rps=surely_first_rps(samples),
        likely_time_s=likely_s,
        growth_rps=growth_rps(samples, now_s, growth_s),
        measured_before=prior is not None and prior.measured,
        early_growth_rps=early_growth_rps(samples, now_s, growth_s / 2),
    )
