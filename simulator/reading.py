"""Loads from files: CSV of rates, of counts or of requests' times, and the gateway's own log.

Owns both formats. Its one idea: all that is wrong with a file is found at once, each with file, line and column; a line
that can't be read is never a line without requests.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

from simulator.loads import Load, Rates, Times
from simulator.scenario import Service

_TIME, _RATE, _COUNT = "at_s", "rate_rps", "count"
_COLUMNS = ((_TIME,), (_TIME, _RATE), (_TIME, _COUNT))
_SHOWN = 10
_SPACING = 1e-3  # of a step, by which rows of a rate may be off
# What never reached a queue: refused by key, path, method or length.
_UNSENT = frozenset({400, 401, 403, 404, 405, 408, 411, 413})


class LoadFileError(ValueError):
    """`problems` as `file:line:column: what`, the first ten in its text."""

    def __init__(self, problems: list[str]) -> None:
        more = len(problems) - _SHOWN
        super().__init__("\n".join(problems[:_SHOWN]) + (f"\nand {more} more" if more > 0 else ""))
        self.problems = problems


@dataclass(frozen=True)
class LoadFile:
    """`service`: what the file itself tells about it, else None."""

    load: Load
    service: Service | None = None


def read_load(path: Path, endpoint: str | None = None, cv: float = 1.0) -> LoadFile:
    """By its ending: `.csv` or `.log`, `.jsonl`, each also with `.gz`. Raises LoadFileError, OSError."""
    raw = path.read_bytes()
    name = path.name
    try:
        if name.endswith(".gz"):
            raw, name = gzip.decompress(raw), name[:-3]
        text = raw.decode()
    except (gzip.BadGzipFile, EOFError):
        raise LoadFileError([f"{path}:1:1: no gzip file"]) from None
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        raise LoadFileError([f"{path}:{line}:{column}: no UTF-8 text"]) from None
    if name.endswith(".csv"):
        return LoadFile(parse_csv(text, str(path), cv))
    if name.endswith((".log", ".jsonl")):
        return parse_log(text, str(path), endpoint)
    raise LoadFileError([f"{path}:1:1: a load ends in .csv, .log or .jsonl, also with .gz"])


@dataclass
class _Problems:
    """Collected while a file is read; `raise_if_any` at its end."""

    file: str
    found: list[str] = field(default_factory=list)

    def add(self, line: int, column: int, text: str) -> None:
        self.found.append(f"{self.file}:{line}:{column}: {text}")

    def raise_if_any(self) -> None:
        if self.found:
            raise LoadFileError(self.found)


def parse_csv(text: str, file: str, cv: float = 1.0) -> Load:
    """Columns `at_s` (a row a request), or `at_s` and `rate_rps`, or `at_s` and `count`, rows evenly apart.

    Times are seconds or ISO 8601; the first row's is the beginning.
    """
    problems = _Problems(file)
    lines = text.splitlines()
    header = tuple(cell for _, cell in _cells(lines[0])) if lines else ()
    if header not in _COLUMNS:
        problems.add(1, 1, f"the first line must be {' or '.join(','.join(names) for names in _COLUMNS)}")
        problems.raise_if_any()
    rows = list(_rows(lines, len(header), problems))
    if not rows and not problems.found:
        problems.add(len(lines), 1, "no row: a load needs one at least")
    if len(header) == 1:
        problems.raise_if_any()
        begin_s = min(row[1] for row in rows)
        return Times([row[1] - begin_s for row in rows])
    step_s = _step_s(rows, problems)
    problems.raise_if_any()
    per_s = 1.0 if header[1] == _RATE else 1 / step_s
    return Rates([row[2] * per_s for row in rows], step_s, cv)


def _cells(line: str) -> Iterator[tuple[int, str]]:
    """(column, text without blanks around)."""
    column = 1
    for cell in line.split(","):
        yield column + len(cell) - len(cell.lstrip()), cell.strip()
        column += len(cell) + 1


def _rows(lines: list[str], width: int, problems: _Problems) -> Iterator[tuple[int, float, float]]:
    """(line, seconds, value)."""
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        cells = list(_cells(line))
        if len(cells) != width:
            problems.add(number, 1, f"{len(cells)} cells where the first line has {width}")
            continue
        at_s = _cell(cells[0], number, problems, _seconds, "neither seconds nor a time as 2026-01-31T23:59:59Z")
        value = 0.0
        if width > 1:
            value = _cell(cells[1], number, problems, _amount, "no number from zero up")
        yield number, at_s, value


def _cell(cell: tuple[int, str], line: int, problems: _Problems, read: Callable[[str], float], otherwise: str) -> float:
    try:
        return read(cell[1])
    except ValueError:
        problems.add(line, cell[0], f"{cell[1]!r} is {otherwise}")
        return math.nan


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = datetime.fromisoformat(text).timestamp()
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _amount(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0:
        raise ValueError(text)
    return value


def _step_s(rows: list[tuple[int, float, float]], problems: _Problems) -> float:
    """The rows' even distance; a minute for a single row."""
    if len(rows) < 2 or problems.found:
        return 60.0
    step_s = rows[1][1] - rows[0][1]
    for (_, before_s, _), (line, at_s, _) in pairwise(rows):
        if step_s <= 0 or abs(at_s - before_s - step_s) > _SPACING * step_s:
            problems.add(line, 1, f"{at_s - before_s:g} s after the row before; rates need rows evenly apart")
    return step_s


