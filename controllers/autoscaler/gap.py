"""The time between two processes, told by counters that went on: HAProxy counts while nobody asks. Pure.

Owns when a gap is bridged and by what. Its one idea: a count that was kept with its time, and the same count now, give
the mean over the gap; where any gateway is new or began anew there is no such mean, and the gap stays a hole.
"""

from collections.abc import Mapping
from dataclasses import replace

from controllers.autoscaler.checkpoint import Arrivals
from controllers.autoscaler.cycle import Remembered
from controllers.autoscaler.settings import Settings

BRIDGE_MAX_S = 120.0
# A shorter gap is no hole; and over less, the difference between two machines' clocks is most of it.
BRIDGE_MIN_S = 5.0


def mean_rps(before: Arrivals, now: Arrivals, elapsed_s: float) -> float | None:
    """Arrivals per second over the gap, all gateways together; None where the counters can't tell."""
    if not before or before.keys() != now.keys() or not BRIDGE_MIN_S <= elapsed_s <= BRIDGE_MAX_S:
        return None
    grown = [_grown(before[gateway], now[gateway]) for gateway in before]
    return None if any(count is None for count in grown) else sum(count or 0 for count in grown) / elapsed_s


def _grown(before: Mapping[str, int], now: Mapping[str, int]) -> int | None:
    """None where a count is gone or fell. A revision that came meanwhile began with nothing."""
    if any(now.get(revision, -1) < count for revision, count in before.items()):
        return None
    return sum(now.values()) - sum(before.values())


def bridged(remembered: Remembered, rps: float | None, settings: Settings, now_s: float) -> Remembered:
    """The gap counts as known: the demand stayed as it was last seen, for as long as the mean allows, then fell.

    Last seen 80, the mean 20 over 48 s: 80 can have lasted 12 s. Where the mean is larger it is the demand of now.
    """
    demands, service_time_s = remembered.state.demands, remembered.service_time_s
    known_at_s = demands.known_at_s
    if rps is None or service_time_s is None or known_at_s is None or not known_at_s < now_s or not demands.peaks:
        return remembered
    mean, last, length_s = rps * service_time_s, demands.peaks[-1][1], now_s - known_at_s
    fell_at_s = known_at_s + length_s * (min(mean / last, 1.0) if last > 0 else 0.0)
    for at_s, demand in ((fell_at_s, last), (now_s, mean)):
        demands = demands.add(at_s, demand, True, settings.down_window_s, length_s)
    return replace(remembered, state=replace(remembered.state, demands=demands, known_at_s=now_s))
