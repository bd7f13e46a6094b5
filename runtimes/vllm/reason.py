"""Why vLLM did not start, from what it and its engine's processes wrote.

Owns finding the line that says it; leaves reading and passing on to the watcher. Pure. One idea: the process that ends
only says "see above", and the cause is the first error that an engine named.
"""

from __future__ import annotations

import json
import re
from collections import deque

from runtimes.termination import one_line

_KEPT = 200
_LATELY_S = 60.0  # what was wrong before that did not end it
_ERROR = re.compile(r"\b([A-Za-z_][\w.]*(?:Error|Exception|Interrupt))\b:\s*(.+)")
_ONLY_POINTS = ("Engine core initialization failed", "root cause", "Worker failed with error")
_NO_ERRORS = frozenset({"DEBUG", "INFO", "WARNING"})
OURS = "ServingError: "  # what our own process says of its end


class Reasons:
    """The last lines that name an error, each with the time of a monotonic clock."""

    def __init__(self) -> None:
        self._found: deque[tuple[float, str]] = deque(maxlen=_KEPT)

    def read(self, line: str, now_s: float) -> None:
        """One line of any of the processes."""
        for text in _texts(line):
            match = _ERROR.search(text)
            if match is not None:
                self._found.append((now_s, one_line(f"{match[1].rpartition('.')[2]}: {match[2]}")))

    def told(self, status: int, now_s: float) -> str:
        """The reason in one line; the exit status where nothing was said."""
        lately = [text for at_s, text in self._found if now_s - at_s <= _LATELY_S]
        causes = [text for text in lately if not any(pointer in text for pointer in _ONLY_POINTS)]
        told = next(iter([*causes, *lately[-1:]]), f"vLLM ended with status {status} and said nothing")
        return told.removeprefix(OURS)


def _texts(line: str) -> list[str]:
    """The lines inside a line: a stack in a JSON record, behind the process's name, has many; a warning has none."""
    begin = line.find("{")
    if begin >= 0:
        try:
            record = json.loads(line[begin:])
        except ValueError:
            return [line]
        if isinstance(record, dict) and record.get("levelname", record.get("level")) in _NO_ERRORS:
            return []
        if isinstance(record, dict):
            return [part for value in record.values() if isinstance(value, str) for part in value.splitlines()]
    return [line]
