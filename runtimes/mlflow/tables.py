"""A parsed body as what ``PyFuncModel.predict`` takes: a DataFrame, an array, or a dictionary of arrays.

Owns the step from plain values and a signature to pandas and numpy of the model's environment. Leaves each value's
rules to columns and tensors. One idea: what the signature fixes is exact here, so MLflow's own enforcement, which
truncates and echoes, has nothing left to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from runtimes.mlflow.bodies import Payload, Table, columns_table, records_table, rows_table, split_table
from runtimes.mlflow.columns import ABSENT, convert_column
from runtimes.mlflow.errors import Problem, RefusedError, refused
from runtimes.mlflow.signature import Column, Signature, Tensor
from runtimes.mlflow.tensors import convert_tensor

_NUMPY = {
    "boolean": "bool",
    "integer": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "datetime": "datetime64[ns]",
}
# What pandas writes and reads for a missing number or time in CSV; in a column of strings only an empty cell is.
_WRITTEN_MISSING = frozenset({"NaN", "nan", "NA", "N/A", "null", "NULL", "None", "NaT", "<NA>", "#N/A"})


@dataclass(frozen=True)
class ModelInput:
    """What goes into the model, and how many rows it has where that is known."""

    data: Any
    rows: int | None


def from_payload(payload: Payload, signature: Signature) -> ModelInput:
    """A JSON body in the form that the model's signature asks for."""
    if signature.raw:
        if payload.form != "inputs":
            raise RefusedError(400, "this model validates its own input: send it as `inputs`", payload.form)
        return ModelInput(payload.data, None)
    if signature.tensors and payload.form in ("instances", "inputs"):
        return _tensors(signature, payload.data, payload.form)
    if signature.columns or payload.form.startswith("dataframe_"):
        return from_table(_table(payload, signature), signature)
    return _unchecked(payload.data, payload.form)


def from_table(table: Table, signature: Signature) -> ModelInput:
    """A table as the signature's columns or tensors, or as it is where there is no signature."""
    if not table.rows and not table.names:
        return ModelInput(None, 0)
    if signature.tensors:
        return _tensors_of_table(signature, table)
    if not signature.columns:
        return ModelInput(_frame_as_it_is(table), table.rows)
    series = _checked_columns(table, signature)
    index = table.index if table.index is not None else range(table.rows)
    return ModelInput(pd.DataFrame(series, index=pd.Index(index)), table.rows)


def from_frame(frame: Any, signature: Signature) -> ModelInput:
    """A DataFrame that arrived as one (Parquet), value by value through the same rules."""
    names = [name if isinstance(name, int) else str(name) for name in frame.columns]
    columns = [[_plain(value) for value in frame.iloc[:, i].tolist()] for i in range(len(names))]
    return from_table(Table(names, columns, len(frame)), signature)


def _table(payload: Payload, signature: Signature) -> Table:
    data, form = payload.data, payload.form
    wanted = [column.name for column in signature.columns] if signature.columns and signature.named else None
    if form == "dataframe_split":
        return split_table(data)
    if form == "dataframe_records":
        return records_table(data, wanted, form)
    if form == "inputs" and isinstance(data, dict):
        return columns_table(data, form)
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return records_table(data, wanted, form)
    if len(signature.columns) == 1 and isinstance(data, list) and not any(isinstance(v, list) for v in data):
        return Table([signature.columns[0].name], [data], len(data))
    return rows_table(data, None, form)


def _checked_columns(table: Table, signature: Signature) -> dict[Any, Any]:
    arrived = _by_name(table, signature)
    series: dict[Any, Any] = {}
    problems: list[Problem] = []
    for column in signature.columns:
        values = arrived.get(column.name)
        if values is None or (values and all(value is ABSENT for value in values)):
            if column.required:
                problems.append(Problem(f"column `{column.name}` is missing", str(column.name)))
            continue
        if table.text and column.type != "string":
            values = [None if value in _WRITTEN_MISSING else value for value in values]
        converted, wrong = convert_column(column, values, text=table.text)
        problems += wrong
        if not wrong:
            series[column.name] = _array(column, converted)
    if problems:
        raise refused(problems)
    return series


def _by_name(table: Table, signature: Signature) -> Mapping[Any, list[Any]]:
    if signature.named:
        return dict(zip(map(str, table.names), table.columns, strict=True))
    return dict(enumerate(table.columns))


