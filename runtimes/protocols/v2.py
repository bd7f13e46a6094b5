"""The Open Inference Protocol's inference request and response, with the binary tensor extension.

Owns the two documents; leaves tensors' bytes to v2_tensors, the values' rules to the plan, and paths, metadata and
errors' shape to the interface. Pure. One idea: an input is a column or a tensor of the signature by its name, and goes
through the same rules as in every other protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from runtimes.mlflow.bodies import Table, may_be_rounded, parse_document
from runtimes.mlflow.errors import Problem, RefusedError, refused
from runtimes.mlflow.params import check_params
from runtimes.mlflow.plan import BODY_LAYOUT, Plan, Work
from runtimes.mlflow.plan_table import Blocks
from runtimes.mlflow.signature import Tensor
from runtimes.mlflow.tensors import Packed, check_shape, code_of, pack_leaves
from runtimes.protocols.v2_tensors import CODES, DTYPES, Given, from_bytes, from_json, refusal

_MOST_DIMENSIONS, _LONGEST_ID = 16, 256
# Parameters of the protocol and its extensions, which are not the model's.
_OF_THE_PROTOCOL = frozenset(
    {
        "binary_data_output",
        "content_type",
        "headers",
        "priority",
        "timeout",
        "sequence_id",
        "sequence_start",
        "sequence_end",
    }
)


@dataclass(slots=True)
class Wanted:
    """One output that the client asked for by name."""

    name: str
    binary: bool | None


@dataclass(slots=True)
class Asked:
    """An inference request."""

    id: str | None
    inputs: list[Given]
    outputs: list[Wanted]
    params: Mapping[str, Any] = field(default_factory=dict)
    binary: bool = False  # the form of outputs that say nothing about theirs


def parse(body: bytes, json_bytes: int | None, loads: Callable[[bytes], Any]) -> Asked:
    """The request of a body; with ``json_bytes`` the binary tensors stand behind so many bytes of JSON."""
    text = body if json_bytes is None else body[:json_bytes]
    raw = memoryview(b"" if json_bytes is None else body)[0 if json_bytes is None else json_bytes :]
    document = _document(text, loads)
    if not isinstance(document, dict) or not isinstance(document.get("inputs"), list) or not document["inputs"]:
        raise RefusedError(400, "the body must be a JSON object with `inputs`, a list of tensors", "inputs")
    own_id = document.get("id")
    if own_id is not None and (not isinstance(own_id, str) or len(own_id) > _LONGEST_ID):
        raise RefusedError(400, f"`id` must be a string of at most {_LONGEST_ID} characters", "id")
    inputs: list[Given] = []
    for spec in document["inputs"]:
        given, raw = _input(spec, raw)
        inputs.append(given)
    if len(raw):
        raise RefusedError(400, f"{len(raw)} bytes of the body belong to no tensor", "inputs")
    _no_twins([given.name for given in inputs])
    parameters = _parameters(document.get("parameters"), "parameters")
    params = {name: value for name, value in parameters.items() if name not in _OF_THE_PROTOCOL}
    return Asked(
        own_id, inputs, _outputs(document.get("outputs")), params, parameters.get("binary_data_output") is True
    )


def work(asked: Asked, plan: Plan) -> Work:
    """The request as the plan's blocks."""
    params, problems = check_params(asked.params, plan.signature.params)
    if problems:
        raise refused(problems)
    if plan.tensors:
        blocks = _tensors(asked.inputs, plan)
    elif plan.tables and not plan.signature.raw:
        blocks = _table(asked.inputs, plan)
    else:
        return Work(BODY_LAYOUT, [_as_inputs(asked)], None, alone=True)
    return Work(blocks.layout, blocks.buffers, blocks.rows, params=params or None)


def _document(text: bytes, loads: Callable[[bytes], Any]) -> Any:
    try:
        document = loads(text)
    except ValueError:
        return parse_document(text)
    return parse_document(text) if may_be_rounded(text) else document


def _input(spec: Any, raw: memoryview) -> tuple[Given, memoryview]:
    if not isinstance(spec, dict) or not isinstance(spec.get("name"), str):
        raise RefusedError(400, "every input must be an object with a `name`", "inputs")
    name, datatype = spec["name"], spec.get("datatype")
    if not isinstance(datatype, str) or datatype not in DTYPES:
        raise refusal(name, f"`datatype` must be one of {', '.join(DTYPES)}")
    shape = spec.get("shape")
    if (
        not isinstance(shape, list)
        or not 0 < len(shape) <= _MOST_DIMENSIONS
        or any(type(length) is not int or not 0 <= length < 1 << 40 for length in shape)
    ):
        raise refusal(name, "`shape` must be a list of lengths")
    size = _parameters(spec.get("parameters"), name).get("binary_data_size")
    if size is None:
        return from_json(name, datatype, tuple(shape), spec.get("data")), raw
    if type(size) is not int or not 0 <= size <= len(raw):
        raise refusal(name, "`binary_data_size` is no length or more than the body holds")
    return from_bytes(name, datatype, tuple(shape), raw[:size]), raw[size:]


