"""How a model is called: the fastest way that gives the same bytes as ``PyFuncModel.predict``, and whether in batches.

Owns the proof at load, on the model's own input example and rows made from it; leaves the ways themselves to native.
One idea: what can't be shown on the example is not used, and a model that looks at its rows together never gets more
than one request at a time.
"""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from runtimes.mlflow.inputs import Given
from runtimes.mlflow.layout import Block, Buffer, Form, Layout
from runtimes.mlflow.native import Call, ways
from runtimes.mlflow.plan import Work
from runtimes.mlflow.results import encode
from runtimes.mlflow.signature import Signature

_RELATIVE = {4: 1e-5, 8: 1e-9}  # by bytes of a float: a sum over another number of rows may round differently
_MOST_ROWS = 64
_DAY_NS = 86_400_000_000_000
_log = logging.getLogger("runtimes.mlflow.calling")
Unchecked = Callable[[Given, Mapping[str, Any] | None], Any]


class Caller:
    """A loaded model's ways: MLflow's own, MLflow's without its checks, and the flavor's."""

    def __init__(self, pyfunc: Any, signature: Signature) -> None:
        self._pyfunc = pyfunc
        self._signature = signature
        self._takes_params = "params" in inspect.signature(pyfunc.predict).parameters
        self._unchecked = _unchecked(pyfunc)
        self._fast: Call | None = None
        self._shown_on: Layout | None = None  # None: on any
        self.way = "pyfunc"
        self.row_wise = False

    def __call__(self, given: Given, params: Mapping[str, Any] | None) -> Any:
        """The model's result."""
        if self._fast is not None and not params and given.plain and self._shown(given.layout):
            return self._fast(given)
        if given.beyond_mlflow and self._unchecked is not None:
            return self._unchecked(given, params)
        return self.whole(given.data(), params)

    def _shown(self, layout: Layout) -> bool:
        """Whether the way was compared on such columns; tensors differ in their lengths alone."""
        shown = self._shown_on
        return shown is None or layout is shown or layout == shown or layout.form is Form.TENSORS

    def whole(self, data: Any, params: Mapping[str, Any] | None) -> Any:
        """MLflow's own way, whatever the data."""
        if self._takes_params:
            return self._pyfunc.predict(data, params=dict(params) if params else None)
        return self._pyfunc.predict(data)

    def pieces(self, data: Any, params: Mapping[str, Any] | None) -> Iterator[Any]:
        """The same, piece by piece."""
        if params:  # which an MLflow that does not know them has let nobody declare
            return iter(self._pyfunc.predict_stream(data, params=dict(params)))
        return iter(self._pyfunc.predict_stream(data))

    def prove(self, example: Work) -> None:
        """Choose the way and find out whether the model is row-wise; the example itself must have passed."""
        if example.layout.form is Form.BODY or not example.rows:
            return
        signature = self._signature
        few = min(example.rows, _MOST_ROWS)
        rows = _rows(example, few)
        if all(row.buffers == rows[0].buffers for row in rows):
            rows += filter(None, [_altered(rows[0])])
        sets = [[row] for row in rows[:3]] + [rows]
        try:
            expected = [self.whole(_given(signature, rows).data(), None) for rows in sets]
        except Exception:
            sets = [[row] for row in rows[:1]]
            expected = [self.whole(_given(signature, rows).data(), None) for rows in sets]
            rows = rows[:1]
        self._choose(sets, expected)
        self.row_wise = len(rows) > 1 and self._is_row_wise(rows)

    def _choose(self, sets: Sequence[Sequence[Work]], expected: Sequence[Any]) -> None:
        offered: list[tuple[str, Call, Layout | None]] = []
        if not self._signature.params:
            offered += [(*way, sets[0][0].layout) for way in ways(self._pyfunc)]
        if (unchecked := self._unchecked) is not None:
            offered.append(("pyfunc without its own checks", lambda given: unchecked(given, None), None))
        for name, call, shown_on in offered:
            try:
                same = all(
                    identical(call(_given(self._signature, rows)), wanted)
                    for rows, wanted in zip(sets, expected, strict=True)
                )
            except Exception as error:
                _log.debug("%s can't be used: %s", name, type(error).__name__)
                continue
            if same:
                self._fast, self.way, self._shown_on = call, name, shown_on
                return

    def _is_row_wise(self, rows: Sequence[Work]) -> bool:
        try:
            single = [self(_given(self._signature, [row]), None) for row in rows]
            pairs = [rows, rows[::-1], [rows[0], *rows]]
            order = [list(range(len(rows))), list(range(len(rows)))[::-1], [0, *range(len(rows))]]
            return all(
                _same_rows(self(_given(self._signature, together), None), [single[at] for at in positions])
                for together, positions in zip(pairs, order, strict=True)
            )
        except Exception:
            return False


