"""A column signature, compiled: a table of plain values as typed blocks.

Owns which columns travel together, and both ways into their blocks: whole groups at C speed where every value is of its
column's own kind, value by value where one is not. Pure and of the standard library. One idea: the fast way never
decides against a value, it only gives up, so there is one set of rules, and its cost falls on the unusual request.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from runtimes.mlflow.bodies import Table
from runtimes.mlflow.columns import ABSENT, convert_column
from runtimes.mlflow.errors import Problem, refused
from runtimes.mlflow.layout import Block, Buffer, Form, Layout
from runtimes.mlflow.signature import Column, Signature
from runtimes.mlflow.values import pack, pack_json, pack_times, pack_unchecked

CODES = {
    "boolean": "b1", "integer": "i4", "long": "i8", "float": "f4", "double": "f8", "datetime": "M8", "binary": "b64",
}  # fmt: skip
# What stands for a missing number or time in CSV that pandas wrote; in a column of strings only an empty cell does.
_WRITTEN_MISSING = frozenset({"NaN", "nan", "NA", "N/A", "null", "NULL", "None", "NaT", "<NA>", "#N/A"})
_MOST_ORDERS = 64

Row = Any  # a list of values, or an object with them


class Blocks(NamedTuple):
    """A table as it travels."""

    layout: Layout
    buffers: list[Buffer]
    rows: int


class _Group(NamedTuple):
    """How the values of one block are taken out of a row: all of them, one, or several."""

    code: str
    take: Callable[[Row], Any] | None
    single: bool


class TablePlan:
    """What can be known about a model's tables before the first one arrives."""

    def __init__(self, signature: Signature) -> None:
        self._columns = signature.columns
        self._named = signature.named
        self.names = [column.name for column in signature.columns]
        by_code: dict[str, list[str | int]] = {}
        for column in signature.columns:
            by_code.setdefault(_code(column), []).append(column.name)
        self.layout = Layout.of(Form.TABLE, [Block(code, tuple(names)) for code, names in by_code.items()])
        self._plain = all(column.scalar and column.type != "binary" for column in signature.columns)
        self._orders: dict[tuple[Any, ...], list[_Group] | None] = {}
        self._own = self._groups(self.names)
        self._by_name = [self._group(block, block.names) for block in self.layout.blocks]

    # The fast ways; None where the request needs a closer look.

    def split(self, data: Any) -> Blocks | None:
        """A ``dataframe_split`` of rows, its columns in any order."""
        if type(data) is not dict or len(data) != 2 or not self._plain:
            return None
        names, rows = data.get("columns"), data.get("data")
        groups = self._own if names == self.names else self._order(names)
        if groups is None or type(rows) is not list or not rows:
            return None
        if set(map(type, rows)) != {list} or set(map(len, rows)) != {len(names)}:  # type: ignore[arg-type]
            return None
        return self._pack(groups, rows)

    def records(self, data: Any) -> Blocks | None:
        """A list of objects, each with all columns; what else they hold does not matter."""
        if type(data) is not list or not data or not self._plain or set(map(type, data)) != {dict}:
            return None
        try:
            return self._pack(self._by_name, data)
        except KeyError:
            return None

    def columns(self, data: Any) -> Blocks | None:
        """An object of columns, each a list."""
        if type(data) is not dict or not self._plain:
            return None
        try:
            values = [data[name] for name in self.names]
        except KeyError:
            return None
        if set(map(type, values)) != {list} or len(set(map(len, values))) != 1 or not values[0]:
            return None
        return self._pack(self._own, list(zip(*values, strict=True))) if self._own else None

    # The way for everything.

    def table(self, table: Table) -> Blocks:
        """Any table value by value, or a refusal with all its problems."""
        values: dict[str | int, list[Any]] = {}
        problems: list[Problem] = []
        arrived = self._arrived(table)
        for column in self._columns:
            found = arrived.get(column.name)
            if found is None or (found and all(value is ABSENT for value in found)):
                if column.required:
                    problems.append(Problem(f"column `{column.name}` is missing", str(column.name)))
                continue
            if table.text and column.type != "string":
                found = [None if value in _WRITTEN_MISSING else value for value in found]
            values[column.name], wrong = convert_column(column, found, text=table.text)
            problems += wrong
        if problems:
            raise refused(problems)
        return self._join(values, table.rows)

    def _arrived(self, table: Table) -> Mapping[Any, list[Any]]:
        if self._named:
            return dict(zip(map(str, table.names), table.columns, strict=True))
        return dict(enumerate(table.columns))

    def _join(self, values: Mapping[str | int, list[Any]], rows: int) -> Blocks:
        by_code: dict[str, list[str | int]] = {}
        for column in self._columns:
            if column.name in values:
                by_code.setdefault(_code_for(column, values[column.name]), []).append(column.name)
        layout = Layout.of(Form.TABLE, [Block(code, tuple(names)) for code, names in by_code.items()])
        buffers = [
            pack_block(block.code, [values[name] for name in block.names if name is not None])
            for block in layout.blocks
        ]
        return Blocks(self.layout if layout == self.layout else layout, buffers, rows)

    def _pack(self, groups: list[_Group], rows: Sequence[Row]) -> Blocks | None:
        buffers: list[Buffer] = []
        for code, take, single in groups:
            if single:
                values: Iterable[Any] = map(take, rows)  # type: ignore[arg-type]
            elif len(rows) == 1:
                values = rows[0] if take is None else take(rows[0])
            else:
                values = chain.from_iterable(rows if take is None else map(take, rows))
            packed = pack("text" if code == "js" else code, list(values))
            if packed is None:
                return None
            buffers.append(packed)
        return Blocks(self.layout, buffers, len(rows))

    def _order(self, names: Any) -> list[_Group] | None:
        if type(names) is not list or not set(map(type, names)) <= {str}:
            return None
        key = tuple(names)
        if key not in self._orders:
            if len(self._orders) >= _MOST_ORDERS:
                self._orders.clear()
            self._orders[key] = self._groups(names)
        return self._orders[key]

    def _groups(self, names: Sequence[Any]) -> list[_Group] | None:
        """How rows with these columns become blocks; None where a column is missing or there twice."""
        at = {name: position for position, name in enumerate(names)}
        if len(at) != len(names) or any(name not in at for name in self.names):
            return None
        own = list(names) == self.names
        return [self._group(block, [at[name] for name in block.names], own) for block in self.layout.blocks]

    def _group(self, block: Block, keys: Sequence[Any], own: bool = False) -> _Group:
        if own and len(keys) == len(self._columns):
            return _Group(block.code, None, False)
        return _Group(block.code, itemgetter(*keys), len(keys) == 1)


def pack_block(code: str, columns: Sequence[Sequence[Any]]) -> Buffer:
    """Checked columns of one kind as one block, row by row."""
    values = columns[0] if len(columns) == 1 else list(chain.from_iterable(zip(*columns, strict=True)))
    if code == "M8":
        return pack_times(values)
    if code == "b64":
        return pack_json([None if value is None else base64.b64encode(value).decode() for value in values])
    return pack_unchecked(code, values)


def _code(column: Column) -> str:
    return CODES.get(column.type, "js")


def _code_for(column: Column, values: Sequence[Any]) -> str:
    code = _code(column)
    if code in ("i4", "i8") and None in values:
        return "Int32" if code == "i4" else "Int64"  # pandas' integers that may be missing
    return "js" if code == "b1" and None in values else code
