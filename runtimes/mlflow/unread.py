"""Requests that only the model's own side can read: chats and agents, hinted models, and models without a signature.

Owns the step from a body to what MLflow's own server would hand to such a model; runs in the model's environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np

from runtimes.mlflow.bodies import (
    FORMS,
    SPOKEN,
    Payload,
    Table,
    client_request_id,
    csv_table,
    parse_document,
    parse_json,
    payload_of,
    records_table,
)
from runtimes.mlflow.columns import ABSENT
from runtimes.mlflow.errors import RefusedError, refused
from runtimes.mlflow.layout import Buffer
from runtimes.mlflow.params import check_params
from runtimes.mlflow.plan import table_of
from runtimes.mlflow.signature import Signature

_OWN_KEYS = frozenset({"client_request_id", "databricks_options"})


@dataclass(slots=True)
class Said:
    """What goes into ``PyFuncModel.predict``."""

    data: Any
    params: Mapping[str, Any] | None = None
    client_request_id: str | None = None
    chat: bool = False
    empty: bool = False


def chat(body: Buffer, signature: Signature) -> Said:
    """A chat or agent request: the body itself; what the signature declares as a parameter is one.

    Such a model takes the four forms, too, and then answers in theirs.
    """
    document = parse_document(bytes(body))
    if not isinstance(document, dict):
        raise RefusedError(400, "the body must be a JSON object")
    if not _spoken(document) and any(form in document for form in FORMS):
        return _formed(payload_of(document), signature)
    declared = {param.name for param in signature.params}
    params = {name: value for name, value in document.items() if name in declared}
    data = {name: value for name, value in document.items() if name not in declared and name not in _OWN_KEYS}
    if isinstance(data.get("input"), str) and _takes_lists(signature, "input"):
        data["input"] = [{"role": "user", "content": data["input"]}]  # OpenAI's short form of a response's input
    checked, problems = check_params(params, signature.params)
    if problems:
        raise refused(problems)
    return Said(data, checked or None, client_request_id(document), chat=True)


def _takes_lists(signature: Signature, name: str) -> bool:
    return any(column.name == name and column.type == "array" for column in signature.columns)


def is_spoken(body: bytes) -> bool:
    """Whether a body is a chat, or texts to embed, and none of the four forms."""
    document = parse_document(body)
    return isinstance(document, dict) and _spoken(document)


def payload(body: bytes, media: str, signature: Signature) -> Said:
    """One of the four forms, CSV or Parquet, as MLflow's own server hands it to a model that it can't check."""
    if media == "csv":
        return _table(csv_table(body))
    if media == "parquet":
        return Said(_parquet(body))
    return _formed(parse_json(body), signature)


def _spoken(document: Mapping[str, Any]) -> bool:
    return any(key in document for key in SPOKEN)


def _formed(said: Payload, signature: Signature) -> Said:
    params, problems = check_params(said.params, signature.params)
    if problems:
        raise refused(problems)
    if signature.raw and said.form != "inputs":
        raise RefusedError(400, "this model validates its own input: send it as `inputs`", said.form)
    if signature.raw:
        return Said(said.data, params or None, said.client_request_id)
    found = _of_form(said, signature)
    found.params, found.client_request_id = params or None, said.client_request_id
    return found


def _of_form(said: Payload, signature: Signature) -> Said:
    if said.form.startswith("dataframe_"):
        return _table(table_of(said, signature))
    if said.form == "inputs" and signature.columns:
        return Said(said.data)  # one value a column, whatever it holds: MLflow's own check knows what
    return _arrays(said.data, said.form)


def _table(table: Table) -> Said:
    import pandas as pd

    if not table.rows:
        return Said(None, empty=True)
    values = {
        name: [None if value is ABSENT else value for value in column]
        for name, column in zip(table.names, table.columns, strict=True)
    }
    frame = pd.DataFrame(values, index=None if table.index is None else pd.Index(table.index))
    return Said(frame.apply(_numbers) if table.text else frame)


def _numbers(series: Any) -> Any:
    import pandas as pd

    try:
        return pd.to_numeric(series)
    except (ValueError, TypeError):
        return series


def _arrays(data: Any, form: str) -> Said:
    try:
        if isinstance(data, dict):
            return Said({name: np.array(value) for name, value in data.items()})
        if isinstance(data, list) and data and all(isinstance(item, dict) for item in data):
            return Said(_records(data, form))
        return Said(np.array(data), empty=isinstance(data, list) and not data)
    except ValueError:
        raise RefusedError(400, "the rows of the input have different lengths") from None


def _records(records: list[Any], form: str) -> Any:
    if form == "inputs":
        return [{name: np.array(value) for name, value in record.items()} for record in records]
    table = records_table(records, None, form)
    if any(value is ABSENT for column in table.columns for value in column):
        raise RefusedError(400, "every object of `instances` must have the same keys", form)
    return {name: np.array(column) for name, column in zip(table.names, table.columns, strict=True)}


def _parquet(body: bytes) -> Any:
    import pandas as pd

    try:
        return pd.read_parquet(BytesIO(body))
    except ImportError:
        raise RefusedError(415, "this model's environment can't read Parquet; send JSON or CSV") from None
    except Exception:
        raise RefusedError(400, "the body is not valid Parquet") from None
