"""Owns what the program asks of the world outside Git: which model is meant, and which image by digest.

Leaves the two protocols to `model_registry` and `images`. One idea: the program takes the answers as an argument, so
it also runs where no registry can be reached (a plan on a fork, a recording).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import httpx

from spec.model_reference import ModelReference
from stacks import images
from stacks.cluster import ClusterFacts
from stacks.images import Image
from stacks.model_registry import ModelRegistry, RegisteredModel

TIMEOUT_S = 10.0


class Lookup(Protocol):
    def model(self, reference: ModelReference) -> RegisteredModel:
        """The registered model; a ModelRegistryError says why it can't be served."""

    def digest(self, image: Image) -> str:
        """`<registry>/<repository>@sha256:...`; an ImageError says why there is none."""


MakeLookup = Callable[[ClusterFacts, bool], Lookup]


@dataclass(frozen=True)
class HttpLookup:
    """Asks the cluster's registries. The embedded ones speak plain HTTP on an address of this machine's own, so no
    proxy stands before them."""

    cluster: ClusterFacts
    embedded: bool

    def model(self, reference: ModelReference) -> RegisteredModel:
        with self._client(self.cluster.model_registry) as client:
            return ModelRegistry(client).find(reference)

    def digest(self, image: Image) -> str:
        with self._client() as client:
            return images.resolve(client, image, "http" if self.embedded else "https")

    def _client(self, base_url: str = "") -> httpx.Client:
        return httpx.Client(base_url=base_url, timeout=TIMEOUT_S, trust_env=not self.embedded)
