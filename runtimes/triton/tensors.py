"""The tensors that a model takes and gives, in Triton's words.

Owns names, types and shapes, and reading them from an MLflow signature; leaves a network's own file to onnx_graph.
Pure. One idea: a model repository is made from these and nothing else, whichever back end runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from runtimes.mlflow import signature as mlflow
from runtimes.mlflow.signature import Signature
from runtimes.protocols.v2_tensors import DTYPES

_OF_NUMPY = {dtype: datatype for datatype, dtype in DTYPES.items()} | {"object": "BYTES"}
UNKNOWN = -1


class UnservableError(RuntimeError):
    """Triton can't serve this model; the text is one line and says what to change."""


@dataclass(frozen=True)
class Tensor:
    """One input or output: ``datatype`` as v2 spells it, ``shape`` with -1 where a length is free."""

    name: str
    datatype: str
    shape: tuple[int, ...]

    @property
    def has_rows(self) -> bool:
        """Whether its first length is free, so that it may be how many rows a request has."""
        return bool(self.shape) and self.shape[0] == UNKNOWN


@dataclass(frozen=True)
class Tensors:
    """All of a model's."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def have_rows(self) -> bool:
        """Whether requests can be merged along the first axis: all of them have a free one."""
        return all(tensor.has_rows for tensor in (*self.inputs, *self.outputs))

    def check(self) -> None:
        """UnservableError where a tensor has no form in the protocols that clients speak."""
        for tensor in (*self.inputs, *self.outputs):
            if tensor.datatype not in DTYPES:
                raise UnservableError(f"`{tensor.name}` is of {tensor.datatype}, which v2 has no datatype for")
            if not tensor.shape:
                raise UnservableError(f"`{tensor.name}` is a single value: give it a shape")

    @property
    def signature(self) -> Signature:
        """What a plan is compiled from."""
        return Signature(tensors=tuple(mlflow.Tensor(t.name, DTYPES[t.datatype], t.shape) for t in self.inputs))


def from_signature(signature: dict[str, Any] | None) -> Tensors:
    """The tensors of an MLflow signature (its ``inputs`` and ``outputs`` are JSON); UnservableError for columns."""
    if not signature or not signature.get("inputs") or not signature.get("outputs"):
        raise UnservableError("the model has no signature with inputs and outputs: log it with one, of tensors")
    return Tensors(
        _tensors(orjson.loads(signature["inputs"]), "INPUT"), _tensors(orjson.loads(signature["outputs"]), "OUTPUT")
    )


def _tensors(specs: Sequence[dict[str, Any]], kind: str) -> tuple[Tensor, ...]:
    return tuple(_tensor(spec, f"{kind}__{place}") for place, spec in enumerate(specs))


def _tensor(spec: dict[str, Any], place: str) -> Tensor:
    """A tensor without a name is called by its place, as Triton's PyTorch back end does."""
    if spec.get("type") != "tensor":
        raise UnservableError("the model's signature is of columns, and Triton takes tensors: log it with a tensor one")
    inner = spec["tensor-spec"]
    datatype = _OF_NUMPY.get(inner["dtype"])
    if datatype is None:
        raise UnservableError(f"Triton has no type for tensors of {inner['dtype']}")
    return Tensor(spec.get("name") or place, datatype, tuple(int(length) for length in inner["shape"]))