def parse_log(text: str, file: str, endpoint: str | None = None) -> LoadFile:
    """The gateway's JSON lines, of which those of requests that came to a queue count: when each arrived, and how long
    pods took for those that were answered."""
    problems = _Problems(file)
    at_s: list[float] = []
    service_s: list[float] = []
    endpoints: set[str] = set()
    for number, line in enumerate(text.splitlines(), start=1):
        entry = _entry(line, number, problems)
        if entry is None or entry.status in _UNSENT:
            continue
        endpoints.add(entry.endpoint)
        if endpoint in (None, entry.endpoint):
            at_s.append(entry.arrived_s)
            service_s += [entry.service_s] if entry.status == 200 and entry.service_s > 0 else []
    if not problems.found and endpoint is None and len(endpoints) > 1:
        problems.add(1, 1, f"requests of {', '.join(sorted(endpoints))}: choose one of them")
    if not problems.found and not at_s:
        of = f" of {endpoint}; there are {', '.join(sorted(endpoints)) or 'none'}" if endpoint else ""
        problems.add(1, 1, f"no requests{of}")
    problems.raise_if_any()
    begin_s = min(at_s)
    return LoadFile(Times([one_s - begin_s for one_s in at_s]), _service(service_s))


@dataclass(frozen=True)
class _Entry:
    endpoint: str
    status: int
    arrived_s: float
    service_s: float


def _entry(line: str, number: int, problems: _Problems) -> _Entry | None:
    """None for lines of other kinds, and for those that can't be read, which are noted."""
    if not line.strip():
        return None
    try:
        said = json.loads(line)
    except json.JSONDecodeError as error:
        problems.add(number, error.colno, f"no JSON: {error.msg}")
        return None
    if not isinstance(said, dict) or said.get("message") != "request":
        return None
    try:
        ended_s = datetime.fromisoformat(said["time"]).timestamp()
        arrived_s = ended_s - max(float(said["total_ms"]), 0.0) / 1000
        service_s = max(float(said["answer_ms"]), 0.0) / 1000
        return _Entry(str(said["endpoint"]), int(said["status"]), arrived_s, service_s)
    except KeyError as error:
        problems.add(number, 1, f"a request without {error.args[0]!r}")
    except (ValueError, TypeError) as error:
        problems.add(number, 1, f"a request that can't be read: {error}")
    return None


def _service(taken_s: list[float]) -> Service | None:
    if not taken_s:
        return None
    mean_s = fmean(taken_s)
    return Service(mean_s, min(pstdev(taken_s) / mean_s, 3.0))
