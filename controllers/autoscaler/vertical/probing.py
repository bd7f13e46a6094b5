"""Which question is put to one pod next: would it hold more, would it be faster with less. Pure.

Owns when a probe begins and what its limit is. Its one idea: nothing beyond what was seen is ever tried on more than
one pod, and a question costs that pod some epochs at most.
"""

from dataclasses import replace

from controllers.autoscaler.vertical.diagnosis import View
from controllers.autoscaler.vertical.evidence import Evidence, Point
from controllers.autoscaler.vertical.knowledge import Probe
from controllers.autoscaler.vertical.rules import Situation
from controllers.autoscaler.vertical.settings import Settings

# Of an epoch, so much may pass until a pod holds what it shall.
_SETTLING = 0.1
# A pod that is asked whether it can hold more is filled before the others; its limit bounds it. HAProxy's most.
_FIRST = 256
_DEEPEST = 0.2


def plan(situation: Situation, limit: int) -> Probe | None:
    """`limit` is the one just decided on. A probe that runs goes on; none starts while pods do."""
    running, point, now_s = situation.knowledge.probe, situation.finding.point, situation.now_s
    if situation.finding.view in (View.UNSETTLED, View.UNKNOWN) or point is None:
        return None
    if running is not None and now_s < running.until_s - situation.settings.epoch_s / 2:
        return replace(running, limit=_bounded(situation, running.limit))
    if situation.finding.view is View.FEW:
        return None
    down = _down(situation, point)
    if down is not None:
        bounded = _bounded(situation, down)
        return Probe(_pod(situation.evidence), bounded, _until_s(situation, point, bounded), point)
    up = _up(situation, point, limit)
    if up is None:
        return None
    bounded = _bounded(situation, up)
    until_s, enough = _until_s(situation, point, bounded), _enough(situation, bounded)
    return Probe(_pod(situation.evidence), bounded, until_s, point, up=True, weight=_FIRST, enough=enough)


def _until_s(situation: Situation, point: Point, limit: int) -> float:
    """An epoch; one more where the pod needs a good part of the first to finish what it holds above its new limit."""
    epoch_s = situation.settings.epoch_s
    drain_s = max(point.in_flight - limit, 0.0) / point.served_rps
    slow = max(drain_s, point.service_s) > _SETTLING * epoch_s
    return situation.now_s + (2 * epoch_s if slow else epoch_s)


def _bounded(situation: Situation, limit: int) -> int:
    settings = situation.settings
    return min(max(limit, settings.limit_min, settings.probe_min, 1), max(situation.evidence.concurrency_max, 1))


def _down(situation: Situation, point: Point) -> int | None:
    """Where latency is above its floor, or no floor is known, and nobody knows why.

    As deep as the knee would be if it were the reason: 64 in flight at 4 times the floor become 16.
    """
    known, finding, settings = situation.knowledge, situation.finding, situation.settings
    bad = finding.view in (View.SUSPECT, View.OVERLOADED) and (finding.ratio or settings.suspect) >= settings.suspect
    unexplained = bad or (finding.loaded and finding.ratio is None)
    if not unexplained or finding.cause is not None or situation.now_s < known.held_until_s:
        return None
    share = min(settings.probe_down, max(1 / finding.ratio, _DEEPEST)) if finding.ratio else settings.probe_down
    return int(point.in_flight * share) if point.in_flight > 1 else None


def _up(situation: Situation, point: Point, limit: int) -> int | None:
    """While latency holds and resources are free: beyond what is proven, or, rarely, beyond the knee."""
    known, finding, settings = situation.knowledge, situation.finding, situation.settings
    if finding.view not in (View.HOLDS, View.IDLE) or finding.ratio is None or finding.busy:
        return None
    if known.is_held(situation.now_s) or situation.now_s < known.retest_at_s:
        return None
    if known.knee is not None and limit < round(known.knee):
        return None
    base = known.proven if known.knee is None else limit
    wanted = max(int(base * settings.probe_up), base + 1)
    in_flight = point.in_flight * max(len(situation.evidence.pods), 1)
    return wanted if in_flight >= _enough(situation, wanted) else None


def _enough(situation: Situation, limit: int) -> float:
    """What the pod must hold to have answered: more than a knee; else half of a step, of a quarter even where that is
    no whole request."""
    settings, known = situation.settings, situation.knowledge
    if known.knee is not None:
        return min(settings.outgrown * known.knee, float(limit))
    return settings.half_full * min(float(limit), max(known.proven, 1) * settings.probe_up)


def _pod(evidence: Evidence) -> str | None:
    """The one that holds most, since a question to an idle pod has no answer; by name where they are equal."""
    return max(evidence.pods, key=lambda pod: (evidence.pods[pod].in_flight, pod), default=None)


def retest_s(settings: Settings, retests: int) -> float:
    """Until a pod is asked again: two minutes, doubled each time the answer was the same, or none, up to a day."""
    return float(min(settings.retest_s * 2.0 ** min(retests, 20), settings.retest_most_s))
