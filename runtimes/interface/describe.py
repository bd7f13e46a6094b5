"""What an engine serves, told in v2's and OpenAI's words.

Owns the metadata documents and whether a request names the model that is here; leaves the facts to the engine's About.
Pure.
"""

from __future__ import annotations

import orjson

from runtimes.interface.engine import About, Api
from runtimes.interface.errors import RefusedError
from runtimes.interface.routes import Route


def document(about: About, route: Route) -> bytes:
    """The metadata that this route asks for; RefusedError with 404 where it names another model."""
    check_model(about, route)
    if route.api is Api.OPENAI:
        model = {"id": about.name, "object": "model", "created": 0, "owned_by": "knobless"}
        return orjson.dumps(model if route.model else {"object": "list", "data": [model]})
    if route.model is None:
        extensions = ["binary_tensor_data"]
        return orjson.dumps({"name": "knobless", "version": about.engine_version, "extensions": extensions})
    return orjson.dumps(
        {
            "name": about.name,
            "versions": [about.version],
            "platform": about.platform,
            "inputs": [dict(tensor) for tensor in about.inputs],
            "outputs": [dict(tensor) for tensor in about.outputs],
        }
    )


def check_model(about: About, route: Route) -> None:
    """RefusedError with 404 where the path names a model or a version that is not here."""
    if route.model is not None and route.model != about.name:
        raise RefusedError(404, f"there is no such model here; this endpoint serves `{about.name}`", "model")
    if route.version is not None and route.version != about.version:
        raise RefusedError(404, f"there is no such version here; this replica serves {about.version}", "version")
