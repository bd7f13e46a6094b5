"""Tensors of the Open Inference Protocol: nested JSON lists or little-endian bytes, as flat values and back.

Owns the datatypes and the binary tensor extension's layout; leaves the documents around them to v2. Pure and of the
standard library. One idea: a tensor says how many values it has, and nothing is read that does not agree.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtimes.mlflow.errors import RefusedError
from runtimes.mlflow.layout import ITEM_BYTES, Buffer
from runtimes.mlflow.signature import Tensor
from runtimes.mlflow.tensors import flatten, pack_leaves
from runtimes.mlflow.values import unpack

DTYPES = {
    "BOOL": "bool", "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "UINT8": "uint8",
    "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "FP16": "float16", "FP32": "float32", "FP64": "float64",
    "BYTES": "str",
}  # fmt: skip
CODES = {
    "BOOL": "b1", "INT8": "i1", "INT16": "i2", "INT32": "i4", "INT64": "i8", "UINT8": "u1", "UINT16": "u2",
    "UINT32": "u4", "UINT64": "u8", "FP16": "f2", "FP32": "f4", "FP64": "f8",
}  # fmt: skip
DATATYPES = {code: datatype for datatype, code in CODES.items()}
_LENGTH = struct.Struct("<I")


@dataclass(slots=True)
class Given:
    """One input tensor; ``buffer`` holds its values where they have a numeric type, ``texts`` where they are BYTES."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    buffer: Buffer = b""
    texts: list[str] | None = None

    def values(self) -> list[Any]:
        """All values, flat."""
        if self.texts is not None:
            return self.texts
        code = CODES[self.datatype]
        if code == "f2":
            return list(struct.unpack(f"<{len(self.buffer) // 2}e", self.buffer))
        return unpack(code, self.buffer)


def from_json(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Given:
    """A tensor whose values stand in the document, nested or flat."""
    spec = Tensor(name, DTYPES[datatype], shape)
    if not isinstance(data, list):
        raise refusal(name, "`data` must be a list")
    _, leaves = flatten(spec, data)
    _count(name, shape, len(leaves))
    if datatype != "BYTES":
        return Given(name, datatype, shape, pack_leaves(spec, leaves, math.prod(shape[1:])))
    if set(map(type, leaves)) - {str}:
        raise refusal(name, "every value must be a string")
    return Given(name, datatype, shape, texts=leaves)


def from_bytes(name: str, datatype: str, shape: tuple[int, ...], raw: memoryview) -> Given:
    """A tensor of the binary extension."""
    if datatype == "BYTES":
        texts = read_texts(name, raw)
        _count(name, shape, len(texts))
        return Given(name, datatype, shape, texts=texts)
    item = ITEM_BYTES[CODES[datatype]]
    if len(raw) != item * math.prod(shape):
        raise refusal(name, f"{len(raw)} bytes do not hold the values of shape {list(shape)}")
    if datatype == "BOOL" and bytes(raw).translate(None, b"\0\1"):
        raise refusal(name, "every value must be a boolean")
    return Given(name, datatype, shape, raw)


def to_bytes(values: Sequence[Any]) -> bytes:
    """Texts of an output tensor in the binary extension."""
    encoded = [b"" if value is None else str(value).encode() for value in values]
    return b"".join(_LENGTH.pack(len(text)) + text for text in encoded)


def refusal(name: str, reason: str) -> RefusedError:
    """A 400 that names the tensor."""
    return RefusedError(400, f"tensor `{name}`: {reason}", name)


def _count(name: str, shape: tuple[int, ...], count: int) -> None:
    if count != math.prod(shape):
        raise refusal(name, f"it has {count} values, its shape is {list(shape)}")


def read_texts(name: str, raw: memoryview) -> list[str]:
    """The texts of a tensor in the binary extension."""
    texts, at = [], 0
    while at < len(raw):
        start = at + _LENGTH.size
        end = start + (_LENGTH.unpack_from(raw, at)[0] if start <= len(raw) else len(raw))
        if end > len(raw):
            raise refusal(name, "its bytes end inside a value")
        try:
            texts.append(str(raw[start:end], "utf-8"))
        except UnicodeDecodeError:
            raise refusal(name, f"value {len(texts)} is not UTF-8") from None
        at = end
    return texts
