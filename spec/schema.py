"""Owns the JSON schemas of the two files, for editors.

Leaves judging a file to the loaders, which know more rules. One idea: an editor's schema is drawn from the models.
"""

from __future__ import annotations

from typing import Any

from spec.endpoint import EndpointSpec
from spec.platform import PlatformSpec

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def endpoint_schema() -> dict[str, Any]:
    """Schema of an endpoint file. The team is not in the file: its folder names it."""
    schema = EndpointSpec.model_json_schema()
    del schema["properties"]["team"]
    schema["required"].remove("team")
    return {"$schema": _DIALECT, **_without_null(schema), "title": "An endpoint of Knobless"}


def platform_schema() -> dict[str, Any]:
    """Schema of an environment's platform.yaml."""
    schema = _without_null(PlatformSpec.model_json_schema())
    return {"$schema": _DIALECT, **schema, "title": "An environment of Knobless"}


def _without_null(schema: Any) -> Any:
    """A file never says null, and a mapping's default is told by its fields."""
    if isinstance(schema, list):
        return [_without_null(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {k: _without_null(v) for k, v in schema.items() if k != "default" or isinstance(v, str | int | float)}
    choices = [choice for choice in kept.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del kept["anyOf"]
        kept |= choices[0]
    return kept
