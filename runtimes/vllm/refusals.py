"""vLLM's errors, said so that they name the field and repeat nothing of the request.

Owns the wording; leaves the shape to the interface. Pure. One idea: what a client sent may be told to it by name and
never by value, since errors end up in logs that requests must not be in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from runtimes.interface.errors import MODEL_FAILED, Problem, RefusedError, refused

_VALIDATION = re.compile(r"\d+ validation errors?:")
_ENTRY = re.compile(r"'loc': '(?P<field>[^']*)', 'msg': (?P<quote>['\"])(?P<message>.*?)(?<!\\)(?P=quote), ")
_NO_HANDLER = "Cannot find suitable handler"
_FOR_OPERATORS = re.compile(r" ?(?:To|You can) [^.]*environment variable[^.]*\.")
_SHORTEST_TEXT, _SHORTEST_NUMBER = 3, 4  # shorter ones tell nobody anything
_HIDDEN = "..."


def reworded(status: int, answer: bytes, request: bytes, name: str) -> RefusedError:
    """What to answer where vLLM answered ``answer`` with an error to ``request``; ``name`` is the endpoint's."""
    if status >= 500:
        return RefusedError(status if status == 503 else 500, MODEL_FAILED)
    message, field = _said(answer)
    if status == 404:
        return RefusedError(404, f"there is no such model here; this endpoint serves `{name}`", "model")
    if _NO_HANDLER in message:
        return RefusedError(400, "the body must have `messages`, `prompt` or `input`, as OpenAI's API has them")
    if _VALIDATION.match(message) and (problems := list(_problems(message))):
        return refused([_without_values(problem, request) for problem in problems], status)
    return refused([_without_values(Problem(message, field), request)], status)


def _said(answer: bytes) -> tuple[str, str | None]:
    try:
        error = orjson.loads(answer)["error"]
        return str(error["message"]), error.get("param")
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return "the engine refused this request", None


def _problems(message: str) -> Iterator[Problem]:
    """Each of pydantic's complaints as `field: what is wrong`; its `input` is left out."""
    seen = set()
    for entry in _ENTRY.finditer(message):
        field = entry["field"].removeprefix("body.")
        text = f"`{field}`: {entry['message']}"
        if text not in seen:
            seen.add(text)
            yield Problem(text, field)


def _without_values(problem: Problem, request: bytes) -> Problem:
    message = _FOR_OPERATORS.sub("", problem.message)
    try:
        document = orjson.loads(request)
    except orjson.JSONDecodeError:
        return Problem("the body is not valid JSON", None)
    for value in sorted(set(_values(document)), key=len, reverse=True):
        message = message.replace(value, _HIDDEN)
    return Problem(message, problem.field)


def _values(value: Any) -> Iterator[str]:
    """Every text and every larger number in a document, but no name in it."""
    if isinstance(value, str):
        if len(value) >= _SHORTEST_TEXT:
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _values(inner)
    elif not isinstance(value, bool) and len(text := str(value)) > _SHORTEST_NUMBER - 1 and value is not None:
        yield text
