"""The log of decisions: JSON lines in a folder of the pod, rotated by size. `python -m controllers.autoscaler.journal`.

Owns files and their bound. Leaves what a line says to `record`. Its one idea: a decision never waits for a disk. Lines
go through a bounded queue, and what finds no room there, or no disk, is dropped and counted.
"""

import argparse
import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

log = logging.getLogger(__name__)

FILE = "decisions.jsonl"
FOLDER = Path("/var/log/knobless")
BYTES_MAX = 16 * 1024 * 1024
FILES = 4
QUEUE_MAX = 5_000


class Journal:
    """`put` a line at any time; `run` as a task; `close` at the end. `dropped(count)` is told of what is lost."""

    def __init__(
        self,
        folder: Path,
        dropped: Callable[[int], None] = lambda count: None,
        bytes_max: int = BYTES_MAX,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self._folder, self._dropped, self._bytes_max, self._queue_max = folder, dropped, bytes_max, queue_max
        self._lines: deque[str] = deque()
        self._some = asyncio.Event()
        self._failing = False

    def put(self, line: str) -> None:
        if len(self._lines) >= self._queue_max:
            self._dropped(1)
            return
        self._lines.append(line)
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            await self.flush()

    async def flush(self) -> None:
        """Writes what waits, in a thread of its own."""
        self._some.clear()
        lines, self._lines = list(self._lines), deque()
        try:
            await asyncio.to_thread(self._write, lines)
            self._failing = False
        except OSError as error:
            self._dropped(len(lines))
            if not self._failing:  # once, not with every line while the disk is full
                log.warning("decisions not logged", extra={"folder": str(self._folder), "error": str(error)})
            self._failing = True

    def _write(self, lines: Iterable[str]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / FILE
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(path.open("a"))
            for line in lines:
                if file.tell() + len(line) >= self._bytes_max:
                    file.close()
                    rotate(self._folder)
                    file = stack.enter_context(path.open("a"))
                file.write(line + "\n")


def rotate(folder: Path) -> None:
    """decisions.jsonl -> decisions.jsonl.1 -> ... -> gone."""
    for number in range(FILES - 1, 0, -1):
        older, newer = folder / f"{FILE}.{number}", folder / (FILE if number == 1 else f"{FILE}.{number - 1}")
        if newer.exists():
            newer.replace(older)


def lines_of(folder: Path, namespace: str, endpoint: str) -> Iterator[str]:
    """One endpoint's lines, oldest first, as `record.line_of` writes them."""
    marks = f'"namespace":"{namespace}","endpoint":"{endpoint}",'
    for path in [*(folder / f"{FILE}.{number}" for number in range(FILES - 1, 0, -1)), folder / FILE]:
        with contextlib.suppress(FileNotFoundError), path.open() as file:
            yield from (line.rstrip("\n") for line in file if marks in line and line.endswith("\n"))


def main() -> None:
    """Prints an endpoint's records: what `knobless explain --records` runs in the controllers' pod."""
    parser = argparse.ArgumentParser(prog="python -m controllers.autoscaler.journal", description=__doc__)
    parser.add_argument("namespace")
    parser.add_argument("endpoint")
    parser.add_argument("--last", type=int, default=None, help="only so many, the newest")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    asked = parser.parse_args()
    for line in deque(lines_of(asked.folder, asked.namespace, asked.endpoint), maxlen=asked.last):
        sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