def identical(one: Any, other: Any) -> bool:
    """Whether two results are the same type with the same bytes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        return (
            one.tobytes() == other.tobytes() if one.dtype != object else encode(one.tolist()) == encode(other.tolist())
        )
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(identical(one[key], other[key]) for key in one)
    if hasattr(one, "equals"):  # pandas
        return bool(one.equals(other)) and _dtypes(one) == _dtypes(other)
    return encode(one) == encode(other)


def _dtypes(value: Any) -> list[str]:
    found: Any = getattr(value, "dtypes", None)
    return [str(found)] if not hasattr(found, "tolist") else list(map(str, found.tolist()))


def _same_rows(together: Any, single: Sequence[Any]) -> bool:
    """Whether a result for many rows is that of each row, but for rounding."""
    plain = _plain(together)
    if not isinstance(plain, list) or len(plain) != len(single):
        return False
    ones = [_plain(result) for result in single]
    if not all(isinstance(one, list) and len(one) == 1 for one in ones):
        return False
    relative = _RELATIVE.get(_narrowest_float(together), 1e-9)
    return all(_close(row, one[0], relative) for row, one in zip(plain, ones, strict=True))


def _narrowest_float(result: Any) -> int:
    """Bytes of the narrowest floating point type in a result."""
    if isinstance(result, dict):
        return min(map(_narrowest_float, result.values()), default=8)
    if hasattr(result, "columns"):
        return min((_narrowest_float(result[name].to_numpy()) for name in result.columns), default=8)
    kind = getattr(result, "dtype", None)
    return int(kind.itemsize) if kind is not None and kind.kind == "f" else 8


def _plain(result: Any) -> Any:
    """Results as lists of rows; a dictionary of arrays turned round."""
    if isinstance(result, dict) and result and all(isinstance(value, np.ndarray) for value in result.values()):
        lengths = {len(value) if value.ndim else -1 for value in result.values()}
        if len(lengths) != 1 or -1 in lengths:
            return None
        return [list(row) for row in zip(*(value.tolist() for value in result.values()), strict=True)]
    text, _ = encode(_listed(result))
    return json.loads(text)


def _listed(result: Any) -> Any:
    if hasattr(result, "to_frame"):
        result = result.to_frame()
    if hasattr(result, "to_dict") and hasattr(result, "columns"):
        return result.to_dict(orient="records")
    return result.tolist() if isinstance(result, np.ndarray) else result


def _close(one: Any, other: Any, relative: float) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other, [relative] * len(one)))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key], relative) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= relative * max(abs(one), abs(other), 1e-12)
    return bool(one == other)


def _unchecked(pyfunc: Any) -> Unchecked | None:
    """The model behind MLflow's checks, which the plan has already made; None where it can't be reached."""
    predict = getattr(pyfunc, "_predict_fn", None)
    metadata = pyfunc.metadata
    by_example = getattr(metadata, "_is_type_hint_from_example", None)
    if predict is None or (by_example is not None and by_example()):
        return None
    function: Callable[..., Any] = predict
    takes = inspect.signature(function).parameters.get("params")
    if takes is None or takes.kind is inspect.Parameter.VAR_KEYWORD:
        return lambda given, params: function(given.data())
    try:
        from mlflow.models.utils import _enforce_params_schema as with_defaults
    except ImportError:
        return None
    schema = metadata.get_params_schema()
    return lambda given, params: function(given.data(), params=with_defaults(dict(params or {}), schema))


def _given(signature: Signature, rows: Sequence[Work]) -> Given:
    joined = [b"".join(parts) if block.item_bytes is not None else _join_lists(parts) for block, parts in _parts(rows)]
    return Given(signature, rows[0].layout, [bytearray(buffer) for buffer in joined], len(rows))


def _parts(rows: Sequence[Work]) -> list[tuple[Block, list[Buffer]]]:
    return [(block, [row.buffers[at] for row in rows]) for at, block in enumerate(rows[0].layout.blocks)]


def _join_lists(parts: Sequence[Buffer]) -> bytes:
    return json.dumps([value for part in parts for value in json.loads(bytes(part))]).encode()


def _rows(example: Work, count: int) -> list[Work]:
    """The example's rows one by one."""
    made: list[list[Buffer]] = [[] for _ in range(count)]
    for block, buffer in zip(example.layout.blocks, example.buffers, strict=True):
        total = example.rows or 1
        if block.item_bytes is not None:
            step = len(buffer) // total
            pieces: list[Buffer] = [bytes(buffer[at * step : (at + 1) * step]) for at in range(count)]
        else:
            values = json.loads(bytes(buffer))
            step = len(values) // total
            pieces = [json.dumps(values[at * step : (at + 1) * step]).encode() for at in range(count)]
        for row, piece in zip(made, pieces, strict=True):
            row.append(piece)
    return [replace(example, buffers=buffers, rows=1) for buffers in made]


def _altered(row: Work) -> Work | None:
    """Another row that such a model might well get; None where only its texts could be changed."""
    changed = False
    buffers: list[Buffer] = []
    for block, buffer in zip(row.layout.blocks, row.buffers, strict=True):
        made = _other_values(block, buffer)
        changed = changed or made != buffer
        buffers.append(made)
    return replace(row, buffers=buffers) if changed else None


def _other_values(block: Block, buffer: Buffer) -> Buffer:
    if block.item_bytes is None or block.code == "b1":
        return bytes(buffer)
    array = np.frombuffer(buffer, dtype="<" + ("i8" if block.code == "M8" else block.code)).copy()
    if block.code == "M8":
        array += _DAY_NS
    elif array.dtype.kind == "f":
        array = (array * 1.25 + 0.5).astype(array.dtype)
    else:
        array = np.where(array < np.iinfo(array.dtype).max, array + 1, array).astype(array.dtype)
    return array.tobytes()
