"""What an MLflow model tells about itself: its paths and its tensors in the Open Inference Protocol's words.

Owns the names of both; leaves the documents to the interface. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtimes.interface.engine import About

DATATYPES = {
    "boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64", "string": "BYTES",
    "binary": "BYTES", "datetime": "BYTES", "bool": "BOOL", "float16": "FP16", "float32": "FP32", "float64": "FP64",
    "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
}  # fmt: skip
_OPENAI = {
    "llm/v1/chat": "/v1/chat/completions",
    "llm/v1/completions": "/v1/completions",
    "agent/v1/chat": "/v1/chat/completions",
    "agent/v2/chat": "/v1/chat/completions",
    "agent/v1/responses": "/v1/responses",
    "llm/v1/embeddings": "/v1/embeddings",
}


def about(name: str, version: str, head: Mapping[str, Any]) -> About:
    """From what a predictor said of its model."""
    paths = {"/invocations"}
    openai = _openai_path(head)
    if openai:
        paths |= {"/v1/models", openai}
    if not head["chat"]:
        paths.add("/v2")
    native = next((flavor for flavor in head["flavors"] if flavor != "python_function"), "pyfunc")
    return About(
        name,
        version,
        f"mlflow_{native}",
        head["mlflow"],
        frozenset(paths),
        tensors(head["inputs"], "input"),
        tensors(head["outputs"], "predictions"),
    )


def _openai_path(head: Mapping[str, Any]) -> str | None:
    if head["task"] in _OPENAI:
        return _OPENAI[head["task"]]
    takes_messages = any(spec.get("name") == "messages" for spec in head["inputs"] or ())
    return "/v1/chat/completions" if head["chat"] or (head["speaks"] and takes_messages) else None


def tensors(schema: Sequence[Mapping[str, Any]] | None, unnamed: str) -> list[dict[str, Any]]:
    """The metadata of a schema's tensors or columns."""
    found = []
    for position, spec in enumerate(schema or ()):
        name = spec.get("name") or (unnamed if len(schema or ()) == 1 else f"{unnamed}-{position}")
        if spec.get("type") == "tensor":
            inner = spec["tensor-spec"]
            found.append({"name": name, "datatype": DATATYPES.get(inner["dtype"], "BYTES"), "shape": inner["shape"]})
        else:
            found.append({"name": name, "datatype": DATATYPES.get(str(spec["type"]), "BYTES"), "shape": [-1]})
    return found
