"""A request's body as plain values: JSON or CSV in, a table or nested lists out.

Owns the text: UTF-8, JSON's syntax, the four forms, CSV. Leaves types to columns and tensors, and arrays to
tables. Pure and of the standard library. One idea: after this module nobody looks at a byte of the request again.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from runtimes.mlflow.columns import ABSENT
from runtimes.mlflow.errors import RefusedError

FORMS = ("dataframe_split", "dataframe_records", "instances", "inputs")
SPOKEN = ("messages", "prompt", "input")  # with one of these a body is a chat, or texts to embed
MOST_CELLS = 1 << 24  # of a table that is larger than what was sent: records whose keys all differ, packed columns
# Every digit as 0, both signs of an exponent as e: what is looked for is then a fixed text, which is found in bodies of
# megabytes in a tenth of a regular expression's time.
_SHAPE = bytes.maketrans(b"123456789E", b"000000000e")
_LARGE_INTEGER = b"0" * 19
_HUGE_INTEGER = b"0" * 200  # with an exponent of two digits: 10^308 is the largest float
_LONGEST_ID = 256
csv.field_size_limit(1 << 24)  # the module's own default refuses a cell above 128 KiB


@dataclass(frozen=True)
class Table:
    """Columns of plain values, all of one length; ``text`` where every value is still written out (CSV)."""

    names: list[Any]
    columns: list[list[Any]]
    rows: int
    index: list[Any] | None = None
    text: bool = False


@dataclass(frozen=True)
class Payload:
    """The one form that a JSON body has, what is in it, and the parameters beside it."""

    form: str
    data: Any
    params: Mapping[str, Any]
    client_request_id: str | None = None


def decode(body: bytes) -> str:
    """The body as text."""
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"the body is not UTF-8 (byte {error.start})") from None


def parse_json(body: bytes) -> Payload:
    """The form of a JSON body, each number exactly as it was written."""
    return payload_of(parse_document(body))


def parse_document(body: bytes) -> Any:
    """Any JSON, each number exactly as it was written; what is not JSON is a refusal without the text."""
    text = decode(body)
    exact = _finite_float if may_be_infinite(body) else None
    try:
        return json.loads(text, parse_constant=_not_json, parse_float=exact)
    except json.JSONDecodeError as error:
        raise RefusedError(400, f"the body is not JSON (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise RefusedError(400, "the body is nested too deeply") from None
    except ValueError:  # an integer of more digits than Python converts
        raise RefusedError(400, "the body holds a number with too many digits") from None


def may_be_rounded(body: bytes) -> bool:
    """Whether a parser that makes floats of large integers could have changed a number of this body."""
    return _LARGE_INTEGER in body.translate(_SHAPE)


def may_be_infinite(body: bytes) -> bool:
    """Whether a number of this body could be too large for a float."""
    shape = body.translate(_SHAPE)
    return _HUGE_INTEGER in shape or (b"e" in shape and (b"e000" in shape or b"e+000" in shape))


def payload_of(document: Any) -> Payload:
    """The form of a parsed body; every way of not having exactly one is a refusal."""
    if not isinstance(document, dict):
        raise RefusedError(400, f"the body must be a JSON object with exactly one of {_listed(FORMS)}")
    present = [form for form in FORMS if form in document]
    if len(present) != 1:
        found = f"this one has {_listed(present)}" if present else "this one has none of them"
        raise RefusedError(400, f"the body must have exactly one of the keys {_listed(FORMS)}; {found}")
    params = document.get("params")
    if params is not None and not isinstance(params, dict):
        raise RefusedError(400, "`params` must be an object", "params")
    return Payload(present[0], document[present[0]], params or {}, client_request_id(document))


def client_request_id(document: Mapping[str, Any]) -> str | None:
    """The client's own id of the request, which is given back to it."""
    given = document.get("client_request_id")
    if given is not None and (not isinstance(given, str) or len(given) > _LONGEST_ID):
        raise RefusedError(
            400, f"`client_request_id` must be a string of at most {_LONGEST_ID} characters", "client_request_id"
        )
    return given


