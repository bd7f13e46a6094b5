"""The rows of the case table of runtimes that compare costs: two ways side by side in one run, as a ratio.

    python -m tests.bench.runtime_rows [--turns 5] [--seconds 1.2]

D12: the interface's CPU a request at 512 connections over that at 1. D13: the p99 of the time between two events of a
stream beside bodies of 1 MB less that without, of an engine that answers a constant and of a chat model. E5: CPU of a
request of 100 rows with batching over that without. E6: the p50 of a lone client with batching over that without. F3:
time and CPU of a prediction with the library's own number of threads over those with the quota's, both under a quota of
one core; where others use the machine, too, more threads get more of it, and only the CPU tells. Ratios are medians
over turns that alternate. Prints a table and writes bench-results/runtime_rows.json. Five minutes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from runtimes.mlflow.launch import predictor_environment
from runtimes.quota import cpu, own_affinity
from tests.bench import interface_cost
from tests.bench.autoscaler.report import table
from tests.bench.runtimes.load import GENERATOR, Request, drive
from tests.bench.runtimes.processes import Running, running
from tests.bench.runtimes.servers import Server, Started
from tests.integration.runtime_process import model_python, models
from tests.runtime_lab import cpu_quota, environments
from tests.runtime_lab.environments import ROOT

HERE = Path(__file__).parent
NAMES = ("sl", "sw", "pl", "pw")
ONE, HUNDRED = (
    Request("/invocations", json.dumps({"dataframe_split": {"columns": NAMES, "data": [[5.1, 3.5, 1.4, 0.2]] * rows}}))
    for rows in (1, 100)
)
CHAT = "/v1/chat/completions"
QUOTA_CORES = 1.0


@dataclass(frozen=True)
class Row:
    """What was found for one row of the table, and the bound that it asks for: at most, or at least where ``least``."""

    case: str
    about: str
    found: float
    bound: float
    least: bool = False

    @property
    def met(self) -> bool:
        return self.found >= self.bound if self.least else self.found <= self.bound


def interface(turns: int) -> Iterator[Row]:
    """D12, and D13 of a constant answer."""
    ratios, growths = [], []
    with interface_cost.running() as servers:
        process, port = servers["constant"]
        for _ in range(turns):
            alone, many = (
                interface_cost.measure("constant", process, port, "plain", connections, 3000).cpu_us
                for connections in (1, 512)
            )
            ratios.append(many / alone)
            growths.append(growth_ms(port, interface_cost.STREAM, interface_cost.LARGE))
    yield Row("D12", "CPU a request, 512 connections over 1", statistics.median(ratios), 2.0)
    yield Row("D13", "constant: gap p99 beside 1 MB bodies less alone, ms", statistics.median(growths), 20.0)


def growth_ms(port: int, stream: bytes, large: bytes) -> float:
    found = interface_cost.beside_large_bodies(port, stream, large)
    return found["beside"] - found["alone"]


def chat(folder: Path, turns: int) -> Iterator[Row]:
    """D13 of a chat model of MLflow's: its streams run in the process that also takes the bodies."""
    stream = _says("w sleep:0.01 " * (interface_cost.EVENTS // 2), stream=True)
    with running(_server("shared", _says("hello")), models() / "chat", folder) as up:
        growths = [growth_ms(up.port, stream.wire, _says("x" * (1 << 20)).wire) for _ in range(turns)]
    yield Row("D13", "chat: gap p99 beside 1 MB bodies less alone, ms", statistics.median(growths), 20.0)


def _says(content: str, **more: object) -> Request:
    return Request(CHAT, json.dumps({"messages": [{"role": "user", "content": content}], **more}))


def batching(folder: Path, turns: int, seconds: float) -> Iterator[Row]:
    """E5 and E6: the same model with and without."""
    cost: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        up = [stack.enter_context(running(_server(which, ONE), models() / "iris", folder / which)) for which in WAYS]
        for each in up:
            drive(each.port, ONE, 1, 0.5)
            each.settled_cpu_s()
        for turn in range(turns):
            for each in up if turn % 2 == 0 else reversed(up):
                which = each.server.name
                cost.setdefault((which, "E6"), []).append(drive(each.port, ONE, 1, seconds).p50_ms)
                cost.setdefault((which, "E5"), []).append(cpu_us(each, HUNDRED, seconds))
    ratio = {case: _ratio(cost["shared", case], cost["alone", case]) for case in ("E5", "E6")}
    yield Row("E5", "CPU of 100 rows in one request, batching on over off", ratio["E5"], 1.1)
    yield Row("E6", "p50 of a lone client, batching on over off", ratio["E6"], 1.2)


def cpu_us(each: Running, request: Request, seconds: float) -> float:
    """CPU of the whole process tree, a request of one client."""
    before = each.settled_cpu_s()
    seen = drive(each.port, request, 1, seconds)
    return (each.settled_cpu_s() - before) / (seen.requests + 1) * 1e6


WAYS = ("shared", "alone")


def _server(which: str, request: Request) -> Server:
    def start(model: Path, folder: Path, port: int) -> Started:
        argv = [str(ROOT / ".venv" / "bin" / "python"), str(HERE / "runtime_rows_server.py"), which, str(port)]
        return Started([*argv, str(model), str(model_python())], {"PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"})

    return Server(which, which, request, start)


def threads(folder: Path, turns: int, seconds: float) -> Iterator[Row]:
    """F3: one prediction, by model and rows."""
    script, python = HERE / "runtime_threads.py", environments.flavors_python()
    plain = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    environment = {
        "default": plain,
        "quota": predictor_environment(plain, cpu(None, QUOTA_CORES, own_affinity()).threads),
    }
    taken: dict[tuple[str, str], list[float]] = {}
    with cpu_quota.cores(QUOTA_CORES) as group:
        cpu_quota.run(group, [python, script, "make", folder], environment["quota"])
        for turn in range(turns):
            for which in ("default", "quota") if turn % 2 == 0 else ("quota", "default"):
                told = cpu_quota.run(group, [python, script, "time", folder, str(seconds)], environment[which])
                for model, both in json.loads(told.splitlines()[-1]).items():
                    for what, us in zip(("time", "CPU"), both, strict=True):
                        taken.setdefault((which, f"{model}: {what}"), []).append(us)
    for about in dict.fromkeys(about for _, about in taken):
        ratio = _ratio(taken["default", about], taken["quota", about])
        yield Row("F3", f"{about} with the library's threads over the quota's", ratio, 0.9, least=True)


def _ratio(over: list[float], under: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.2)
    parser.add_argument("--only", nargs="+", default=["interface", "chat", "batching", "threads"])
    given = parser.parse_args()
    print(f"{multiprocessing.cpu_count()} cores, load by {GENERATOR}, medians of {given.turns} turns", flush=True)
    with tempfile.TemporaryDirectory(prefix="knobless-bench-") as name:
        folder = Path(name)
        parts: dict[str, Callable[[], Iterator[Row]]] = {
            "interface": lambda: interface(given.turns),
            "chat": lambda: chat(folder / "chat", given.turns),
            "batching": lambda: batching(folder, given.turns, given.seconds),
            "threads": lambda: threads(folder, given.turns, given.seconds),
        }
        rows = [row for part in given.only for row in parts[part]()]
    shown = ((row.about, row.case, f"{row.found:.2f}", bound(row), "met" if row.met else "NO") for row in rows)
    print(table(("two ways in one run", "case", "found", "wanted", ""), shown))
    written = {
        "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
        "turns": given.turns,
        "rows": [asdict(row) | {"met": row.met} for row in rows],
    }
    results = ROOT / "bench-results"
    results.mkdir(exist_ok=True)
    (results / "runtime_rows.json").write_text(json.dumps(written, indent=1) + "\n")


def bound(row: Row) -> str:
    return f"{'>=' if row.least else '<='} {row.bound:.2f}"


if __name__ == "__main__":
    main()
