"""The inputs and outputs of an ONNX file.

Owns walking the few fields of its protobuf that say so (onnx.proto: ModelProto.graph and below); leaves the weights
where they are. One idea: the file itself knows its tensors' names, which a signature may lack, and reading them needs
neither the onnx package nor memory for the model.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

from runtimes.triton.tensors import UNKNOWN, Tensor, Tensors, UnservableError

_DATATYPES = {
    1: "FP32",
    2: "UINT8",
    3: "INT8",
    4: "UINT16",
    5: "INT16",
    6: "INT32",
    7: "INT64",
    8: "BYTES",
    9: "BOOL",
    10: "FP16",
    11: "FP64",
    12: "UINT32",
    13: "UINT64",
    16: "BF16",
}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GRAPH = 7
_INITIALIZER, _INPUT, _OUTPUT = 5, 11, 12
_INITIALIZER_NAME = 8
_NAME, _TYPE, _TENSOR_TYPE, _ELEMENT, _SHAPE, _LENGTH, _VALUE = 1, 2, 1, 1, 2, 1, 1

Field = tuple[int, int | memoryview]


def read(path: Path) -> Tensors:
    """The tensors of the file; UnservableError where it is none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        view = memoryview(whole)
        try:
            return parse(view)
        except (ValueError, IndexError) as error:
            raise UnservableError(f"{path.name} is not an ONNX file: {error}") from None
        finally:
            view.release()


def parse(model: memoryview) -> Tensors:
    """The tensors of a serialised ModelProto."""
    for field, graph in _fields(model):
        if field == _GRAPH and isinstance(graph, memoryview):
            return _of_graph(graph)
    raise ValueError("it holds no graph")


def _of_graph(graph: memoryview) -> Tensors:
    inputs, outputs, weights = [], [], set()
    for field, value in _fields(graph):
        if not isinstance(value, memoryview):
            continue
        if field == _INPUT:
            inputs.append(_tensor(value))
        elif field == _OUTPUT:
            outputs.append(_tensor(value))
        elif field == _INITIALIZER:
            weights.add(_text(value, _INITIALIZER_NAME))
    return Tensors(tuple(tensor for tensor in inputs if tensor.name not in weights), tuple(outputs))


def _tensor(value: memoryview) -> Tensor:
    name, kind = _text(value, _NAME), _inside(_inside(value, _TYPE), _TENSOR_TYPE)
    elements = [number for field, number in _fields(kind) if field == _ELEMENT]
    datatype = _DATATYPES.get(elements[0]) if elements and isinstance(elements[0], int) else None
    if datatype is None:
        raise UnservableError(f"`{name}` is not a tensor of a type that Triton has")
    shape = (_length(length) for field, length in _fields(_inside(kind, _SHAPE)) if field == _LENGTH)
    return Tensor(name, datatype, tuple(shape))


def _length(dimension: int | memoryview) -> int:
    """A length that is a name, or nothing, is free."""
    assert isinstance(dimension, memoryview)
    stated = [value for field, value in _fields(dimension) if field == _VALUE]
    return stated[0] if stated and isinstance(stated[0], int) else UNKNOWN


def _inside(message: memoryview, wanted: int) -> memoryview:
    found = [value for field, value in _fields(message) if field == wanted and isinstance(value, memoryview)]
    return found[0] if found else memoryview(b"")


def _text(message: memoryview, wanted: int) -> str:
    return bytes(_inside(message, wanted)).decode()


def _fields(message: memoryview) -> Iterator[Field]:
    """Number and value of each field of a message: an integer, or the bytes of what is nested."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            number, at = _varint(message, at)
            yield tag >> 3, number
        elif kind == _BYTES:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise ValueError("it is cut off")
            yield tag >> 3, message[at : at + length]
            at += length
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"a field of kind {kind}")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number that is too long")
