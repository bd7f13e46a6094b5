"""The traffic of the benchmark: public traces and shapes, each with the model that it is served by.

Owns scale, service time and burstiness of each, chosen once so that peaks need 8 to 30 replicas, and the rule that
tells smooth, bursty (what comes came before) and a surge (it never did). Rates by minute or longer are held within
their step and expanded to requests by the second with the coefficient of variation stated (1: Poisson).
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import numpy as np

from simulator.loads import Load, Rates, Times
from simulator.rivals.fixed import needed
from simulator.scenario import Scenario, Service, StartUp

DATA = Path(__file__).resolve().parents[3] / "simulator" / "data"
UTILIZATION = 0.7  # what sizes are stated at; policies choose their own
WARM_UP_S = 600.0
OBJECTIVE_SERVICES = 2.5
SERVICE_CV = 0.3
MAX_OVER_PEAK = 3
BURSTY, SURGE, MEMORY_S = 1.4, 1.3, 1800


class Kind(StrEnum):
    SMOOTH = "smooth"
    BURSTY = "bursty"
    SURGE = "surge"


@dataclass(frozen=True)
class Traffic:
    """`objective_s` is 2.5 mean service times; of requests that never wait, one in 50,000 is later."""

    name: str
    load: Load
    service_s: float
    slots: int = 8

    @property
    def objective_s(self) -> float:
        return OBJECTIVE_SERVICES * self.service_s

    @property
    def rates_rps(self) -> list[float]:
        """By second; single requests as means over 10 s."""
        if isinstance(self.load, Rates):
            return list(map(float, self.load.mean_counts(1.0)))
        counts = self.load.counts(np.random.default_rng(0), 1.0).astype(float)
        means = np.convolve(np.pad(counts, (5, 4), mode="edge"), np.full(10, 0.1), mode="valid")
        return list(map(float, means))

    @property
    def needed(self) -> list[int]:
        return needed(self.rates_rps, self.service_s, UTILIZATION * self.slots)

    @property
    def growth(self) -> float:
        """The largest growth of the replicas needed within a minute after the warm-up, by means over 20 s."""
        return max(after / before for before, after in self._minutes()[1])

    @property
    def kind(self) -> Kind:
        """A surge's largest growth leads beyond all that the half hour before has seen."""
        need, pairs = self._minutes()
        at = max(range(len(pairs)), key=lambda i: pairs[i][1] / pairs[i][0])
        if pairs[at][1] / pairs[at][0] < BURSTY:
            return Kind.SMOOTH
        begin = at + int(WARM_UP_S)
        known = max(need[max(begin - MEMORY_S, 0) : begin + 1])
        return Kind.SURGE if pairs[at][1] > SURGE * known else Kind.BURSTY

    def _minutes(self) -> tuple[list[float], list[tuple[float, float]]]:
        """Replicas needed by second, and those of each second after the warm-up with those a minute later."""
        rates = np.convolve(self.rates_rps, np.full(20, 0.05), mode="valid")
        need = [max(float(rate) * self.service_s / (UTILIZATION * self.slots), 1.0) for rate in rates]
        return need, list(zip(need[int(WARM_UP_S) : -60], need[int(WARM_UP_S) + 60 :], strict=True))

    def scenario(self, start_up_s: float) -> Scenario:
        peak = max(self.needed)
        return Scenario(
            load=self.load,
            service=Service(self.service_s, SERVICE_CV),
            start_up=StartUp(start_up_s),
            slots=self.slots,
            max_replicas=max(MAX_OVER_PEAK * peak, 10),
            initial_replicas=self.needed[0],
            objective_s=self.objective_s,
            warm_up_s=WARM_UP_S,
        )


def _column(file: str) -> list[tuple[float, ...]]:
    raw = (DATA / file).read_bytes()
    text = gzip.decompress(raw).decode() if file.endswith(".gz") else raw.decode()
    return [tuple(map(float, row)) for row in list(csv.reader(io.StringIO(text)))[1:]]


def _rates(file: str, scale: float, cv: float = 1.0, minutes: tuple[int, int] = (0, 60)) -> Rates:
    """That part of the file, each value held for its step."""
    rows = _column(file)
    part = [value * scale for at_s, value in rows if minutes[0] * 60 <= at_s < minutes[1] * 60]
    return Rates(part, rows[1][0] - rows[0][0], cv)