def _outputs(specs: Any) -> list[Wanted]:
    if specs is None:
        return []
    if not isinstance(specs, list) or any(not isinstance(s, dict) or not isinstance(s.get("name"), str) for s in specs):
        raise RefusedError(400, "`outputs` must be a list of objects with a `name`", "outputs")
    wanted = []
    for spec in specs:
        binary = _parameters(spec.get("parameters"), "outputs").get("binary_data")
        wanted.append(Wanted(spec["name"], binary if isinstance(binary, bool) else None))
    _no_twins([output.name for output in wanted])
    return wanted


def _parameters(given: Any, where: str) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise RefusedError(400, "`parameters` must be an object", where)
    return given


def _no_twins(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise refusal(name, "it is there twice")


def _tensors(inputs: Sequence[Given], plan: Plan) -> Blocks:
    specs = plan.signature.tensors
    assert plan.tensors is not None
    if len(specs) == 1 and specs[0].name is None:
        if len(inputs) != 1:
            raise RefusedError(400, "the model takes one tensor", "inputs")
        return plan.tensors.pack([_fitted(specs[0], inputs[0])])
    by_name = {given.name: given for given in inputs}
    _known(by_name, [str(spec.name) for spec in specs])
    return plan.tensors.pack([_fitted(spec, by_name[str(spec.name)]) for spec in specs])


def _known(by_name: Mapping[str, Given], names: Sequence[str]) -> None:
    problems = [Problem(f"tensor `{name}` is missing", name) for name in names if name not in by_name]
    problems += [
        Problem(f"the model has no tensor `{name[:64]}`; it takes {', '.join(names)}", name[:64])
        for name in by_name
        if name not in names
    ]
    if problems:
        raise refused(problems)


def _fitted(spec: Tensor, given: Given) -> Packed:
    """The input in the type that the signature asks for."""
    check_shape(spec, given.shape)
    code = code_of(spec)
    if given.texts is None and CODES[given.datatype] == code:
        return Packed(code, given.shape, given.buffer)
    return Packed(code, given.shape, pack_leaves(spec, given.values(), math.prod(given.shape[1:])))


def _table(inputs: Sequence[Given], plan: Plan) -> Blocks:
    tables = plan.tables
    assert tables is not None
    names = [str(name) for name in tables.names]
    if len(inputs) == 1 and inputs[0].name not in names and len(inputs[0].shape) == 2:
        flat, width = inputs[0].values(), len(names)  # one matrix: a row of it is a row of the table
        if inputs[0].shape[1] != width:
            raise refusal(inputs[0].name, f"its shape is {list(inputs[0].shape)}, the model takes [-1, {width}]")
        columns = {name: flat[at::width] for at, name in enumerate(tables.names)}
        rows = inputs[0].shape[0]
    else:
        columns = {given.name: _column(given) for given in inputs}
        rows = _rows(inputs)
        if not plan.signature.named:
            columns = dict(enumerate(columns.values()))
    if rows and (blocks := tables.columns(columns)) is not None:
        return blocks
    cleaned = [[None if value != value else value for value in column] for column in columns.values()]
    return tables.table(Table(list(columns), cleaned, rows))


def _column(given: Given) -> list[Any]:
    if math.prod(given.shape[1:]) != 1:
        raise refusal(given.name, f"its shape is {list(given.shape)}, a column's is [-1] or [-1, 1]")
    return given.values()


def _rows(inputs: Sequence[Given]) -> int:
    counts = {given.shape[0] for given in inputs}
    if len(counts) > 1:
        raise RefusedError(400, f"the tensors have different numbers of rows: {sorted(counts)}", "inputs")
    return counts.pop()


def _as_inputs(asked: Asked) -> bytes:
    """A request to a model without a signature, as the form that takes anything."""
    nested = {given.name: _nested(given.values(), given.shape) for given in asked.inputs}
    data: Any = next(iter(nested.values())) if len(nested) == 1 else nested
    return orjson.dumps({"inputs": data, "params": asked.params} if asked.params else {"inputs": data})


def _nested(flat: list[Any], shape: Sequence[int]) -> list[Any]:
    if len(shape) == 1:
        return flat
    step = math.prod(shape[1:])
    return [_nested(flat[row * step : (row + 1) * step], shape[1:]) for row in range(shape[0])]
