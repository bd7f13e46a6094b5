"""Another application's error, said so that it names the field and repeats nothing of the request.

Owns the wording; leaves the shape to errors. Pure. One idea: what a client sent may be told to it by name and never by
value, since errors end up in logs that requests must not be in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from runtimes.interface.errors import MODEL_FAILED, Problem, RefusedError, refused

_SHORTEST_VALUE = 3  # a shorter one tells nobody anything
_MOST_CHARACTERS = 500
_OF_CODE = ("Traceback", 'File "', ".py")
_FIXED = "the engine refused this request"


def reworded(status: int, answer: bytes, request: bytes) -> RefusedError:
    """What to answer where an engine answered ``answer``, an error, to the body ``request``."""
    if status < 400:
        return RefusedError(500, "the engine answered with a redirect")
    if status in (503, 504):
        return RefusedError(status, "the engine can't answer now")
    if status >= 500:
        return RefusedError(500, MODEL_FAILED)
    return refused([_without_values(problem, request) for problem in _said(answer)], status)


def _said(answer: bytes) -> list[Problem]:
    """The problems in the usual shapes: OpenAI's, v2's, FastAPI's and ours."""
    try:
        document = orjson.loads(answer)
    except orjson.JSONDecodeError:
        return [Problem(_FIXED)]
    error = document.get("error", document) if isinstance(document, dict) else document
    if isinstance(error, str):
        return [Problem(error)]
    if not isinstance(error, dict):
        return [Problem(_FIXED)]
    if isinstance(details := error.get("detail"), list):
        return [_detail(detail) for detail in details if isinstance(detail, dict)] or [Problem(_FIXED)]
    message = error.get("message") or error.get("detail")
    field = error.get("param") or error.get("field")
    return [Problem(message if isinstance(message, str) else _FIXED, field if isinstance(field, str) else None)]


def _detail(detail: dict[str, Any]) -> Problem:
    """One of pydantic's: where and what; its `input` is what was sent, and stays here."""
    place = detail.get("loc")
    field = ".".join(str(part) for part in place if part != "body") if isinstance(place, list) else None
    return Problem(f"`{field}`: {detail.get('msg', 'not valid')}" if field else str(detail.get("msg", _FIXED)), field)


def _without_values(problem: Problem, request: bytes) -> Problem:
    message = problem.message
    if any(part in message for part in _OF_CODE):
        return Problem(_FIXED, problem.field)
    try:
        document = orjson.loads(request) if request else None
    except orjson.JSONDecodeError:
        return Problem(_FIXED, problem.field)  # what can't be read can't be searched for
    for value in sorted(set(_values(document)), key=len, reverse=True):
        message = message.replace(value, "...")
    return Problem(message[:_MOST_CHARACTERS], problem.field)


def _values(value: Any) -> Iterator[str]:
    """Every value of a document as text; names in it are not values."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from _values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner)
    elif value is not None and not isinstance(value, bool):
        text = value if isinstance(value, str) else repr(value)
        if len(text) >= _SHORTEST_VALUE:
            yield text
