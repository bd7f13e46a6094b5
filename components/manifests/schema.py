"""Owns the few words in which the endpoint object's OpenAPI schema is written.

Leaves to `crd` what the object holds. One idea: every string and list has a bound, because the API server prices
each CEL rule by the largest value that the schema lets in, and refuses a rule that could cost too much.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def text(*, longest: int = 253, **more: Any) -> Schema:
    return {"type": "string", "maxLength": longest, **more}


def label(*, longest: int = 63) -> Schema:
    return text(longest=longest, minLength=1, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")


def moment() -> Schema:
    return {"type": "string", "format": "date-time"}


def whole(low: int, high: int | None = None) -> Schema:
    bound: Schema = {} if high is None else {"maximum": high}
    return {"type": "integer", "format": "int64", "minimum": low, **bound}


def number(low: float | None = None) -> Schema:
    return {"type": "number"} | ({} if low is None else {"minimum": low})


def flag() -> Schema:
    return {"type": "boolean"}


def record(required: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    """An object with these fields and no other; `required` names those that must be there."""
    return {"type": "object", "properties": properties} | ({"required": list(required)} if required else {})


def by_name(value: Schema) -> Schema:
    """A map from names, of revisions for example, to `value`."""
    return {"type": "object", "additionalProperties": value}


def rows(item: Schema, *, most: int, key: str | None = None) -> Schema:
    """A list; with `key` several writers may each own their own rows, without it one writer owns it whole."""
    kind: Schema = (
        {"x-kubernetes-list-type": "atomic"}
        if key is None
        else {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    )
    return {"type": "array", "maxItems": most, "items": item, **kind}


def words(item: Schema, *, most: int, least: int = 0) -> Schema:
    """A set of strings."""
    return {
        "type": "array",
        "minItems": least,
        "maxItems": most,
        "items": item,
        "x-kubernetes-list-type": "set",
    }


def anything() -> Schema:
    """An object whose own schema is somebody else's: stored whole, unknown fields kept."""
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def rule(expression: str, message: str, field: str | None = None) -> Schema:
    return {"rule": expression, "message": message} | ({} if field is None else {"fieldPath": field})
