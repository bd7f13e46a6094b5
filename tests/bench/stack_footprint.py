"""Memory of a running embedded platform, by program: proportional set size (PSS), so that shared pages count once.

    python -m tests.bench.stack_footprint [--instance NAME]

Prints a table and writes bench-results/stack_footprint.json. Everything of a node is a descendant of its first process.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import defaultdict
from pathlib import Path

from embedded import control
from embedded.instance import DEFAULT_HOME, Instance, registered

ROOT = Path(__file__).resolve().parents[2]
MIB = 1024.0


def parents() -> dict[int, int]:
    """Process -> its parent, of every process."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = entry.read_text()
        except OSError:
            continue
        found[int(entry.parent.name)] = int(text.rpartition(")")[2].split()[1])
    return found


def descendants(first: int, parent_of: dict[int, int]) -> set[int]:
    members = {first}
    while more := {process for process, parent in parent_of.items() if parent in members} - members:
        members |= more
    return members


def pss_kib(process: int) -> int:
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)


def label(process: int) -> str:
    """The program, and for Python what it runs."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "ended"
    name = Path(words[0]).name
    module = next((words[i + 1] for i, word in enumerate(words[:-1]) if word == "-m"), "")
    script = next((Path(word).name for word in words[1:] if word.endswith((".py", "/mlflow"))), "")
    return f"{name} {module or script}".strip()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instance", default="default")
    name = parser.parse_args(arguments).instance
    home = Path(os.environ.get("KNOBLESS_HOME") or DEFAULT_HOME)
    indices = registered(home)
    first = control.find_init(Instance(name, home, indices[name])) if name in indices else None
    if first is None:
        print(f"instance {name} does not run", file=sys.stderr)
        return 6
    by_program: dict[str, list[int]] = defaultdict(list)
    for process in descendants(first, parents()):
        by_program[label(process)].append(pss_kib(process))
    rows = sorted(((sum(sizes), len(sizes), program) for program, sizes in by_program.items()), reverse=True)
    total = sum(size for size, _, _ in rows)
    for size, count, program in rows:
        print(f"{size / MIB:9.1f} MiB  {count:3}  {program}")
    print(f"{total / MIB:9.1f} MiB  in all")
    result = {"total_mib": round(total / MIB, 1), "programs": {p: round(s / MIB, 1) for s, _, p in rows}}
    target = ROOT / "bench-results" / "stack_footprint.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
