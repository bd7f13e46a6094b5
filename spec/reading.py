"""Owns the step from a read document to a model: every schema problem, told in the words of the file.

Leaves the text to `yaml_text` and the rules to the models. One idea: pydantic finds what is wrong, this module says
it with place, field and allowed values; nobody sees a library's message that they can't act on.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from spec.yaml_text import Document, Path, shorten

Model = TypeVar("Model", bound=BaseModel)
CUSTOM: Final = "spec"
_MARKERS: Final = "<["  # tags of unions and pydantic's own parts of a location start with one of these
_ECHO: Final = 60
_MAPPING: Final = "a mapping of `field: value`"
_EXPECTED: Final = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "mapping_type": _MAPPING,
    "tuple_type": "a list",
}
_FAULT: Final = {
    "literal_error": "is not allowed here",
    "union_tag_not_found": "is not allowed here",
    "union_tag_invalid": "is not allowed here",
    "greater_than_equal": "is too small",
    "greater_than": "is too small",
    "less_than_equal": "is too large",
    "less_than": "is too large",
    "string_too_short": "is too short",
    "string_too_long": "is too long",
}


@dataclass(frozen=True)
class Allowed:
    """Says what a field allows, where its declaration doesn't show it."""

    text: str


class SpecModel(BaseModel):
    """Base of every model that a file declares: closed, frozen, and without conversions between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def refused(message: str, allowed: str | None = None, field: str | None = None) -> PydanticCustomError:
    """What a validator raises. `field` names a field below the validated value, where that is to blame."""
    return PydanticCustomError(CUSTOM, "{message}", {"message": message, "allowed": allowed, "field": field})


def read_model(model: type[Model], document: Document, added: Mapping[str, Any] | None = None) -> Model | None:
    """The document as a `model`, or None with the problems added to the document.

    `added` are fields that the file must not state, because its place states them.
    """
    if document.is_broken(()) or not isinstance(document.value, dict):
        return None
    stated: dict[str, Any] = document.value
    for name in added or {}:
        if name in stated:
            document.report((name,), "is set by where the file lies: remove it", key=True)
    try:
        value = model.model_validate(stated | dict(added or {}))
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            _report(model, document, detail, frozenset(added or ()))
        return None
    return None if document.problems else value


def _report(model: type[BaseModel], document: Document, detail: ErrorDetails, hidden: frozenset[str]) -> None:
    parts = detail["loc"]
    path: Path = tuple(part for part in parts if not (isinstance(part, str) and part[:1] in tuple(_MARKERS)))
    if document.is_broken(path):
        return
    kind, context = detail["type"], detail.get("ctx", {})
    at_key = kind == "extra_forbidden" or "[key]" in parts
    if kind == CUSTOM:
        below = (*path, *context["field"].split(".")) if context["field"] else path
        document.report(below, context["message"], context["allowed"], key=at_key)
    elif kind == "missing":
        document.report(path, "is missing", _allowed(model, path))
    elif kind == "extra_forbidden":
        document.report(path, *_unknown_field(model, path, hidden), key=True)
    else:
        document.report(path, _schema_message(detail), _allowed(model, path))


def _schema_message(detail: ErrorDetails) -> str:
    kind, stated = detail["type"], echo(detail["input"])
    if kind in _EXPECTED:
        return f"must be {_EXPECTED[kind]}, not {stated}"
    return f"{stated} {_FAULT.get(kind, 'is wrong here: ' + detail['msg'])}"


def _unknown_field(model: type[BaseModel], path: Path, hidden: frozenset[str]) -> tuple[str, str]:
    owner = _model_at(model, path[:-1])
    known = [name for name in owner.model_fields if name not in hidden] if owner else []
    near = difflib.get_close_matches(str(path[-1]).lower(), known, n=1, cutoff=0.7)
    hint = f": did you mean {near[0]}?" if near else ""
    return f"unknown field{hint}", ", ".join(known)


def _allowed(model: type[BaseModel], path: Path) -> str | None:
    """What may stand at `path`, from the field's own declaration."""
    owner = _model_at(model, path[:-1])
    info = owner.model_fields.get(str(path[-1])) if owner and path else None
    if info is None:
        return None
    told = next((rule.text for rule in info.metadata if isinstance(rule, Allowed)), None)
    return told or _choices(info.annotation) or _range(info)


def _choices(annotation: Any) -> str | None:
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(map(str, typing.get_args(annotation)))
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        return next((found for each in typing.get_args(annotation) if (found := _choices(each))), None)
    return None


def _range(info: FieldInfo) -> str | None:
    low: Any = None
    high: Any = None
    above = ""
    for rule in info.metadata:
        match rule:
            case Ge():
                low = rule.ge
            case Gt():
                low, above = rule.gt, "above "
            case Le():
                high = rule.le
    return None if low is None else f"{above}{low} to {high}" if high is not None else f"{above or 'at least '}{low}"


def _model_at(model: type[BaseModel], path: Path) -> type[BaseModel] | None:
    """The model that describes the mapping at `path`."""
    for part in path:
        info = model.model_fields.get(str(part))
        if info is None:
            continue  # the key of a mapping of models, whose model was found one step before
        inner = _inner_model(info.annotation)
        if inner is None:
            return None
        model = inner
    return model


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if isinstance(annotation, types.GenericAlias) or typing.get_args(annotation):
        return next((found for inner in typing.get_args(annotation) if (found := _inner_model(inner))), None)
    return None


def echo(value: Any) -> str:
    """A value of a file in a message: short, and text in quotes."""
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return shorten(repr(value), _ECHO)
