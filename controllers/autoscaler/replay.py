"""`python -m controllers.autoscaler.replay FILE`: decides every record of a log once more and tells what differs.

Owns reading a file and counting. Leaves the comparison to `record`. Exit codes: 0 all the same, 1 something differs,
2 no file that can be read.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from controllers.autoscaler.plain import Unreadable
from controllers.autoscaler.record import difference, parse_line


@dataclass(frozen=True)
class Replayed:
    """`first` is where the decisions differ first: the line and how."""

    records: int = 0
    different: int = 0
    unreadable: int = 0
    first: str | None = None


def replay(lines: Iterable[str]) -> Replayed:
    records = different = unreadable = 0
    first: str | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = parse_line(line)
            found = difference(record)
        except Unreadable as error:
            unreadable += 1
            first = first or f"line {number} is no record: {error}"
            continue
        records += 1
        if found is not None:
            different += 1
            first = first or f"line {number}, {record.namespace}/{record.endpoint}: {found}"
    return Replayed(records, different, unreadable, first)


def told(replayed: Replayed) -> str:
    """`120 records decide the same`, or the first difference and the counts."""
    if replayed.first is None:
        return f"{replayed.records} records decide the same"
    counts = f"{replayed.different} of {replayed.records} records decide otherwise"
    broken = f", {replayed.unreadable} lines are no record" if replayed.unreadable else ""
    return f"{replayed.first}\n{counts}{broken}"


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m controllers.autoscaler.replay FILE (- for standard input)\n")
        return 2
    try:
        with sys.stdin if arguments[0] == "-" else Path(arguments[0]).open() as lines:
            replayed = replay(lines)
    except OSError as error:
        sys.stderr.write(f"{arguments[0]}: {error.strerror}\n")
        return 2
    sys.stdout.write(told(replayed) + "\n")
    return 0 if replayed.first is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
