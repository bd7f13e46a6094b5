"""Which question is put to one pod next: would it hold more, would it be faster with less. Pure.

Owns when a probe begins and what its limit is. Its one idea: nothing beyond what was seen is ever tried on more than
one pod, and a question costs that pod some epochs at most.
"""

from controllers.autoscaler.vertical.diagnosis import View
from controllers.autoscaler.vertical.evidence import Evidence, Point
from controllers.autoscaler.vertical.knowledge import Probe
from controllers.autoscaler.vertical.rules import Situation
from controllers.autoscaler.vertical.settings import Settings

# A pod must first finish what it held; its answers come after that.
_SERVICE_TIMES = 4.0
# A probed pod shall hold so much of its limit, by weight; the balancer's weights end at 256.
_EXERCISE = 0.95
_WEIGHT, _WEIGHT_MOST = 100, 256
_DEEPEST = 0.2


def plan(situation: Situation, limit: int) -> Probe | None:
    """`limit` is the one just decided on. A probe that runs goes on; none starts while pods do."""
    running, point, now_s = situation.knowledge.probe, situation.finding.point, situation.now_s
    if situation.finding.view in (View.UNSETTLED, View.UNKNOWN, View.FEW) or point is None:
        return None
    if running is not None and now_s < running.until_s - situation.settings.epoch_s / 2:
        return running
    until_s = now_s + max(situation.settings.epoch_s, _SERVICE_TIMES * point.service_s)
    down = _down(situation, point)
    if down is not None:
        return Probe(_pod(situation.evidence), _bounded(situation, down), until_s, point)
    up = _up(situation, point, limit)
    if up is None:
        return None
    bounded = _bounded(situation, up)
    weight = min(max(round(_WEIGHT * _EXERCISE * bounded / point.in_flight), _WEIGHT), _WEIGHT_MOST)
    return Probe(_pod(situation.evidence), bounded, until_s, point, up=True, weight=weight)


def _bounded(situation: Situation, limit: int) -> int:
    settings = situation.settings
    return min(max(limit, settings.limit_min, settings.probe_min, 1), max(situation.evidence.concurrency_max, 1))


def _down(situation: Situation, point: Point) -> int | None:
    """Where latency is above its floor, or no floor is known, and nobody knows why.

    As deep as the knee would be if it were the reason: 64 in flight at 4 times the floor become 16.
    """
    known, finding, settings = situation.knowledge, situation.finding, situation.settings
    unexplained = finding.view in (View.SUSPECT, View.OVERLOADED) or (finding.loaded and finding.ratio is None)
    if not unexplained or finding.cause is not None or situation.now_s < known.held_until_s:
        return None
    share = min(settings.probe_down, max(1 / finding.ratio, _DEEPEST)) if finding.ratio else settings.probe_down
    return int(point.in_flight * share) if point.in_flight > 1 else None


def _up(situation: Situation, point: Point, limit: int) -> int | None:
    """While latency holds and resources are free: beyond what is proven, or, rarely, beyond the knee."""
    known, finding, settings = situation.knowledge, situation.finding, situation.settings
    if finding.view not in (View.HOLDS, View.IDLE) or finding.ratio is None or finding.busy:
        return None
    if known.knee is not None:
        due = situation.now_s >= known.retest_at_s and limit >= round(known.knee)
        return max(int(limit * settings.probe_up), limit + 1) if due else None
    wanted = max(int(known.proven * settings.probe_up), known.proven + 1)
    most = point.in_flight * _WEIGHT_MOST / _WEIGHT if len(situation.evidence.pods) > 1 else point.in_flight
    return wanted if most >= settings.half_full * wanted else None


def _pod(evidence: Evidence) -> str | None:
    """The one that holds most, since a question to an idle pod has no answer; by name where they are equal."""
    return max(evidence.pods, key=lambda pod: (evidence.pods[pod].in_flight, pod), default=None)


def retest_s(settings: Settings, retests: int) -> float:
    """Until the knee is asked about again: 10 minutes, doubled each time the answer was the same, up to a day."""
    return float(min(settings.retest_s * 2.0 ** min(retests, 20), settings.retest_most_s))
