"""A request as Triton takes it, and its answer as ours.

Owns both documents of Triton's own door, which is v2 with binary tensors; leaves what clients send and get to the
plan and the protocols. Pure. One idea: Triton sees only values that were checked, as bytes, so nothing that a client
sent can be read another way there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import orjson

from runtimes.interface.engine import Forwarded
from runtimes.mlflow.answers import Array, count_non_finite
from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.layout import Block, Buffer
from runtimes.mlflow.plan import Work
from runtimes.protocols.v2_answer import Output
from runtimes.protocols.v2_tensors import CODES, DATATYPES, from_bytes, to_bytes
from runtimes.triton.tensors import Tensor

LENGTH = b"inference-header-content-length"


class BrokenAnswerError(ValueError):
    """A tensor of an answer does not hold what its shape says, as with a numpy that Triton's back end can't read."""


def request(work: Work, wanted: Sequence[str], left_us: int, rows: bool) -> tuple[bytes, int]:
    """Body and length of its JSON; ``left_us`` until nobody wants it any more. ``rows``: the model is batched."""
    inputs, tail = [], []
    for block, buffer in zip(work.layout.blocks, work.buffers, strict=True):
        raw = buffer if block.item_bytes is not None else to_bytes(orjson.loads(bytes(buffer)))
        inputs.append(_input(block, work.rows or 0, len(raw), rows))
        tail.append(raw)
    head = orjson.dumps(
        {
            "inputs": inputs,
            "outputs": [{"name": name, "parameters": {"binary_data": True}} for name in wanted],
            "parameters": {"timeout": max(1, left_us)},
        }
    )
    return b"".join([head, *tail]), len(head)


def outputs(answered: Forwarded, tensors: Sequence[Tensor]) -> list[Output]:
    """The tensors of an answer, in the model's order and shapes; BrokenAnswerError where one is not whole."""
    length = next((int(value) for name, value in answered.headers if name == LENGTH), len(answered.body))
    head, tail = orjson.loads(answered.body[:length]), memoryview(answered.body)[length:]
    found: dict[str, Output] = {}
    for described in head["outputs"]:
        size = described["parameters"]["binary_data_size"]
        raw, tail = tail[:size], tail[size:]
        tensor = next(tensor for tensor in tensors if tensor.name == described["name"])
        found[tensor.name] = _output(tensor, described["shape"], raw)
    return [found[tensor.name] for tensor in tensors if tensor.name in found]


def without_rows(tensor: Tensor) -> Output:
    """The answer to a request of no rows, which Triton does not take."""
    return _output(tensor, [0, *(max(length, 0) for length in tensor.shape[1:])], b"")


def predictions(answered: Sequence[Output], bare: bool) -> tuple[bytes, int]:
    """MLflow's JSON form of an answer, and how many of its values left as null; ``bare`` without the tensor's name."""
    values = {output.name: _nested(output) for output in answered}
    body = orjson.dumps({"predictions": values[answered[0].name] if bare else values})
    arrays = [output.array for output in answered if output.array is not None]
    return body, count_non_finite(arrays) if b"null" in body else 0


def _input(block: Block, rows: int, size: int, batched: bool) -> dict[str, Any]:
    shape = [rows, *block.shape]
    if batched and not block.shape:
        shape.append(1)  # one value a row is a row of one for Triton
    datatype = DATATYPES.get(block.code, "BYTES")
    return {"name": block.names[0], "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}}


def _output(tensor: Tensor, shape: list[int], raw: Buffer) -> Output:
    shape = shape[: len(tensor.shape)]
    try:
        given = from_bytes(tensor.name, tensor.datatype, tuple(shape), memoryview(raw))
    except RefusedError as error:
        raise BrokenAnswerError(f"the answer's {error.message}") from None
    if given.texts is not None:
        return Output(tensor.name, "BYTES", shape, texts=given.texts)
    array = Array(tensor.name, CODES[tensor.datatype], tuple(shape), raw)
    return Output(tensor.name, tensor.datatype, shape, array)


def _nested(output: Output) -> Any:
    if output.array is not None:
        return output.array.values()
    return _rows(output.texts or [], output.shape)


def _rows(flat: list[Any], shape: Sequence[int]) -> list[Any]:
    if len(shape) == 1:
        return flat
    step = math.prod(shape[1:])
    return [_rows(flat[row * step : (row + 1) * step], shape[1:]) for row in range(shape[0])]
