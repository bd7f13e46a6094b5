"""The autoscaler's numbers, one place. All of them are the platform's, none an endpoint's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Windows in seconds. Defaults are those of the platform's configuration file.

    headroom: the replicas left after a decrease carry the window's peak within this share of their target.
    drain_s: a backlog shall be gone after this long. gap_s: longer holes leave a window uncovered.
    silence_s: after so long without any answer the endpoint says that it is held by unknown load.
    completions: fewer than these say nothing about the service time.
    """

    down_window_s: float = 300.0
    up_window_s: float = 20.0
    fast_window_s: float = 5.0
    growth: float = 10.0
    utilization: float = 0.8
    headroom: float = 0.9
    drain_s: float = 5.0
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
