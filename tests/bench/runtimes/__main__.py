"""Our runtime of MLflow models beside MLflow's own server, KServe's and MLServer's.

    python -m tests.bench.runtimes [--quick] [--turns 5] [--seconds 1.2] [--passes 3]

A small scikit-learn and a small LightGBM model, one row a request, 1, 8 and 32 connections. Each server runs in an
environment of its own, made once below KNOBLESS_HOME; all are up at the same time and asked one after the other, in
turns. CPU is that of a server's whole process tree, a request; memory its PSS after a load, with no other server up.
Prints tables with the goals beside and writes bench-results/runtimes.json. At most ten minutes once the environments
are there; `--quick` is two turns and one start, four minutes, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.runtimes import goals, in_front, measuring, report, servers
from tests.bench.runtimes.goals import Goal
from tests.bench.runtimes.load import GENERATOR
from tests.bench.runtimes.measuring import Alone, Turns
from tests.runtime_lab.environments import ROOT

MODELS = ("scikit-learn", "lightgbm")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.2, help="of one load")
    parser.add_argument("--passes", type=int, default=3, help="starts of each server")
    given = parser.parse_args()
    turns, passes = (2, 1) if given.quick else (given.turns, given.passes)
    print(f"{multiprocessing.cpu_count()} cores, load by {GENERATOR}, medians of {turns} turns\n{report.contenders()}")
    found: list[Goal] = []
    written: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="knobless-bench-") as name:
        folder = Path(name)
        servers.log_models(folder)
        for model in MODELS:
            # The environment decides a start, hardly the model: the second is started once.
            alone = measuring.alone(folder / model, folder, passes if model == MODELS[0] else 1, given.seconds)
            print(f"\n{report.processes(model, alone)}", flush=True)
            side = measuring.side_by_side(folder / model, folder, turns, given.seconds)
            print(f"\n{report.loads(model, side)}", flush=True)
            found += [*goals.of_model(model, side), *goals.of_process(model, alone)]
            written[model] = _rows(alone, side)
            last = side
    before = in_front.measured(min(turns, 3))
    found += [goals.telemetry(last), *goals.of_interface(before)]
    print(f"\n{report.goals(found)}")
    if not given.quick:
        _write({"turns": turns, "seconds": given.seconds, **written, "in_front": asdict(before)}, found)
    return 0


def _rows(alone: dict[str, Alone], side: Turns) -> dict[str, Any]:
    loads = [
        {"server": who, "connections": count, **asdict(measuring.median(points))}
        for (who, count), points in side.items()
    ]
    return {"alone": {who: asdict(one) for who, one in alone.items()}, "loads": loads}


def _write(document: dict[str, Any], found: list[Goal]) -> None:
    machine = {"cpus": multiprocessing.cpu_count(), "python": platform.python_version(), "load": GENERATOR}
    rows = [asdict(each) | {"met": each.met} for each in found]
    target = ROOT / "bench-results" / "runtimes.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(_rounded({"machine": machine, **document, "goals": rows}), indent=1) + "\n")


def _rounded(value: Any) -> Any:
    """Three digits after the point say more than was measured already."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
