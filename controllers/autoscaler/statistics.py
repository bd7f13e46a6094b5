"""HAProxy's answer to `show retries` and `show stat`, as text -> counters by back end. Pure.

Owns the columns. Its one idea: of ten thousand back ends few differ from a second ago, and a row that begins as it did
is known already. What reads the same is the same object, so nobody after this need look into it again either.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from controllers.autoscaler.load import Counters

_RETRIES: Final = "# backend,retried"
_BACKEND_ROW: Final = "BACKEND"


class StatisticsError(Exception):
    """An answer that is no statistics."""


class Columns(NamedTuple):
    """Where in a row each is."""

    pxname: int
    svname: int
    qcur: int
    scur: int
    stot: int

    @property
    def end(self) -> int:
        return max(self) + 1


@dataclass(frozen=True)
class Block:
    """A back end's rows, its servers' and then its own: how each begins, as far as the last column of ours, and what
    they mean. Without a row of its own, as where an answer broke off, they mean nothing."""

    heads: tuple[str, ...]
    counters: Counters | None

    def is_at(self, rows: Sequence[str], place: int) -> bool:
        found = rows[place : place + len(self.heads)]
        return len(found) == len(self.heads) and all(map(str.startswith, found, self.heads))


Blocks = Mapping[str, Block]
NOTHING: Final[Blocks] = {}


def parse(text: str) -> dict[str, Counters]:
    """Counters by back end. Raises StatisticsError where a column is missing or a count is no number."""
    return counters_of(read_blocks(text, NOTHING))


def counters_of(blocks: Blocks) -> dict[str, Counters]:
    return {name: block.counters for name, block in blocks.items() if block.counters is not None}


def read_blocks(text: str, known: Blocks) -> dict[str, Block]:
    """By back end; `known`: those of the answer before. Raises as `parse`.

    A gateway of before `show retries` answers it with an explanation: what was retried there is unknown.
    """
    lines = text.split("\n")
    if lines[0].startswith(_RETRIES):
        return _with_retries(_statistics(_second(lines), known), _retried(lines[1 : lines.index("")]))
    return _with_retries(_statistics(lines if lines[0].startswith("# ") else _second(lines), known), None)


def _second(lines: list[str]) -> list[str]:
    """What stands behind the first answer, which ends with an empty line."""
    if "" not in lines:
        raise StatisticsError(f"no statistics: {lines[0][:80]!r}")
    return lines[lines.index("") + 1 :]


def _retried(lines: Iterable[str]) -> dict[str, int]:
    """By back end; one that is not named had none."""
    try:
        return {backend: int(count) for backend, count in (line.split(",") for line in lines)}
    except ValueError as error:
        raise StatisticsError(f"retries that can't be read: {error}") from error


def _with_retries(blocks: dict[str, Block], retried: Mapping[str, int] | None) -> dict[str, Block]:
    for name, block in blocks.items():
        count = None if retried is None else retried.get(name, 0)
        if block.counters is not None and block.counters.retried != count:
            blocks[name] = replace(block, counters=replace(block.counters, retried=count))
    return blocks


def _statistics(lines: list[str], known: Blocks) -> dict[str, Block]:
    header = lines[0] if lines else ""
    if not header.startswith("# "):
        raise StatisticsError(f"no statistics: {header[:80]!r}")
    names = header[2:].split(",")
    try:
        columns = Columns(*(names.index(name) for name in Columns._fields))
    except ValueError as error:
        raise StatisticsError(f"statistics without a column: {error}") from error
    end = lines.index("") if "" in lines else len(lines)
    return _blocks(lines[1:end], columns, known)


def _blocks(rows: list[str], columns: Columns, known: Blocks) -> dict[str, Block]:
    found: dict[str, Block] = {}
    place = 0
    while place < len(rows):
        name = _name(rows[place], columns)
        block = known.get(name)
        if block is None or not block.is_at(rows, place):
            block = _block(rows, place, name, columns)
        found[name] = block
        place += len(block.heads)
    return found


def _block(rows: list[str], place: int, backend: str, columns: Columns) -> Block:
    """Server rows come before their back end's. What waits for one server waits in the back end's queue too."""
    heads: list[str] = []
    servers: dict[str, tuple[int, int]] = {}
    for at in range(place, len(rows)):
        row = rows[at]
        cells = _cells(row, columns)
        if cells[columns.pxname] != backend:
            break
        heads.append(",".join(cells[: columns.end]) + ",")
        queued, current, total = (_count(cells[which], row) for which in (columns.qcur, columns.scur, columns.stot))
        if cells[columns.svname] == _BACKEND_ROW:
            return Block(tuple(heads), Counters(queued, total, servers))
        servers[cells[columns.svname]] = (current, total)
    return Block(tuple(heads), None)


def _name(row: str, columns: Columns) -> str:
    """The back end's, without a look at the rest of the row."""
    cells = row.split(",", columns.pxname + 1)
    return cells[columns.pxname] if columns.pxname < len(cells) else ""


def _cells(row: str, columns: Columns) -> list[str]:
    cells = row.split(",", columns.end)
    if len(cells) < columns.end:
        raise StatisticsError(f"a row that can't be read: {row[:80]!r}")
    return cells


def _count(cell: str, row: str) -> int:
    try:
        return int(cell or 0)
    except ValueError as error:
        raise StatisticsError(f"a row that can't be read: {row[:80]!r}") from error
