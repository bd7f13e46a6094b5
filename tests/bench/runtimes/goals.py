"""What was found beside what is wanted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.bench.runtimes.measuring import CONNECTIONS, Alone, Turns, cpu_ratio, median
from tests.bench.runtimes.servers import CONSTANT, KSERVE_, MLFLOW, MLSERVER, OURS, SILENT

OVER_MLFLOW = dict(zip(CONNECTIONS, (10.0, 20.0, 30.0), strict=True))
OVER_OTHERS = dict(zip(CONNECTIONS, (1.5, 3.0, 3.0), strict=True))
OF_CONSTANT, READY, TELEMETRY_US = 0.35, 0.4, 30.0
PLAIN_US, PIECE_US, PLAIN_MS = 150.0, 15.0, 1.0


@dataclass(frozen=True)
class Goal:
    """One number and its bound; `least` says from which side."""

    about: str
    found: float
    bound: float
    least: bool

    @property
    def met(self) -> bool:
        return self.found >= self.bound if self.least else self.found <= self.bound


@dataclass(frozen=True)
class Interface:
    """Our interface in front of another server: CPU of a plain request and of a streamed piece, and time it adds."""

    plain_us: float
    plain_added_ms: float
    piece_us: float


def of_model(name: str, turns: Turns) -> Iterator[Goal]:
    """By CPU a request, which a shared machine disturbs least."""
    for rival, least in ((MLFLOW, OVER_MLFLOW), (KSERVE_, OVER_OTHERS), (MLSERVER, OVER_OTHERS)):
        for count in CONNECTIONS:
            ratio = cpu_ratio(turns, (rival, count), (OURS, count))
            yield Goal(f"{name}: CPU of {rival} over ours, {count} connections", ratio, least[count], True)
    most = max(CONNECTIONS)
    share = cpu_ratio(turns, (CONSTANT, most), (OURS, most))
    yield Goal(f"{name}: CPU of a constant answer over ours, {most} connections", share, OF_CONSTANT, True)


def of_process(name: str, alone: Mapping[str, Alone]) -> Iterator[Goal]:
    ours = alone[OURS]
    yield Goal(f"{name}: ready, share of mlflow's time", ours.ready_s / alone[MLFLOW].ready_s, READY, False)
    yield Goal(f"{name}: PSS in MiB, MLServer's beside", ours.pss_mib, alone[MLSERVER].pss_mib, False)


def telemetry(turns: Turns) -> Goal:
    at = max(CONNECTIONS)
    cost = median(turns[CONSTANT, at]).cpu_us - median(turns[SILENT, at]).cpu_us
    return Goal("CPU us of metrics, sampled trace and payload log together", cost, TELEMETRY_US, False)


def of_interface(found: Interface) -> Iterator[Goal]:
    yield Goal("in front of a server: CPU us a plain request", found.plain_us, PLAIN_US, False)
    yield Goal("in front of a server: CPU us a streamed piece", found.piece_us, PIECE_US, False)
    yield Goal("in front of a server: ms added to the p50 of one connection", found.plain_added_ms, PLAIN_MS, False)
