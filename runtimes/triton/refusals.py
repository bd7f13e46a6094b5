"""Triton's errors, said so that they name the tensor and repeat nothing of what is in it.

Owns the wording; leaves the shape to the interface. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from runtimes.interface.errors import MODEL_FAILED, RefusedError

_ID = re.compile(r"^\[request id: [^\]]*\] ")
_FAILED = "the model failed on this request"  # as python_model.py says it
_UNKNOWN = re.compile(
    r"Request for unknown model: '[^']*' (?:has no available versions|version .* is not found|is not found)"
)
_HIDDEN = "..."
_SHORTEST_VALUE = 3


def reworded(status: int, answer: bytes, request: bytes, name: str) -> RefusedError:
    """What to answer where Triton answered ``answer`` with an error to ``request``."""
    try:
        said = str(orjson.loads(answer)["error"])
    except (orjson.JSONDecodeError, LookupError, TypeError):
        said = ""
    if status >= 500 or _FAILED in said:
        return RefusedError(503 if status == 503 else 500, MODEL_FAILED)
    if status == 404 or _UNKNOWN.match(said):
        return RefusedError(404, f"there is no such model or version here; this endpoint serves `{name}`", "model")
    message = _ID.sub("", said) or "the engine refused this request"
    for value in sorted(set(_data(request)), key=len, reverse=True):
        message = message.replace(value, _HIDDEN)
    return RefusedError(status, message)


def _data(request: bytes) -> Iterator[str]:
    """The texts inside the tensors of a request; their names, types and shapes may be told."""
    try:
        document = orjson.loads(request)
    except orjson.JSONDecodeError:
        return
    tensors = document.get("inputs") if isinstance(document, dict) else None
    for tensor in tensors if isinstance(tensors, list) else ():
        if isinstance(tensor, dict):
            yield from _texts(tensor.get("data"))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _SHORTEST_VALUE:
            yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
