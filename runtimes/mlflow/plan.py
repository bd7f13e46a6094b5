"""What a model takes, compiled once from its signature: from a request's body to typed blocks, or one refusal.

Owns the choice of the way through: the four JSON forms and CSV, fast or value by value, and what goes on to the
predictor unread. Leaves tables and tensors to their own plans, and columnar files to arrow. Pure and of the standard
library; the front brings a faster JSON parser with it. One idea: a fast parser's document is only trusted where nothing
in it can have been rounded, otherwise the body is parsed again exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtimes.mlflow.bodies import (
    Payload,
    Table,
    columns_table,
    csv_table,
    may_be_rounded,
    parse_document,
    payload_of,
    records_table,
    rows_table,
    split_table,
)
from runtimes.mlflow.errors import Problem, RefusedError, refused
from runtimes.mlflow.layout import Buffer, Form, Layout
from runtimes.mlflow.params import check_params
from runtimes.mlflow.plan_table import Blocks, TablePlan
from runtimes.mlflow.plan_tensors import TensorPlan
from runtimes.mlflow.signature import Signature

Loads = Callable[[bytes], Any]
LARGEST_READ_HERE = 512 * 1024  # a longer body would hold up every other request while it is parsed
BODY_LAYOUT = Layout(Form.BODY, ())


@dataclass(slots=True)
class Work:
    """One request as it goes to a predictor."""

    layout: Layout
    buffers: list[Buffer]
    rows: int | None  # None where only the predictor finds out
    media: str = "json"
    params: dict[str, Any] | None = None
    index: list[Any] | None = None  # the labels of a table's rows
    client_request_id: str | None = None
    alone: bool = False  # must not share a call with others


class Plan:
    """The compiled signature."""

    def __init__(self, signature: Signature, *, chat: bool = False, loads: Loads | None = None) -> None:
        self.signature = signature
        self.chat = chat
        self._loads = loads
        self.tables = TablePlan(signature) if signature.columns else None
        self.tensors = TensorPlan(signature) if signature.tensors and not signature.columns else None
        self._fast: dict[str, Callable[[Any], Blocks | None]] = {}
        if self.tables:
            self._fast = {"dataframe_split": self.tables.split, "dataframe_records": self.tables.records}
            self._fast |= {"instances": self.tables.records, "inputs": self._columns_or_records}
        elif self.tensors:
            self._fast = {"instances": self.tensors.plain, "inputs": self.tensors.plain}
        # Whether a body is read here at all: without a signature, or with a hint, the model's own side knows more.
        self.reads = not chat and not signature.raw and (self.tables is not None or self.tensors is not None)

    def read(self, body: bytes, media: str) -> Work:
        """The request, read here or, where it is large or only the model knows its form, by the predictor."""
        if not self.reads or len(body) > LARGEST_READ_HERE:
            return Work(BODY_LAYOUT, [body], None, media, alone=True)
        return self.read_whole(body, media)

    def read_whole(self, body: bytes, media: str) -> Work:
        """The request as blocks; only for a plan that ``reads``."""
        if media == "csv":
            return _work(self.of_table(csv_table(body)))
        return self._json(body)

    def of_table(self, table: Table) -> Blocks:
        """A table from anywhere, value by value."""
        if not table.rows and not table.names:
            return Blocks(BODY_LAYOUT, [], 0)
        if self.tables:
            return self.tables.table(table)
        return self.tensors.table(table)  # type: ignore[union-attr]

    def _json(self, body: bytes) -> Work:
        document, exact = self._document(body)
        if type(document) is dict and len(document) == 1:  # the usual body, and nothing beside its one form
            ((form, data),) = document.items()
            fast = self._fast.get(form)
            if fast and (blocks := fast(data)) is not None:
                return Work(blocks.layout, blocks.buffers, blocks.rows)
        payload = payload_of(document)
        fast = self._fast.get(payload.form)
        blocks = fast(payload.data) if fast else None
        if blocks is None and not exact and may_be_rounded(body):
            payload = payload_of(parse_document(body))
        return self._with_params(payload, blocks)

    def _document(self, body: bytes) -> tuple[Any, bool]:
        if self._loads is not None:
            try:
                return self._loads(body), False
            except ValueError:
                pass  # the exact parser says what is wrong, or that nothing is
        return parse_document(body), True

    def _with_params(self, payload: Payload, blocks: Blocks | None) -> Work:
        params, problems = check_params(payload.params, self.signature.params)
        table: Table | None = None
        if blocks is None:
            try:
                table, blocks = self._closer_look(payload)
            except RefusedError as refusal:
                if not problems:
                    raise
                raise refused([Problem(refusal.message, refusal.field), *problems], refusal.status) from None
        if problems:
            raise refused(problems)
        work = _work(blocks)
        work.params = params or None
        work.client_request_id = payload.client_request_id
        if table is not None and table.index is not None:
            work.index, work.alone = table.index, True
        return work

    def _closer_look(self, payload: Payload) -> tuple[Table | None, Blocks]:
        if self.tensors and payload.form in ("instances", "inputs"):
            return None, self.tensors.arrays(payload.data, payload.form)
        table = table_of(payload, self.signature)
        return table, self.of_table(table)

    def _columns_or_records(self, data: Any) -> Blocks | None:
        tables = self.tables
        if tables is None:
            return None
        return tables.columns(data) if type(data) is dict else tables.records(data)


def table_of(payload: Payload, signature: Signature) -> Table:
    """The table that a JSON body holds, whichever form it has."""
    data, form = payload.data, payload.form
    wanted = [column.name for column in signature.columns] if signature.columns and signature.named else None
    if form == "dataframe_split":
        return split_table(data)
    if form == "dataframe_records":
        return records_table(data, wanted, form)
    if form == "inputs" and isinstance(data, dict) and not all(column.scalar for column in signature.columns):
        return Table(list(data), [[value] for value in data.values()], 1)  # a list may be one value, as MLflow has it
    if form == "inputs" and isinstance(data, dict):
        return columns_table(data, form)
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return records_table(data, wanted, form)
    if len(signature.columns) == 1 and isinstance(data, str):
        data = [data]  # one text for a model that takes texts
    if len(signature.columns) == 1 and isinstance(data, list) and not any(isinstance(v, list) for v in data):
        return Table([signature.columns[0].name], [data], len(data))
    return rows_table(data, None, form)


def _work(blocks: Blocks) -> Work:
    return Work(blocks.layout, blocks.buffers, blocks.rows)
