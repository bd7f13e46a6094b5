"""How many requests should be in flight now: from an endpoint's windows to its demand. Pure.

Owns the formula, what counts as overload, and which arrivals are retries. Its one idea: demand is arrivals x W
(Little 1961), which is what is in flight in steady state and, unlike it, does not stop at what ready replicas hold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controllers.autoscaler.load import Load, LoadSample
from controllers.autoscaler.moment import Moment
from controllers.autoscaler.observation import Observation
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.window import Means


@dataclass(frozen=True)
class Demand:
    """Requests that should be in flight now; None: unknown. `complete` False: at least this.

    `noise`: the standard deviation of the long mean, in requests. `dispersion`: the variance of a second's arrivals
    over their mean, at least 1 (Poisson). `rise`: by how much it keeps growing in a second, beyond noise.
    `surging`: requests are refused, which is more than a queue for a moment.
    """

    requests: float | None
    complete: bool
    overloaded: bool
    noise: float = 0.0
    dispersion: float = 1.0
    rise: float = 0.0
    surging: bool = False


@dataclass(frozen=True)
class Surge:
    """An overload: since when, the first attempts per second that it began with, and since when as many are served."""

    since_s: Moment
    first_rps: float
    met_at_s: Moment | None = None
    over: bool = False


def presses(sample: LoadSample | None) -> bool:
    """Whether a sample shows an overload, which does not wait for the end of a cycle."""
    return sample is not None and sample.load is not None and (sample.load.queued > 0 or bool(sample.load.refused_rps))


def surge_of(before: Surge | None, observation: Observation, settings: Settings, now_s: float) -> Surge | None:
    """The overload after this moment. It is over once the short window shows no refusal and forgotten once the long one
    shows none. It begins anew where arrivals keep growing, which retries do only for as long as they are repeated, and
    where what came at first has been served for a while and yet others are refused. Arrivals beyond what was refused
    before are none either."""
    fast, slow = observation.fast, observation.slow
    if fast is None or fast.refused_rps is None or fast.first_rps is None:
        return before
    if fast.refused_rps <= 0:
        remembered = before is not None and slow is not None and bool(slow.refused_rps)
        return replace(before, over=True) if before is not None and remembered else None
    if before is None or before.over:
        return Surge(now_s, _first_attempts(observation.onset, fast.first_rps))
    if now_s - before.since_s < settings.onset_s:
        return replace(before, first_rps=_first_attempts(observation.onset, fast.first_rps))
    if _rise_rps(observation, settings) > 0 and fast.first_rps > before.first_rps:
        return replace(before, first_rps=fast.first_rps, met_at_s=None)
    least = (observation.surely_first_rps or 0.0) - settings.significance * (observation.noise_rps or 0.0)
    if least > before.first_rps:
        return replace(before, first_rps=least, met_at_s=None)
    if (fast.served_rps or 0.0) < settings.served * before.first_rps:
        return replace(before, met_at_s=None)
    if before.met_at_s is None:
        return replace(before, met_at_s=now_s)
    return before if now_s - before.met_at_s < settings.patience_s else Surge(now_s, fast.first_rps)


def _first_attempts(onset: Sequence[Load], otherwise: float) -> float:
    """First attempts per second, f, from the first seconds of refusals: arrivals are f + r x the refusals before them.

    400/s arrive (the step came within that second) and 360 are refused, then 1,360/s of which 1,320, then 2,320/s: what
    was refused grew by 960 and arrivals by 960, so all come again (r = 1), and f = 1,360 - 360 = 1,000. Where arrivals
    stay at 1,000, r = 0 and f = 1,000.
    """
    seconds = [(load.first_rps, load.refused_rps) for load in onset]
    known = [(first, refused) for first, refused in seconds if first is not None and refused is not None]
    if len(known) < 2:
        return known[0][0] if known else otherwise
    (began, missed), (second, missed_again) = known[:2]
    share = 1.0
    if len(known) > 2:
        growth = missed_again - missed
        share = min(max((known[2][0] - second) / growth, 0.0), 1.0) if growth > 0 else 0.0
    return max(began, second - share * missed)


def demand_of(observation: Observation, surge: Surge | None, settings: Settings) -> Demand:
    """The long mean, or what the short one is above its noise if that is more; in overload also the newest seconds.

    200 in flight on the long mean, 260 on the short one whose standard deviation is 10: 260 - 2 x 10 = 240.
    """
    fast, slow, sharp = observation.fast, observation.slow, observation.sharp
    if fast is None:
        return Demand(None, complete=False, overloaded=False)
    w_s = observation.service_time_s
    noise = (observation.noise_rps or 0.0) * (w_s or 0.0)
    requests, overloaded = _window_demand(slow or fast, w_s, surge, settings)
    for means, window_s in ((fast, settings.fast_window_s), (_pressed(sharp), settings.sharp_window_s)):
        if means is not None:
            quick, pressed = _window_demand(means, w_s, surge, settings)
            quick -= settings.significance * noise / math.sqrt(max(window_s, w_s or 0.0))
            requests, overloaded = max(requests, quick), overloaded or pressed
    deviation = noise / math.sqrt(settings.up_window_s)
    # Of those refused what is in flight says nothing, and without W their arrivals don't either: all pods may be down.
    complete = fast.complete and not (w_s is None and fast.refused_rps)
    rise = _rise_rps(observation, settings) * (w_s or 0.0)
    surging = surge is not None and not surge.over
    return Demand(requests, complete, overloaded, deviation, _dispersion(observation), rise, surging)


def _rise_rps(observation: Observation, settings: Settings) -> float:
    """By how much arrivals per second keep growing in a second, beyond the noise of a window's mean."""
    window_s = max(settings.growth_window_s, min(observation.service_time_s or 0.0, settings.service_window_s))
    noise_rps = (observation.noise_rps or 0.0) / math.sqrt(window_s)
    return max((observation.growth_rps or 0.0) - settings.significance * noise_rps, 0.0) / window_s