def split_table(data: Any) -> Table:
    """The table of a ``dataframe_split``: ``data`` by rows, with ``columns`` and an ``index`` where there are."""
    field = "dataframe_split"
    if not isinstance(data, dict) or not isinstance(data.get("data"), list):
        raise RefusedError(400, f"`{field}` must be an object with `data`, a list of rows", field)
    index = data.get("index")
    table = rows_table(data["data"], data.get("columns"), field)
    if index is not None and (not isinstance(index, list) or len(index) != table.rows or _nested(index)):
        raise RefusedError(400, f"`{field}.index` must be a list with one label a row", field)
    return Table(table.names, table.columns, table.rows, index)


def rows_table(rows: Any, names: Any, field: str) -> Table:
    """A table of rows; without names, its columns are called by their position."""
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise RefusedError(400, f"`{field}` must be a list of rows, each a list of values", field)
    if names is None:
        names = list(range(len(rows[0]))) if rows else []
    if not isinstance(names, list) or not all(isinstance(name, str | int) for name in names):
        raise RefusedError(400, f"`{field}.columns` must be a list of names", field)
    _no_twins(names)
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise RefusedError(400, f"row {number} has {len(row)} values for {len(names)} columns", field)
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]
    return Table(list(names), columns, len(rows))


def records_table(records: Any, wanted: Sequence[Any] | None, field: str) -> Table:
    """A table of objects; ``wanted`` names the columns of a signature, whose absent values are ABSENT."""
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise RefusedError(400, f"`{field}` must be a list of objects, one a row", field)
    found = dict.fromkeys(key for record in records for key in record)
    names = list(found) if wanted is None else [name for name in wanted if name in found]
    if len(names) * len(records) > MOST_CELLS:
        raise RefusedError(400, f"`{field}` has too many different keys for its number of rows", field)
    columns = [[record.get(name, ABSENT) for record in records] for name in names]
    return Table(names, columns, len(records))


def columns_table(data: Mapping[str, Any], field: str) -> Table:
    """A table of an object of columns; an object of single values is one row."""
    lists = {name: value for name, value in data.items() if isinstance(value, list)}
    if not lists:
        return Table(list(data), [[value] for value in data.values()], 1 if data else 0)
    rows = max(len(values) for values in lists.values())
    for name, value in data.items():
        if name not in lists or len(value) != rows:
            raise RefusedError(400, f"`{field}`: column `{name}` is not a list of {rows} values", name)
    return Table(list(data), [list(value) for value in data.values()], rows)


def csv_table(body: bytes) -> Table:
    """A table of CSV with a header line; every value is text, an empty cell is missing."""
    reader = csv.reader(io.StringIO(decode(body).removeprefix("\ufeff"), newline=""), strict=True)
    try:
        lines = [line for line in reader if line]
    except csv.Error:
        raise RefusedError(400, f"the CSV can't be read at line {reader.line_num}") from None
    if not lines:
        raise RefusedError(400, "the CSV has no header line")
    names, rows = lines[0], lines[1:]
    _no_twins(names)
    for number, row in enumerate(rows):
        if len(row) != len(names):
            raise RefusedError(400, f"row {number} has {len(row)} values for {len(names)} columns")
    columns = [[cell or None for cell in column] for column in zip(*rows, strict=True)]
    return Table(list(names), columns or [[] for _ in names], len(rows), text=True)


def _not_json(name: str) -> NoReturn:
    raise RefusedError(400, f"`{name}` is not JSON; send null")


def _finite_float(literal: str) -> float:
    value = float(literal)
    if value in (float("inf"), float("-inf")):
        raise RefusedError(400, "the body holds a number out of the range of a 64-bit float")
    return value


def _no_twins(names: Iterable[Any]) -> None:
    seen: set[Any] = set()
    for name in names:
        if name in seen:
            raise RefusedError(400, f"column `{name}` is there twice", str(name))
        seen.add(name)


def _nested(values: Iterable[Any]) -> bool:
    return any(isinstance(value, list | dict) for value in values)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
