"""Owns what is asked of the model registry (MLflow, over HTTP): one version, with what `knobless build` noted on it.

Leaves building and loading models to others. One idea: an answer is either a model that can be served or one
sentence that says what is there instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from runtimes.selection_card import Card, parse_card
from spec.model_reference import ModelReference

TAG_SHA256 = "knobless.sha256"
TAG_ENVIRONMENT = "knobless.environment"
TAG_CARD = "knobless.card"
_API = "/api/2.0/mlflow"
_NAMES_SHOWN = 10


class ModelRegistryError(Exception):
    """Why a model can't be served, in the words of the person who named it."""


class ModelMissingError(ModelRegistryError):
    """The registry answers, and has no such model."""


@dataclass(frozen=True)
class RegisteredModel:
    """One immutable model: the digest of its files, its card, and the tag of the image whose environment loads it,
    which is empty where the runtime that was chosen brings its own."""

    uri: str
    version: str
    sha256: str
    card: Card
    environment: str


class ModelRegistry:
    """`client` has the registry's address as its base URL."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def find(self, reference: ModelReference) -> RegisteredModel:
        """The model that `reference` names; a ModelRegistryError says why it can't be served."""
        tags = self._tags(reference)
        missing = [tag for tag in (TAG_SHA256, TAG_CARD) if not tags.get(tag)]
        if missing:
            raise ModelRegistryError(
                f"{reference} has no image yet (it lacks the tag {' and '.join(missing)}): run `knobless build`"
            )
        try:
            card = parse_card(tags[TAG_CARD])
        except ValueError:
            raise ModelRegistryError(f"{reference} was read by another version: run `knobless build`") from None
        return RegisteredModel(
            reference.uri, reference.version_text, tags[TAG_SHA256], card, tags.get(TAG_ENVIRONMENT, "")
        )

    def noted_sha256(self, reference: ModelReference) -> str | None:
        """The digest that `knobless build` noted on the model, if it did. ModelMissingError where there is no model.

        A model that was deleted and registered anew has the same name and number, and no note.
        """
        return self._tags(reference).get(TAG_SHA256)

    def _tags(self, reference: ModelReference) -> dict[str, str]:
        if reference.model_id is not None:
            found = self._get(f"/logged-models/{reference.model_id}", {})
            if found is None:
                raise ModelMissingError(f"{reference} is not in the model registry {self._address}")
            return _tags_of(found["model"]["info"])
        asked = {"name": str(reference.name), "version": str(reference.version)}
        found = self._get("/model-versions/get", asked)
        if found is None:
            raise ModelMissingError(self._instead(reference))
        version = found["model_version"]
        if version.get("status", "READY") != "READY":
            raise ModelRegistryError(f"{reference} is not ready in the model registry: {version['status']}")
        return _tags_of(version)

    def _instead(self, reference: ModelReference) -> str:
        """What the registry has where it lacks a version."""
        missing = f"{reference} is not in the model registry {self._address}"
        found = self._get("/model-versions/search", {"filter": f"name='{reference.name}'", "max_results": "200"})
        versions = sorted(int(row["version"]) for row in (found or {}).get("model_versions", ()))
        if versions:
            shown = ", ".join(map(str, versions[-_NAMES_SHOWN:]))
            return f"{missing}: versions of {reference.name!r} that exist: {shown}"
        models = self._get("/registered-models/search", {"max_results": str(_NAMES_SHOWN)})
        known = ", ".join(sorted(row["name"] for row in (models or {}).get("registered_models", ())))
        return f"{missing}: no model is called {reference.name!r} (models: {known or 'none'})"

    @property
    def _address(self) -> str:
        return str(self._client.base_url).rstrip("/")

    def _get(self, path: str, asked: Mapping[str, str]) -> dict[str, Any] | None:
        """The answer, or None where the registry knows no such thing."""
        try:
            answer = self._client.get(_API + path, params=dict(asked))
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ModelRegistryError(f"the model registry {self._address} does not answer: {reason}") from None
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        try:
            body = answer.json()
        except ValueError:
            body = None
        if answer.status_code != httpx.codes.OK or not isinstance(body, dict):
            said = body.get("message", "") if isinstance(body, dict) else ""
            raise ModelRegistryError(
                f"the model registry {self._address} answers {answer.status_code} to {path}: {said}".rstrip(": ")
            )
        return body


def _tags_of(described: Mapping[str, Any]) -> dict[str, str]:
    return {row["key"]: row.get("value", "") for row in described.get("tags", ())}