def _window_demand(means: Means, w_s: float | None, surge: Surge | None, settings: Settings) -> tuple[float, bool]:
    """First attempts x W, at least what is in flight, and the backlog's share to be gone in the drain time. Where W or
    the arrivals are unknown: in flight and queued.

    4 replicas of 10 hold 40 in flight, while 1,000 arrivals/s x 0.2 s need 200. A backlog of 100 at W = 0.2 s drains
    in 5 s with 100 x 0.2 / 5 = 4 more in flight.
    """
    overloaded = means.queued > 0 or bool(means.refused_rps)
    if w_s is None or means.first_rps is None:
        return means.in_flight + means.queued, overloaded
    drain_s = max(settings.drain_s, settings.drain_services * w_s)
    arriving = (means.first_rps - _retried(means, surge)) * w_s
    return max(arriving, means.in_flight) + means.queued * min(1.0, w_s / drain_s), overloaded


def _retried(means: Means, surge: Surge | None) -> float:
    """Unmarked retries, per second: what arrives beyond the overload's first seconds, at most what was refused.

    1,000/s arrived at first, 960 of them were refused and 1,900/s arrive now: 900 of these are retries.
    """
    if surge is None or means.first_rps is None or not means.refused_rps:
        return 0.0
    return max(min(means.first_rps - surge.first_rps, means.refused_rps), 0.0)


def _pressed(sharp: Means | None) -> Means | None:
    """The newest seconds, if they are an overload and known whole: their noise is worth it only then."""
    return sharp if sharp is not None and sharp.complete and (sharp.queued > 0 or bool(sharp.refused_rps)) else None


def _dispersion(observation: Observation) -> float:
    slow = observation.slow
    if observation.noise_rps is None or slow is None or not slow.first_rps:
        return 1.0
    return max(observation.noise_rps * observation.noise_rps / slow.first_rps, 1.0)
