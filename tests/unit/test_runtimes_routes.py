"""Which paths exist, and what they are."""

from __future__ import annotations

import json

import pytest

from runtimes.interface import describe, stateless
from runtimes.interface.engine import About, Api
from runtimes.interface.errors import RefusedError
from runtimes.interface.routes import OPENAI_PATHS, Does, api_of, exists, find

NONE: frozenset[str] = frozenset()
ABOUT = About("wine", "7", "mlflow_sklearn", "3.17.2", frozenset({"/v2", "/v1/responses"}))


@pytest.mark.parametrize(
    ("path", "does", "api", "model", "version"),
    [
        ("/invocations", Does.PREDICT, Api.MLFLOW, None, None),
        ("/ping", Does.READY, Api.MLFLOW, None, None),
        ("/health", Does.READY, Api.MLFLOW, None, None),
        ("/v2", Does.DESCRIBE, Api.V2, None, None),
        ("/v2/health/live", Does.LIVE, Api.V2, None, None),
        ("/v2/health/ready", Does.READY, Api.V2, None, None),
        ("/v2/models/wine", Does.DESCRIBE, Api.V2, "wine", None),
        ("/v2/models/wine/ready", Does.READY, Api.V2, "wine", None),
        ("/v2/models/wine/infer", Does.PREDICT, Api.V2, "wine", None),
        ("/v2/models/wine/versions/7", Does.DESCRIBE, Api.V2, "wine", "7"),
        ("/v2/models/wine/versions/7/ready", Does.READY, Api.V2, "wine", "7"),
        ("/v2/models/wine/versions/7/infer", Does.PREDICT, Api.V2, "wine", "7"),
        ("/v1/chat/completions", Does.PREDICT, Api.OPENAI, None, None),
        ("/v1/models", Does.DESCRIBE, Api.OPENAI, None, None),
        ("/v1/models/wine", Does.DESCRIBE, Api.OPENAI, "wine", None),
    ],
)
def test_a_path_does_what_its_protocol_says(
    path: str, does: Does, api: Api, model: str | None, version: str | None
) -> None:
    route = find(path, NONE)
    assert route is not None
    assert (route.does, route.api, route.model, route.version) == (does, api, model, version)
    assert api_of(path) is api


@pytest.mark.case("runtimes-I4")
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/invocations/",
        "/docs",
        "/tokenize",
        "/load",
        "/scale_elastic_ep",
        "/inference/v1/abort_requests",
        "/v1",
        "/v1/models/",
        "/v1/messages",
        "/v2/",
        "/v2/repository/index",
        "/v2/models/",
        "/v2/models//infer",
        "/v2/models/wine/",
        "/v2/models/../infer",
        "/v2/models/wine/load",
        "/v2/models/wine/versions",
        "/v2/models/wine/versions/",
        "/v2/models/wine/infer/more",
    ],
)
def test_no_other_path_exists(path: str) -> None:
    assert find(path, frozenset({"/invocations", "/v2", *OPENAI_PATHS})) is None


def test_an_engine_may_have_paths_of_no_protocol() -> None:
    paths = frozenset({"/v1/models/half:predict"})
    route = find("/v1/models/half:predict", paths)
    assert route is not None
    assert (route.does, route.methods, exists(route, paths)) == (Does.PREDICT, ("GET", "POST"), True)


@pytest.mark.parametrize(
    ("path", "paths", "there"),
    [
        ("/ping", NONE, True),
        ("/invocations", {"/v2"}, False),
        ("/v2/models/wine/infer", {"/v2"}, True),
        ("/v2/health/live", {"/invocations"}, False),
        ("/v1/embeddings", {"/v1/chat/completions"}, False),
        ("/v1/models", {"/v1/chat/completions"}, True),
        ("/v1/models", {"/invocations"}, False),
    ],
)
def test_a_route_exists_where_the_engine_declares_it(path: str, paths: set[str], there: bool) -> None:
    route = find(path, NONE)
    assert route is not None
    assert exists(route, frozenset(paths)) is there


def described(path: str) -> object:
    route = find(path, NONE)
    assert route is not None
    return json.loads(describe.document(ABOUT, route))


def test_metadata_name_the_model_and_its_version() -> None:
    assert described("/v2") == {"name": "knobless", "version": "3.17.2", "extensions": ["binary_tensor_data"]}
    model = {"name": "wine", "versions": ["7"], "platform": "mlflow_sklearn", "inputs": [], "outputs": []}
    assert described("/v2/models/wine") == model
    card = {"id": "wine", "object": "model", "created": 0, "owned_by": "knobless"}
    assert described("/v1/models") == {"object": "list", "data": [card]}
    assert described("/v1/models/wine") == card


@pytest.mark.case("runtimes-B10", "runtimes-I5")
@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/v2/models/beer", "model"),
        ("/v2/models/beer/infer", "model"),
        ("/v2/models/wine/versions/6/infer", "version"),
        ("/v1/models/beer", "model"),
    ],
)
def test_another_model_or_version_is_404(path: str, field: str) -> None:
    route = find(path, NONE)
    assert route is not None
    with pytest.raises(RefusedError) as caught:
        describe.check_model(ABOUT, route)
    assert (caught.value.status, caught.value.field) == (404, field)


@pytest.mark.parametrize(
    "body", [b'{"input": "x"}', b'{"previous_response_id": null}', b'["background"]', b'{"background', b""]
)
def test_a_response_that_stands_alone_is_taken(body: bytes) -> None:
    stateless.check(body)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"previous_response_id": "resp_1"}', "previous_response_id"),
        (b'{"conversation": {"id": "c"}}', "conversation"),
        (b'{"background": true}', "background"),
    ],
)
def test_a_response_that_needs_an_earlier_one_is_refused_by_its_field(body: bytes, field: str) -> None:
    with pytest.raises(RefusedError) as caught:
        stateless.check(body)
    assert (caught.value.status, caught.value.field) == (400, field)
