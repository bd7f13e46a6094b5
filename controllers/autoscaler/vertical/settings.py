"""The learner's numbers, one place. All of them are the platform's, none an endpoint's."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Times in seconds; steps and ratios are factors.

    raise_most, cut_most: bounds of one epoch's step. half_full: below this share of its limit a replica says nothing
    about more. known_share: of the epoch's seconds, so many must be known. completions: fewer say nothing about
    latency. tolerance: latency holds up to this multiple of its floor. suspect: from here on the cause is looked for
    while the knee is not known. probe_up, probe_down: a probed pod's limit, over what is proven and what is in flight.
    low_load: mean requests in flight of a replica that can't have waited for one another. drift_a_day: how far a
    baseline that is known may move. limit_min: the smallest limit. probe_min: the smallest of a probe; apart, because
    a floor is a promise and a probe is a question. hold_s: pause after a cause that is not ours. freeze_most_s: pods
    that start for longer than this are no reason to wait. floor_epochs: so many bad epochs at the floor, and the
    baseline is taken anew. overdue_s: an epoch that is looked at later than this is told. outgrown: a pod that does so
    many times a knee's work has a higher one. error_most, asked_most: a probe goes on until its answer is known so
    well, or for so many epochs. retest_s, retest_most_s: the first and the longest pause before a pod is asked again.
    warm_up_s: a pod's first seconds, which are no evidence.
    """

    epoch_s: float = 30.0
    raise_most: float = 1.25
    cut_most: float = 0.5
    half_full: float = 0.5
    known_share: float = 0.5
    completions: float = 20.0
    tolerance: float = 1.5
    suspect: float = 1.2
    probe_up: float = 1.25
    probe_down: float = 0.6
    low_load: float = 0.25
    baseline_epochs: int = 10
    drift_a_day: float = 0.1
    limit_min: int = 1
    probe_min: int = 1
    hold_s: float = 600.0
    outgrown: float = 1.1
    error_most: float = 0.1
    asked_most: int = 4
    retest_s: float = 120.0
    retest_most_s: float = 86_400.0
    warm_up_s: float = 10.0
    freeze_most_s: float = 600.0
    floor_epochs: int = 6
    overdue_s: float = 120.0
