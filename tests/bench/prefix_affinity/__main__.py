"""What prefix affinity is worth to vLLM and what it costs HAProxy, beside the least busy server in the same run.

Turns of both ways alternate; each number is the median of the turns' own.

    python -m tests.bench.prefix_affinity [--turns 5] [--servers 3] [--only worth|cost]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.prefix_affinity.cost import cost
from tests.bench.prefix_affinity.worth import table, worth

ROOT = Path(__file__).resolve().parents[3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--servers", type=int, default=3, help="of vLLM")
    parser.add_argument("--only", choices=("worth", "cost"))
    parser.add_argument("--output", type=Path, default=ROOT / "bench-results" / "prefix_affinity.json")
    given = parser.parse_args()
    rows: dict[str, Any] = {}
    if given.only != "cost":
        turns = worth(given.turns, given.servers)
        rows |= {"worth": table(turns), "turns": [asdict(each) for each in turns], "vllm_servers": given.servers}
        print(f"{'':>12} {'hits':>7} {'CPU a request':>14} {'p50':>9} {'p99':>9} {'busiest':>8}")
        for row in rows["worth"]:
            print(
                f"{row['way']:>12} {row['hit_ratio']:7.1%} {row['cpu_ms']:11.1f} ms {row['p50_ms']:6.1f} ms"
                f" {row['p99_ms']:6.1f} ms {row['busiest']:8.2f}"
            )
    if given.only != "worth":
        costs = cost(given.turns)
        rows |= {"cost": [asdict(each) for each in costs]}
        for each in costs:
            print(f"{each.servers:4} servers, {each.way:>12}: {each.cpu_us:6.1f} us of HAProxy's CPU a request")
    machine = f"{platform.machine()}, {multiprocessing.cpu_count()} cores"
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps({"machine": machine} | rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
