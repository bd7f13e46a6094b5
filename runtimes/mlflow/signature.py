"""What a model says it takes: its columns, tensors and parameters.

Owns the closed types that MLflow's signature dictionaries are parsed into; leaves checking values to columns and
tensors. One idea: the dictionary form is the same in every MLflow version, so nothing here imports MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# The scalar types of a column. Anything else (array, object, map, any) is checked by MLflow itself.
SCALARS = frozenset({"boolean", "integer", "long", "float", "double", "string", "binary", "datetime"})


@dataclass(frozen=True)
class Column:
    """One column; its name is its position where the signature gives none."""

    name: str | int
    type: str
    required: bool = True

    @property
    def scalar(self) -> bool:
        return self.type in SCALARS


@dataclass(frozen=True)
class Tensor:
    """One tensor; -1 in the shape stands for any length."""

    name: str | None
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Param:
    """One parameter of a prediction."""

    name: str
    type: str
    is_list: bool = False


@dataclass(frozen=True)
class Signature:
    """What the model takes; with neither columns nor tensors nothing is known, and nothing is enforced."""

    columns: tuple[Column, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    params: tuple[Param, ...] = ()
    named: bool = True
    raw: bool = False  # the model validates its own `inputs` against its type hint


def parse_signature(
    inputs: Sequence[Mapping[str, Any]] | None,
    params: Sequence[Mapping[str, Any]] | None,
    *,
    raw: bool = False,
) -> Signature:
    """A signature from the lists of dictionaries that MLflow's ``to_dict`` gives."""
    specs = list(inputs or ())
    return Signature(
        columns=tuple(_column(i, spec) for i, spec in enumerate(specs) if spec.get("type") != "tensor"),
        tensors=tuple(_tensor(spec) for spec in specs if spec.get("type") == "tensor"),
        params=tuple(_param(spec) for spec in params or ()),
        named=all("name" in spec for spec in specs),
        raw=raw,
    )


def _column(position: int, spec: Mapping[str, Any]) -> Column:
    required = spec.get("required", not spec.get("optional", False))
    return Column(spec.get("name", position), str(spec["type"]), bool(required))


def _tensor(spec: Mapping[str, Any]) -> Tensor:
    described = spec["tensor-spec"]
    return Tensor(spec.get("name"), str(described["dtype"]), tuple(int(n) for n in described["shape"]))


def _param(spec: Mapping[str, Any]) -> Param:
    kind = spec.get("type") or spec.get("dtype")
    return Param(str(spec["name"]), str(kind), spec.get("shape") is not None)