def _joined(file: str, scale: float, cv: float, minutes: int) -> Rates:
    """Ten-minute means, joined by lines."""
    rows = np.array(_column(file))
    means = np.interp(np.arange(0.0, minutes * 60.0, 60.0), rows[:, 0], rows[:, 1])
    return Rates((means * scale).tolist(), 60.0, cv)


def _sine(low: float, high: float, period_s: float, duration_s: int) -> Rates:
    middle, half = (high + low) / 2, (high - low) / 2
    return Rates([middle - half * math.cos(2 * math.pi * s / period_s) for s in range(duration_s)])


def _flash(base: float, peak: float, at_s: tuple[int, ...], fade_s: float, duration_s: int) -> Rates:
    """Crowds that come at once and go exponentially."""
    crowds = [sum((peak - base) * math.exp((a - s) / fade_s) for a in at_s if a <= s) for s in range(duration_s)]
    return Rates([base + crowd for crowd in crowds])


def _bursts(base: float, peak: float, pause_s: float, duration_s: int) -> Rates:
    """Bursts of 15 to 60 s at times that no clock knows, with `pause_s` between them in the mean."""
    random, rates, at = np.random.default_rng(1998), [base] * duration_s, 0
    while (at := at + int(random.exponential(pause_s))) < duration_s:
        length = int(random.integers(15, 61))
        rates[at : at + length] = [peak] * len(rates[at : at + length])
        at += length
    return Rates(rates)


def _gamma(mean: float, cv: float, block_s: int, duration_s: int) -> Rates:
    """A rate that is drawn anew for each block: as load of few large clients is."""
    drawn = np.random.default_rng(1998).gamma(1 / cv**2, mean * cv**2, duration_s // block_s)
    return Rates(list(map(float, drawn)), block_s)


# How each is loaded: file, factor on its rate, burstiness, minutes; then the model: service time, slots.
_MADE: dict[str, Callable[[], tuple[Load, float, int]]] = {
    "azure-llm": lambda: (Times([row[0] for row in _column("azure_llm_2023_conv_times.csv.gz")]), 4.0, 4),
    "azure-functions": lambda: (_rates("azure_functions_2019_app_1min.csv", 10.0, 1.0, (0, 90)), 1.0, 8),
    "twitter-aapl": lambda: (_rates("nab_twitter_aapl_5min.csv", 20.0, 1.0, (40, 110)), 0.5, 8),
    "twitter-amzn": lambda: (_rates("nab_twitter_amzn_5min.csv", 40.0, 1.0, (40, 110)), 0.5, 8),
    "elb": lambda: (_rates("nab_elb_5min.csv", 60.0, 1.5, (30, 120)), 0.5, 8),
    "worldcup-jump": lambda: (_rates("worldcup98_jump_1min.csv", 0.5, 1.0, (0, 70)), 0.5, 8),
    "worldcup-match": lambda: (_rates("worldcup98_match_1min.csv", 0.1, 1.0, (60, 160)), 0.5, 8),
    "worldcup-calm": lambda: (_rates("worldcup98_calm_1min.csv", 0.5, 1.0, (0, 70)), 0.5, 8),
    "servegen-mid": lambda: (_joined("servegen_m_mid_10min.csv", 0.01, 2.0, 100), 4.0, 8),
    "servegen-small": lambda: (_joined("servegen_m_small_10min.csv", 0.01, 2.0, 70), 4.0, 8),
    "bursts": lambda: (_bursts(40.0, 200.0, 240.0, 4800), 0.5, 8),
    "gamma": lambda: (_gamma(70.0, 0.7, 20, 4200), 0.5, 8),
    "sine": lambda: (_sine(40.0, 240.0, 1200.0, 4200), 0.5, 8),
    "flash": lambda: (_flash(30.0, 240.0, (1000, 2300), 120.0, 3900), 0.5, 8),
}
NAMES = tuple(_MADE)
SIMILAR = ("worldcup-calm", "servegen-small")  # to others, so in a full run alone


@cache
def traffic(name: str) -> Traffic:
    return Traffic(name, *_MADE[name]())
