"""Runs in Triton's environment: log tiny ONNX networks with the real MLflow.

    python tiny_networks.py FOLDER [ADDED]

- `line`: y = x W + b + ADDED and the square root of x (not a number below 0), a label a row; x is [rows, 4].
- `text`: gives its texts back.
- `ranks`: x minus the mean of all rows of the batch, so it must not be merged with others.
- `pick`: the number at a place of three; any other place is an error.
- `slow`: multiplies matrices as often as its input says, for as long as a test needs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mlflow.onnx
import numpy as np
from mlflow.models import ModelSignature
from mlflow.types.schema import Schema, TensorSpec
from onnx import TensorProto, checker, helper, numpy_helper

WEIGHTS = np.array([[1, 0, -1], [2, 1, 0], [0, 3, 1], [-1, 0, 2]], dtype=np.float32)
BIAS = np.array([0.5, -0.5, 0], dtype=np.float32)
SIDE = 256


def value(name: str, kind: int, shape: list[int | str]) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def graph(name: str, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any] = ()) -> Any:
    made = helper.make_model(
        helper.make_graph(nodes, name, inputs, outputs, list(weights)),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    checker.check_model(made)
    return made


def line() -> Any:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["y"]),
        helper.make_node("Sqrt", ["x"], ["root"]),
        helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0),
    ]
    outputs = [
        value("y", TensorProto.FLOAT, ["rows", 3]),
        value("root", TensorProto.FLOAT, ["rows", 4]),
        value("label", TensorProto.INT64, ["rows"]),
    ]
    weights = [numpy_helper.from_array(WEIGHTS, "w"), numpy_helper.from_array(BIAS, "b")]
    return graph("line", nodes, [value("x", TensorProto.FLOAT, ["rows", 4])], outputs, weights)


def text() -> Any:
    node = helper.make_node("Identity", ["said"], ["heard"])
    shape: list[int | str] = ["rows", 1]
    return graph(
        "text", [node], [value("said", TensorProto.STRING, shape)], [value("heard", TensorProto.STRING, shape)]
    )


def ranks() -> Any:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    shape: list[int | str] = ["rows", 2]
    return graph("ranks", nodes, [value("x", TensorProto.FLOAT, shape)], [value("y", TensorProto.FLOAT, shape)])


def pick() -> Any:
    weights = [numpy_helper.from_array(np.array([10, 20, 30], dtype=np.float32), "table")]
    node = helper.make_node("Gather", ["table", "at"], ["y"], axis=0)
    shape: list[int | str] = ["rows", 1]
    return graph("pick", [node], [value("at", TensorProto.INT64, shape)], [value("y", 1, shape)], weights)


def slow() -> Any:
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["m_in", "eye"], ["m_out"]),
            helper.make_node("Identity", ["go_in"], ["go_out"]),
        ],
        "body",
        [value("i", TensorProto.INT64, []), value("go_in", TensorProto.BOOL, []), value("m_in", 1, [SIDE, SIDE])],
        [value("go_out", TensorProto.BOOL, []), value("m_out", 1, [SIDE, SIDE])],
    )
    nodes = [
        helper.make_node("Squeeze", ["times"], ["count"]),
        helper.make_node("Loop", ["count", "yes", "eye"], ["m"], body=body),
        helper.make_node("ReduceSum", ["m"], ["sum"], keepdims=0),
        helper.make_node("Unsqueeze", ["sum", "axis"], ["done"]),
    ]
    weights = [
        numpy_helper.from_array(np.eye(SIDE, dtype=np.float32), "eye"),
        numpy_helper.from_array(np.array(True), "yes"),
        numpy_helper.from_array(np.array([0], dtype=np.int64), "axis"),
    ]
    return graph("slow", nodes, [value("times", TensorProto.INT64, [1])], [value("done", 1, [1])], weights)


Arrays = dict[str, Any]
X = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], dtype=np.float32)
TEXTS = np.array([["a"], ["b"]])
PAIRS = np.array([[1, 2], [3, 5]], dtype=np.float32)
ANSWER = {"y": np.zeros((2, 3), np.float32), "root": np.zeros((2, 4), np.float32), "label": np.zeros(2, np.int64)}
NETWORKS: dict[str, tuple[Any, Arrays, Arrays]] = {
    "line": (line, {"x": X}, ANSWER),
    "text": (text, {"said": TEXTS}, {"heard": TEXTS}),
    "ranks": (ranks, {"x": PAIRS}, {"y": PAIRS}),
    "pick": (pick, {"at": np.array([[0], [2]])}, {"y": PAIRS[:, :1]}),
    "slow": (slow, {"times": np.array([1], dtype=np.int64)}, {"done": np.zeros(1, np.float32)}),
}


def schema(arrays: Arrays) -> Schema:
    return Schema([tensor(name, values) for name, values in arrays.items()])


def tensor(name: str, values: Any) -> TensorSpec:
    datatype = np.dtype(str) if values.dtype.kind == "U" else values.dtype
    return TensorSpec(datatype, (-1, *values.shape[1:]), name)


def main(folder: Path, added: float) -> None:
    BIAS[:] += added
    for name, (make, inputs, outputs) in NETWORKS.items():
        mlflow.onnx.save_model(
            make(),
            folder / name,
            signature=ModelSignature(schema(inputs), schema(outputs)),
            input_example=inputs,
            pip_requirements=["onnxruntime"],
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0)
