"""How many requests should be in flight now: from an endpoint's windows to its demand. Pure.

Owns the formula, what counts as overload, and which arrivals are retries. Its one idea: demand is arrivals x W
(Little 1961), which is what is in flight in steady state and, unlike it, does not stop at what ready replicas hold.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

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
    fast, slow, sharp = observation.fast, observation.slow, _pressed(observation.sharp)
    if fast is None:
        return Demand(None, complete=False, overloaded=False)
    w_s = observation.service_time_s
    windows = [_Window(slow or fast, settings.up_window_s, 0.0)]
    windows += [_Window(fast, settings.fast_window_s, settings.significance)]
    windows += [_Window(sharp, settings.sharp_window_s, settings.significance)] if sharp is not None else []
    # Of those refused what is in flight says nothing, and without W their arrivals don't either: all pods may be down.
    complete = fast.complete and not (w_s is None and fast.refused_rps)
    return Demand(
        requests=max(_window_demand(window, observation, surge, settings) for window in windows),
        complete=complete,
        overloaded=any(_presses(window.means) for window in windows),
        noise=(observation.noise_rps or 0.0) * (w_s or 0.0) / math.sqrt(settings.up_window_s),
        dispersion=_dispersion(observation),
        rise=_rise_rps(observation, settings) * (w_s or 0.0),
        surging=surge is not None and not surge.over,
    )


def _rise_rps(observation: Observation, settings: Settings) -> float:
    """By how much arrivals per second keep growing in a second, beyond the noise of a window's mean."""
    w_s = observation.service_time_s or observation.likely_time_s or 0.0
    window_s = max(settings.growth_window_s, min(w_s, settings.service_window_s))
    windows = ((observation.growth_rps, window_s), (observation.early_growth_rps, window_s / 2))
    noise_rps = settings.significance * (observation.noise_rps or 0.0)
    return max(max((grown or 0.0) - noise_rps / math.sqrt(length_s), 0.0) / length_s for grown, length_s in windows)


class _Window(NamedTuple):
    """`significance`: so many standard deviations of its mean are let pass for noise."""

    means: Means
    length_s: float
    significance: float


def _window_demand(window: _Window, observation: Observation, surge: Surge | None, settings: Settings) -> float:
    """First attempts x W, at least what they have in flight beyond noise, and the backlog's share to be gone in the
    drain time. Where the arrivals are unknown: in flight and queued.

    4 replicas of 10 hold 40 in flight, while 1,000 arrivals/s x 0.2 s need 200. A backlog of 70 at W = 0.2 s drains
    in 3.5 s with 70 x 0.2 / 3.5 = 4 more in flight. 300 in flight while every third to arrive is a retry: 200.
    """
    means, w_s = window.means, observation.service_time_s
    backlog = means.queued * _share_now(observation.backlog_time_s, settings)
    if w_s is None:
        return _likely_demand(means, backlog, observation, surge)
    arriving_noise, held_noise = _deviations(window, w_s, observation.noise_rps or 0.0)
    if means.first_rps is None or means.arrived_rps is None:
        return max(means.in_flight - window.significance * held_noise, 0.0) + backlog
    first_rps = means.first_rps - _retried(means, surge)
    arriving = first_rps * w_s - window.significance * arriving_noise
    first_share = first_rps / means.arrived_rps if means.arrived_rps > 0 else 1.0
    held = (means.in_flight - settings.significance * held_noise) * first_share
    return max(arriving, held, 0.0) + backlog


def _share_now(backlog_time_s: float | None, settings: Settings) -> float:
    """Of the requests that wait, the share to be in flight at a time so that all are gone in the drain time.

    W = 0.2 s and 3.5 s to drain: 0.2 / 3.5 = 0.06. All of them where nobody ever measured W.
    """
    if backlog_time_s is None:
        return 1.0
    return min(1.0, backlog_time_s / max(settings.drain_s, settings.drain_services * backlog_time_s))


def _likely_demand(means: Means, backlog: float, observation: Observation, surge: Surge | None) -> float:
    """While W is not known: in flight and the backlog, or more where a W that is likely makes more of what arrives. A
    guess covers the backlog too; what was measured before is arrivals alone.

    2 in flight and 8 queued: 10, since each may take minutes. 0.2 s were measured before the autoscaler began anew:
    2 + 8 x 0.06 = 2.5, and once 24/s are seen to arrive 24 x 0.2 + 0.5 = 5.3.
    """
    likely_s = observation.likely_time_s
    if likely_s is None or means.first_rps is None:
        return means.in_flight + backlog
    arriving = (means.first_rps - _retried(means, surge)) * likely_s
    if observation.backlog_time_s is None:
        return max(means.in_flight + backlog, arriving)
    return max(means.in_flight, arriving) + backlog


def _deviations(window: _Window, w_s: float, noise_rps: float) -> tuple[float, float]:
    """Standard deviations of the window's arrivals x W and of its mean in flight, both in requests and at least those
    of arrivals that know nothing of each other. A reading holds what came within the last W, so the mean of few
    readings rests on less than all that arrived between them.

    10/s of noise, 5 readings, W = 0.2 s: 10 x 0.2 / sqrt(5) = 0.9 and 10 x sqrt(0.2 / 5) = 2.
    """
    means, seconds = window.means, min(window.means.samples or window.length_s, window.length_s)
    rate_noise = max(noise_rps, math.sqrt(means.first_rps or 0.0)) * w_s
    held_noise = max(noise_rps * math.sqrt(w_s), math.sqrt(means.in_flight))
    length_s = max(seconds, w_s)
    return rate_noise / math.sqrt(length_s), held_noise * math.sqrt(max(w_s, 1.0) / length_s)


def _retried(means: Means, surge: Surge | None) -> float:
    """Unmarked retries, per second: what arrives beyond the overload's first seconds, at most what was refused.

    1,000/s arrived at first, 960 of them were refused and 1,900/s arrive now: 900 of these are retries.
    """
    if surge is None or means.first_rps is None or not means.refused_rps:
        return 0.0
    return max(min(means.first_rps - surge.first_rps, means.refused_rps), 0.0)


def _pressed(sharp: Means | None) -> Means | None:
    """The newest seconds, if they are an overload and known whole: their noise is worth it only then."""
    return sharp if sharp is not None and sharp.complete and _presses(sharp) else None


def _presses(means: Means) -> bool:
    return means.queued > 0 or bool(means.refused_rps)


def _dispersion(observation: Observation) -> float:
    slow = observation.slow
    if observation.noise_rps is None or slow is None or not slow.first_rps:
        return 1.0
    return max(observation.noise_rps * observation.noise_rps / slow.first_rps, 1.0)