def _array(column: Column, values: list[Any]) -> Any:
    if column.type == "boolean" and None in values:
        return np.array(values, dtype=object)
    if column.type in _NUMPY:
        return np.array(values, dtype=_NUMPY[column.type])
    array: Any = np.empty(len(values), dtype=object)  # never np.array: it would look inside lists and dictionaries
    array[:] = [None if value is ABSENT else value for value in values]
    return pd.Series(array, dtype=object).to_numpy()


def _frame_as_it_is(table: Table) -> Any:
    values = {
        name: [None if value is ABSENT else value for value in column]
        for name, column in zip(table.names, table.columns, strict=True)
    }
    frame = pd.DataFrame(values, index=None if table.index is None else pd.Index(table.index))
    return frame.apply(_numbers) if table.text and table.rows else frame


def _numbers(series: Any) -> Any:
    try:
        return pd.to_numeric(series)
    except (ValueError, TypeError):
        return series


def _unchecked(data: Any, form: str) -> ModelInput:
    # Without a signature the model gets what MLflow's own server would hand to it.
    try:
        if isinstance(data, dict):
            return ModelInput({name: np.array(value) for name, value in data.items()}, None)
        if isinstance(data, list) and data and all(isinstance(item, dict) for item in data):
            return ModelInput(_unchecked_records(data, form), len(data))
        return ModelInput(np.array(data), len(data) if isinstance(data, list) else None)
    except ValueError:
        raise RefusedError(400, "the rows of the input have different lengths") from None


def _unchecked_records(records: list[Any], form: str) -> Any:
    if form == "inputs":
        return [{name: np.array(value) for name, value in record.items()} for record in records]
    table = records_table(records, None, form)
    if any(value is ABSENT for column in table.columns for value in column):
        raise RefusedError(400, "every object of `instances` must have the same keys", form)
    return {name: np.array(column) for name, column in zip(table.names, table.columns, strict=True)}


def _tensors(signature: Signature, data: Any, form: str) -> ModelInput:
    if form == "instances" and isinstance(data, list) and data and isinstance(data[0], dict):
        table = records_table(data, [spec.name for spec in signature.tensors], form)
        data = dict(zip(table.names, table.columns, strict=True))
    if len(signature.tensors) == 1 and not isinstance(data, dict):
        spec = signature.tensors[0]
        array = convert_tensor(spec, data)
        return ModelInput({spec.name: array} if spec.name else array, int(array.shape[0]))
    if not isinstance(data, dict):
        names = ", ".join(f"`{spec.name}`" for spec in signature.tensors)
        raise RefusedError(400, f"`{form}` must be an object with the tensors {names}", form)
    return _named_tensors(signature, data)


def _named_tensors(signature: Signature, data: Mapping[str, Any]) -> ModelInput:
    if not signature.named:
        raise RefusedError(400, "the model takes one tensor without a name: send the array itself", "inputs")
    missing = [spec for spec in signature.tensors if spec.name not in data]
    if missing:
        raise refused([Problem(f"tensor `{spec.name}` is missing", spec.name) for spec in missing])
    arrays = {spec.name: convert_tensor(spec, data[str(spec.name)]) for spec in signature.tensors}
    return ModelInput(arrays, min(int(array.shape[0]) for array in arrays.values()))


def _tensors_of_table(signature: Signature, table: Table) -> ModelInput:
    columns = [_numerals(column) if table.text else column for column in table.columns]
    if signature.named:
        given = dict(zip(map(str, table.names), columns, strict=True))
        return _named_tensors(signature, {name: _reshaped(given, name, signature) for name in given})
    nested = len(columns) == 1 and any(isinstance(value, list) for value in columns[0])
    rows = columns[0] if nested else [list(row) for row in zip(*columns, strict=True)]
    array = convert_tensor(signature.tensors[0], rows)
    return ModelInput(array, int(array.shape[0]))


def _reshaped(given: Mapping[str, list[Any]], name: str, signature: Signature) -> Any:
    spec = next((spec for spec in signature.tensors if spec.name == name), None)
    if spec is None or len(spec.shape) < 2 or not given[name]:
        return given[name]
    try:
        return np.array(given[name]).reshape(_row_shape(spec, len(given[name]))).tolist()
    except (ValueError, TypeError):
        return given[name]  # convert_tensor says what is wrong with it


def _row_shape(spec: Tensor, rows: int) -> tuple[int, ...]:
    return (rows, *spec.shape[1:])


def _numerals(column: list[Any]) -> list[Any]:
    try:
        return [float(value) for value in column]
    except (TypeError, ValueError):
        return column


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if value is None or value is pd.NaT or value is pd.NA or value != value else value
