"""Judges the autoscaler against its rivals in simulation: prints tables and goals, writes them as JSON.

    python -m tests.bench.autoscaler                                      # everything, at most ten minutes on two cores
    python -m tests.bench.autoscaler --only twitter --start-up 30          # some traffic, one start-up
    python -m tests.bench.autoscaler --section step --policy ours          # one section, us alone
    python -m tests.bench.autoscaler --full                                # more seeds, every variant of a rival

It reports and never fails on a number.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.autoscaler import goals, learning, report, steady, step
from tests.bench.autoscaler.contenders import BY_NAME, CONTENDERS, DEFAULTS
from tests.bench.autoscaler.loads import NAMES, SIMILAR, traffic
from tests.bench.autoscaler.runs import in_processes
from tests.bench.autoscaler.sweep import Plan, compared, sweep

OUT = Path(__file__).resolve().parents[3] / "bench-results" / "autoscaler.json"
SECTIONS = ("curves", "step", "steady", "learning")
START_UPS_S = (10.0, 30.0, 120.0)
STEP_RIVALS = ("hpa-queue", "kpa", "databricks-queue", "ray")


def main() -> None:
    asked = _arguments()
    began = time.monotonic()
    found: dict[str, Any] = {}
    reached: list[goals.Goal] = []
    for section in asked.section:
        reached += _SECTIONS[section](asked, found)
    _print("Goals", report.goals(reached))
    found["goals"] = [asdict(goal) | {"met": goal.met} for goal in reached]
    found["took_s"] = round(time.monotonic() - began, 1)
    print(f"\n{found['took_s']:.0f} s")
    whole = not (asked.only or asked.policy) and len(asked.section) == len(SECTIONS)
    if out := asked.json or (OUT if whole else None):
        out.parent.mkdir(exist_ok=True)
        out.write_text(json.dumps(found, indent=1) + "\n")
        print(f"written to {out}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.autoscaler", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="TEXT", help="traffic whose name has TEXT")
    parser.add_argument("--start-up", action="append", type=float, metavar="S", help="seconds; again for several")
    parser.add_argument("--policy", action="append", choices=sorted(BY_NAME), help="again for several")
    parser.add_argument("--section", action="append", choices=SECTIONS)
    parser.add_argument("--seeds", type=int, help="of ours, HPA and KPA")
    parser.add_argument("--full", action="store_true", help="every policy, more seeds and phases")
    parser.add_argument("--json", type=Path, help="where to; else bench-results/autoscaler.json, for a whole run")
    asked = parser.parse_args()
    asked.section = asked.section or (["curves"] if asked.only else list(SECTIONS))
    asked.start_up = asked.start_up or list(START_UPS_S)
    return asked


def _curves(asked: argparse.Namespace, found: dict[str, Any]) -> Iterator[goals.Goal]:
    names = [name for name in NAMES if any(text in name for text in asked.only)] if asked.only else _names(asked.full)
    everyone = [contender.name for contender in CONTENDERS] if asked.full else DEFAULTS
    seeds = asked.seeds or (5 if asked.full else 2)
    plan = Plan(names, asked.start_up, asked.policy or everyone, seeds, seeds if asked.full else 1)
    rows = sweep(plan, _progress)
    cases = compared(rows)
    found["curves"] = [
        {**asdict(row.job), **{k: v for k, v in asdict(row).items() if k not in ("job", "cpu_s")}} for row in rows
    ]
    found["curves_cpu_s"] = round(sum(row.cpu_s for row in rows), 1)
    print(f"{len(rows)} runs, {found['curves_cpu_s']} s of CPU")
    _print("Traffic", report.traffics(map(traffic, names)))
    if not cases:
        return
    _print("Bad % at our replica-seconds, the first ten minutes left out", report.equal_cost(cases))
    _print("Sums over traffic: bad at equal cost, cost at equal bad", report.sums(cases))
    yield from goals.of_curves(cases)


def _names(full: bool) -> list[str]:
    return [name for name in NAMES if full or name not in SIMILAR]


def _step(asked: argparse.Namespace, found: dict[str, Any]) -> Iterator[goals.Goal]:
    rivals = [name for name in asked.policy or STEP_RIVALS if name not in ("ours", "static", "clairvoyant")]
    jobs = step.step_jobs(asked.start_up, 20, rivals, 20 if asked.full else 4)
    stepped = step.over_phases(in_processes(step.run_step, jobs))
    found["step"] = [asdict(one) | {"peak_ratio": one.peak_ratio} for one in stepped]
    _print(f"Step 1 -> 1,000 req/s, {step.SERVICE_S} s each; ideal {step.IDEAL} replicas", report.steps(stepped))
    yield from goals.of_steps(stepped)


def _steady(asked: argparse.Namespace, found: dict[str, Any]) -> Iterator[goals.Goal]:
    names = asked.policy or ("ours", "hpa-queue", "kpa") if asked.full else ("ours",)
    jobs = steady.steady_jobs(names, range(steady.PHASES))
    steadied = steady.over_phases(in_processes(steady.run_steady, jobs))
    found["steady"] = [asdict(one) for one in steadied]
    _print("Constant load, 10 % noise, 30 % of samples lost", report.steadiness(steadied))
    yield from goals.of_steadiness(steadied)


def _learning(asked: argparse.Namespace, found: dict[str, Any]) -> Iterator[goals.Goal]:
    jobs = learning.learning_jobs(asked.seeds or (10 if asked.full else 2))
    learnt = learning.over_seeds(in_processes(learning.run_learning, jobs))
    found["learning"] = [asdict(one) for one in learnt]
    title = f"Learning: knee {learning.KNEE:.0f}, {learning.RATE_RPS:.0f} req/s of {learning.SERVICE_S} s"
    _print(title, report.learning(learnt))
    yield from goals.of_learning(learnt)


_SECTIONS = {"curves": _curves, "step": _step, "steady": _steady, "learning": _learning}


def _print(title: str, text: str) -> None:
    print(f"\n{title}\n\n{text}", flush=True)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{done} of {total} runs", end="\r" if done < total else "\r\033[K", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
