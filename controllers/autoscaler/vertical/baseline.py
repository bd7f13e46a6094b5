"""How long a request takes that waits for no other: the floor that latency is measured against.

Owns how the baseline moves. Its one idea: it is moved by requests that were nearly alone, or that were faster than it,
and once it is known by a bounded amount a day; so load can't carry it upwards.
"""

from dataclasses import dataclass, replace

from controllers.autoscaler.vertical.settings import Settings

_DAY_S = 86_400.0
# A shorter time than the baseline by so much is no noise: whatever the load, a request alone takes no longer.
_FASTER = 0.9


@dataclass(frozen=True)
class Baseline:
    """`epochs` of evidence so far; `anchor_s` is what it was when its present day began, at `anchored_at_s`.

    p95_s: the tail that goes with it; None: not known.
    """

    service_s: float
    epochs: int
    anchor_s: float
    anchored_at_s: float
    p95_s: float | None = None


def taken(service_s: float, now_s: float, p95_s: float | None = None) -> Baseline:
    """From a self-test, or anew: one epoch's worth, so that requests of real clients soon outweigh it."""
    return Baseline(service_s, 1, service_s, now_s, p95_s)


def moved(
    baseline: Baseline | None, service_s: float, p95_s: float | None, settings: Settings, now_s: float
) -> Baseline:
    """With one more epoch at low load: the mean of the first ones, then a slow average within a day's drift."""
    if baseline is None:
        return taken(service_s, now_s, p95_s)
    if now_s - baseline.anchored_at_s >= _DAY_S:
        baseline = replace(baseline, anchor_s=baseline.service_s, anchored_at_s=now_s)
    weight = 1 / (min(baseline.epochs, settings.baseline_epochs) + 1)
    wanted_s = baseline.service_s + weight * (service_s - baseline.service_s)
    if baseline.epochs < settings.baseline_epochs:
        return Baseline(wanted_s, baseline.epochs + 1, wanted_s, now_s, _tail(baseline, p95_s, wanted_s, weight))
    most_s = baseline.anchor_s * (1 + settings.drift_a_day)
    least_s = baseline.anchor_s / (1 + settings.drift_a_day)
    within_s = min(max(wanted_s, least_s), most_s)
    return replace(baseline, service_s=within_s, p95_s=_tail(baseline, p95_s, within_s, weight))


def _tail(baseline: Baseline, p95_s: float | None, service_s: float, weight: float) -> float | None:
    """The tail moves with the mean, by no more than the mean did; a first one is taken as it is."""
    if baseline.p95_s is None:
        return p95_s
    if p95_s is None:
        return baseline.p95_s
    share = abs(service_s / baseline.service_s - 1)
    wanted_s = baseline.p95_s + weight * (p95_s - baseline.p95_s)
    return min(max(wanted_s, baseline.p95_s * (1 - share)), baseline.p95_s * (1 + share))


def is_faster(baseline: Baseline, service_s: float) -> bool:
    return service_s < _FASTER * baseline.service_s
