"""The autoscaler's numbers, one place. All of them are the platform's, none an endpoint's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Windows in seconds. Defaults are those of the platform's configuration file.

    sharp_window_s: the newest seconds, looked at in overload. noise_window_s: over which arrivals' noise is measured.
    utilization: target over limit; pooled: the most that a large pool's target may be of it.
    headroom: the replicas left after a decrease carry the window's peak within this share of their target.
    drain_s: a backlog shall be gone after this long, before who waits longest gives up, or after drain_services times W
    if that is longer.
    significance: so many standard deviations of a short mean are its noise. band: the largest share of what replicas
    carry that noise is let pass for. ease: fewer replicas a minute because of a better target, as a share.
    growth_window_s: arrivals that grow over five of these in a row keep growing, to growth_ahead times what there is
    at the most. onset_s: so long an overload's first seconds are looked at. served, patience_s: once this share of its
    first attempts has been served for so long, what is refused is no retry any more.
    present_s: the present that expectations start from.
    recent_s, burst_level, burst_share: the memory of bursts; the share of half minutes that what is kept ready covers;
    how full of their limit bursts may make replicas.
    start_s: time to ready where none was seen yet. gap_s: longer holes leave a window uncovered.
    silence_s: after so long without any answer the endpoint says that it is held by unknown load.
    completions: fewer than these say nothing about the service time.
    """

    down_window_s: float = 120.0
    up_window_s: float = 20.0
    fast_window_s: float = 5.0
    sharp_window_s: float = 2.0
    noise_window_s: float = 60.0
    growth: float = 10.0
    utilization: float = 0.8
    pooled: float = 0.9
    headroom: float = 0.9
    drain_s: float = 3.5
    drain_services: float = 2.5
    significance: float = 2.0
    band: float = 0.1
    ease: float = 0.1
    onset_s: float = 4.0
    growth_window_s: float = 4.0
    growth_ahead: float = 3.0
    served: float = 0.95
    patience_s: float = 20.0
    present_s: float = 60.0
    recent_s: float = 1800.0
    burst_level: float = 0.95
    burst_share: float = 0.95
    start_s: float = 30.0
    gap_s: float = 20.0
    silence_s: float = 60.0
    service_window_s: float = 60.0
    completions: float = 10.0
    cycle_s: float = 5.0
    sample_s: float = 1.0
    status_s: float = 30.0


def settings_from(block: Mapping[str, Any]) -> Settings:
    """The `autoscaler` block of the platform's settings; a key that is not there keeps its default."""
    known = {key: float(block[key]) for key in Settings.__dataclass_fields__ if block.get(key) is not None}
    wrong = [key for key, value in known.items() if not value > 0]
    if wrong:
        raise ValueError(f"autoscaler: {', '.join(sorted(wrong))} must be above zero")
    return Settings(**known)
