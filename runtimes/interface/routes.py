"""Which paths there are, what each does and which protocol it speaks.

Owns the table; leaves doing to app and the declared subset to the engine. Pure. One idea: what stands here exists, and
everything else is a 404, so an engine's administrative routes can't be reached through the interface.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from runtimes.interface.engine import Api


class Does(Enum):
    """What a route does."""

    PREDICT = "predict"
    LIVE = "live"
    READY = "ready"
    VERSION = "version"
    METRICS = "metrics"
    DESCRIBE = "describe"  # metadata of v2, OpenAI's list of models


@dataclass(frozen=True, slots=True)
class Route:
    """One path; ``declared`` is what an engine's About must name for it to exist, empty where it always does."""

    does: Does
    methods: tuple[str, ...]
    api: Api
    declared: str = ""
    model: str | None = None
    version: str | None = None


_GET = ("GET", "HEAD")
_POST = ("POST",)
OPENAI_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
_TABLE = {
    "/invocations": Route(Does.PREDICT, _POST, Api.MLFLOW, "/invocations"),
    "/ping": Route(Does.READY, _GET, Api.MLFLOW),
    "/health": Route(Does.READY, _GET, Api.MLFLOW),
    "/version": Route(Does.VERSION, _GET, Api.MLFLOW),
    "/live": Route(Does.LIVE, _GET, Api.MLFLOW),
    "/metrics": Route(Does.METRICS, _GET, Api.MLFLOW),
    "/v2": Route(Does.DESCRIBE, _GET, Api.V2, "/v2"),
    "/v2/health/live": Route(Does.LIVE, _GET, Api.V2, "/v2"),
    "/v2/health/ready": Route(Does.READY, _GET, Api.V2, "/v2"),
    "/v1/models": Route(Does.DESCRIBE, _GET, Api.OPENAI, "/v1"),
    **{path: Route(Does.PREDICT, _POST, Api.OPENAI, path) for path in OPENAI_PATHS},
}
_NO_NAMES = ("", ".", "..")  # the last two would be other paths for whoever the request is passed on to
_OF_A_MODEL = {
    "": (Does.DESCRIBE, _GET),
    "ready": (Does.READY, _GET),
    "infer": (Does.PREDICT, _POST),
}


def find(path: str, paths: frozenset[str]) -> Route | None:
    """The route of a path, or None; ``paths`` are the engine's, and may have some that are in no protocol."""
    if (route := _TABLE.get(path)) is not None:
        return route
    if path in paths:
        return Route(Does.PREDICT, ("GET", "POST"), Api.MLFLOW, path)
    return _find_a_model_s(path)


def exists(route: Route, paths: frozenset[str]) -> bool:
    """Whether an engine that answers these paths has this route; /v1/models goes with any of OpenAI's."""
    if route.declared == "/v1":
        return any(path.startswith("/v1/") for path in paths)
    return not route.declared or route.declared in paths


def api_of(path: str) -> Api:
    """The protocol whose shape an error on this path has, whether the path exists or not."""
    if path.startswith("/v1/"):
        return Api.OPENAI
    return Api.V2 if path == "/v2" or path.startswith("/v2/") else Api.MLFLOW


@lru_cache(maxsize=256)
def _find_a_model_s(path: str) -> Route | None:
    if path.startswith("/v1/models/"):
        name = path.removeprefix("/v1/models/")
        return Route(Does.DESCRIBE, _GET, Api.OPENAI, "/v1", model=name) if name else None
    if not path.startswith("/v2/models/"):
        return None
    model, *rest = path.removeprefix("/v2/models/").split("/")
    version = None
    if rest and rest[0] == "versions":
        if len(rest) < 2 or not rest[1]:
            return None
        version, rest = rest[1], rest[2:]
    found = _OF_A_MODEL.get(rest[0] if rest else "") if len(rest) <= 1 and rest != [""] else None
    return Route(*found, Api.V2, "/v2", model, version) if found and model not in _NO_NAMES else None
