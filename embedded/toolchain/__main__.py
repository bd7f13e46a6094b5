"""``python -m embedded.toolchain``: builds what is missing and prints the folder to put on PATH."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from . import build, versions
from .golang import ToolchainError
from .planning import plan
from .progress import terminal_report

INTERRUPTED = 130


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m embedded.toolchain", description=__doc__)
    home = Path(os.environ.get("KNOBLESS_HOME") or "/var/lib/knobless")
    parser.add_argument("--home", type=Path, default=home, help="where everything goes (default: %(default)s)")
    names = [target.name for target in versions.TARGETS]
    parser.add_argument("--only", action="append", choices=names, help="build this one; may be repeated")
    return parser.parse_args(arguments)


def end_as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    report = terminal_report(sys.stderr)
    for number in (signal.SIGINT, signal.SIGTERM):  # SIGINT too: a background job starts with it ignored
        signal.signal(number, end_as_interrupt)
    try:
        todo = plan(options.home, os.environ.get("PATH", os.defpath))
        build.complete(todo, report, only=frozenset(options.only) if options.only else None)
    except ToolchainError as error:
        report(str(error))
        return 1
    except KeyboardInterrupt:
        report("stopped; what is compiled is kept, the next run goes on from there")
        return INTERRUPTED
    print(todo.bin_dir)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
