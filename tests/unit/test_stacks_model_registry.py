"""What the model registry says becomes a model that can be served, or one sentence that says what is there instead."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from runtimes.selection_card import Card
from spec.model_reference import ModelReference, parse_model_reference
from stacks.model_registry import ModelMissingError, ModelRegistry, ModelRegistryError, RegisteredModel

SHA256 = "ab" * 32
CARD = Card("sklearn", pyfunc=True, python="3.11.9", size_bytes=12_345)
TAGS = [
    {"key": "knobless.sha256", "value": SHA256},
    {"key": "knobless.card", "value": CARD.text},
    {"key": "knobless.environment", "value": "e1"},
]
MISSING = httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "not found"})
WINE = parse_model_reference("models:/wine/1")
LOGGED = parse_model_reference("models:/m-" + "0" * 32)
Answers = dict[str, httpx.Response | Exception]


def registry(answers: Answers, seen: list[httpx.Request] | None = None) -> ModelRegistry:
    def handle(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        answer = answers[request.url.path.removeprefix("/api/2.0/mlflow")]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ModelRegistry(httpx.Client(base_url="http://mlflow:5500", transport=httpx.MockTransport(handle)))


def version(**changed: Any) -> httpx.Response:
    return httpx.Response(200, json={"model_version": {"name": "wine", "version": "1", "tags": TAGS} | changed})


def refusal(answers: Answers, reference: ModelReference = WINE) -> str:
    with pytest.raises(ModelRegistryError) as caught:
        registry(answers).find(reference)
    return str(caught.value)


def test_a_registered_version_is_found_by_name_and_number() -> None:
    seen: list[httpx.Request] = []
    found = registry({"/model-versions/get": version(status="READY")}, seen).find(WINE)
    assert found == RegisteredModel("models:/wine/1", "1", SHA256, CARD, "e1")
    assert dict(seen[0].url.params) == {"name": "wine", "version": "1"}


def test_a_name_with_spaces_and_other_letters_is_asked_for_as_it_is() -> None:
    seen: list[httpx.Request] = []
    registry({"/model-versions/get": version()}, seen).find(parse_model_reference("models:/Größe & Co/3"))
    assert dict(seen[0].url.params) == {"name": "Größe & Co", "version": "3"}


def test_a_logged_model_is_found_by_its_id() -> None:
    answer = httpx.Response(200, json={"model": {"info": {"model_id": LOGGED.model_id, "tags": TAGS}}})
    found = registry({f"/logged-models/{LOGGED.model_id}": answer}).find(LOGGED)
    assert (found.version, found.sha256) == (LOGGED.model_id, SHA256)


@pytest.mark.parametrize(
    ("tags", "named"),
    [
        ([], "knobless.sha256 and knobless.card"),
        (TAGS[:1], "knobless.card"),
        ([TAGS[1], {"key": "knobless.sha256", "value": ""}], "knobless.sha256"),
    ],
)
def test_a_model_that_was_not_built_names_the_command(tags: list[dict[str, str]], named: str) -> None:
    said = refusal({"/model-versions/get": version(tags=tags)})
    assert said == f"models:/wine/1 has no image yet (it lacks the tag {named}): run `knobless build`"


def test_a_model_whose_runtime_brings_its_environment_has_none_of_its_own() -> None:
    assert registry({"/model-versions/get": version(tags=TAGS[:2])}).find(WINE).environment == ""


def test_a_card_of_another_version_names_the_command() -> None:
    tags = [TAGS[0], {"key": "knobless.card", "value": '{"flavour":"sklearn"}'}]
    assert refusal({"/model-versions/get": version(tags=tags)}).endswith("another version: run `knobless build`")


def test_an_unknown_version_names_those_that_exist() -> None:
    rows = httpx.Response(200, json={"model_versions": [{"version": "10"}, {"version": "2"}]})
    said = refusal({"/model-versions/get": MISSING, "/model-versions/search": rows})
    assert said.endswith("versions of 'wine' that exist: 2, 10")


def test_an_unknown_name_names_the_models_that_exist() -> None:
    models = httpx.Response(200, json={"registered_models": [{"name": "iris"}, {"name": "breast-cancer"}]})
    nothing = httpx.Response(200, json={})
    said = refusal(
        {"/model-versions/get": MISSING, "/model-versions/search": nothing, "/registered-models/search": models}
    )
    assert said.endswith("no model is called 'wine' (models: breast-cancer, iris)")


def test_an_empty_registry_says_so() -> None:
    nothing = httpx.Response(200, json={})
    said = refusal(
        {"/model-versions/get": MISSING, "/model-versions/search": nothing, "/registered-models/search": nothing}
    )
    assert said.endswith("no model is called 'wine' (models: none)")


def test_an_unknown_logged_model_is_missing() -> None:
    said = refusal({f"/logged-models/{LOGGED.model_id}": MISSING}, LOGGED)
    assert said == f"{LOGGED} is not in the model registry http://mlflow:5500"


def test_a_version_that_is_still_registered_is_not_served() -> None:
    said = refusal({"/model-versions/get": version(status="PENDING_REGISTRATION")})
    assert said == "models:/wine/1 is not ready in the model registry: PENDING_REGISTRATION"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.ConnectError("refused"), "the model registry http://mlflow:5500 does not answer: refused"),
        (httpx.ReadTimeout(""), "the model registry http://mlflow:5500 does not answer: ReadTimeout"),
        (
            httpx.Response(403, json={"message": "no"}),
            "the model registry http://mlflow:5500 answers 403 to /model-versions/get: no",
        ),
        (
            httpx.Response(200, text="<html>"),
            "the model registry http://mlflow:5500 answers 200 to /model-versions/get",
        ),
        (httpx.Response(502, text="bad"), "the model registry http://mlflow:5500 answers 502 to /model-versions/get"),
    ],
)
def test_a_registry_that_cannot_answer_is_named(answer: httpx.Response | Exception, said: str) -> None:
    assert refusal({"/model-versions/get": answer}) == said


def test_a_model_that_was_never_built_has_no_noted_digest() -> None:
    assert registry({"/model-versions/get": version(tags=[])}).noted_sha256(WINE) is None
    assert registry({"/model-versions/get": version()}).noted_sha256(WINE) == SHA256


def test_a_model_that_is_not_there_is_told_with_what_is() -> None:
    rows = httpx.Response(200, json={"model_versions": [{"version": "2"}]})
    asked = registry({"/model-versions/get": MISSING, "/model-versions/search": rows})
    with pytest.raises(ModelMissingError, match="versions of 'wine' that exist: 2"):
        asked.noted_sha256(WINE)


def test_a_registry_that_does_not_answer_is_not_taken_for_one_without_the_model() -> None:
    with pytest.raises(ModelRegistryError, match="does not answer") as caught:
        registry({"/model-versions/get": httpx.ConnectError("refused")}).noted_sha256(WINE)
    assert not isinstance(caught.value, ModelMissingError)
