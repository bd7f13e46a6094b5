"""Owns what the program asks of the world outside Git: which model is meant, and which image by digest.

Leaves the two protocols to `model_registry` and `images`. One idea: the program takes the answers as an argument, so
it also runs where no registry can be reached (a plan on a fork, a recording).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from spec.image_reference import ImageReference
from spec.model_reference import ModelReference
from stacks import images, registry_login
from stacks.cluster import ClusterFacts
from stacks.images import Image
from stacks.model_registry import ModelRegistry, RegisteredModel

TIMEOUT_S = 10.0


class Lookup(Protocol):
    def model(self, reference: ModelReference) -> RegisteredModel:
        """The registered model; a ModelRegistryError says why it can't be served."""

    def digest(self, image: Image) -> str:
        """`<registry>/<repository>@sha256:...`; an ImageError says why there is none."""

    def own(self, reference: ImageReference) -> str:
        """As `digest`, of an image of the user's own, wherever it lies; one named by digest is not looked for."""


MakeLookup = Callable[[ClusterFacts, bool], Lookup]


@dataclass(frozen=True)
class HttpLookup:
    """Asks the cluster's registries. The embedded ones are on an address of this machine's own, so no proxy stands
    before them, and they ask for no login."""

    cluster: ClusterFacts
    embedded: bool

    def model(self, reference: ModelReference) -> RegisteredModel:
        with self.model_registry() as client:
            return ModelRegistry(client).find(reference)

    def model_registry(self) -> httpx.Client:
        return self._client(base_url=self.cluster.model_registry)

    def digest(self, image: Image) -> str:
        with self._registry() as client:
            return images.resolve(client, image, self._scheme)

    def own(self, reference: ImageReference) -> str:
        if reference.digest is not None:
            return reference.at(reference.digest)
        image = images.reference_image(reference)
        if reference.registry == self.cluster.registry.partition("/")[0]:
            with self._registry() as client:
                return images.resolve(client, image, self._scheme, "push it there")
        login = registry_login.find(reference.registry, os.environ)
        with self._client(auth=registry_login.Challenge(login, plain_http=False)) as client:
            return images.resolve(client, image, "https", "push it there, or correct its name")

    def find(self, image: Image) -> str | None:
        """As `digest`, or None where the registry has no such image."""
        with self._registry() as client:
            return images.find(client, image, self._scheme)

    @property
    def _scheme(self) -> str:
        return "http" if self.cluster.registry_plain_http else "https"

    def _registry(self) -> httpx.Client:
        if self.embedded:
            return self._client()
        login = registry_login.find(self.cluster.registry, os.environ)
        return self._client(auth=registry_login.Challenge(login, plain_http=self.cluster.registry_plain_http))

    def _client(self, **options: Any) -> httpx.Client:
        """Trusts what this machine trusts, as buildah and curl do."""
        trust = ssl.create_default_context()
        return httpx.Client(timeout=TIMEOUT_S, trust_env=not self.embedded, verify=trust, **options)
