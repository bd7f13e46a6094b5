"""Owns the questions to an image registry's HTTP API. Plain HTTP, no credentials: the instance's own registry.

Leaves pushing to `images`.
"""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import Final

TIMEOUT_S: Final = 10.0
MANIFEST_TYPES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.oci.image.index.v1+json",
)


@dataclass(frozen=True)
class Reference:
    """`<host:port>/<repository>:<tag>` or `<host:port>/<repository>@sha256:<digest>`."""

    registry: str
    repository: str
    tag: str

    @property
    def is_digest(self) -> bool:
        return self.tag.startswith("sha256:")

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}{'@' if self.is_digest else ':'}{self.tag}"


def parse(text: str) -> Reference:
    """A whole reference, its registry named; ValueError otherwise."""
    registry, slash, rest = text.partition("/")
    repository, at, digest = rest.partition("@")
    if not at:
        repository, _, tag = rest.rpartition(":")
    if not slash or not repository or not (digest if at else tag):
        raise ValueError(f"{text!r} is not <registry>/<repository>:<tag> or <registry>/<repository>@<digest>")
    return Reference(registry, repository, digest if at else tag)


def find(reference: Reference) -> str | None:
    """The digest of the manifest, or None where the registry has none. OSError where it does not answer."""
    connection = http.client.HTTPConnection(reference.registry, timeout=TIMEOUT_S)
    try:
        path = f"/v2/{reference.repository}/manifests/{reference.tag}"
        connection.request("HEAD", path, headers={"Accept": ", ".join(MANIFEST_TYPES)})
        response = connection.getresponse()
        response.read()
    except http.client.HTTPException as error:
        raise OSError(f"registry {reference.registry}: {error!r}") from error
    finally:
        connection.close()
    if response.status == http.HTTPStatus.OK:
        return response.headers["Docker-Content-Digest"]
    if response.status == http.HTTPStatus.NOT_FOUND:
        return None
    raise OSError(f"registry {reference.registry} answered {response.status} for {reference}")


def resolve(text: str) -> str:
    """The same image by digest: `<registry>/<repository>@sha256:...`. LookupError where there is none."""
    reference = parse(text)
    digest = find(reference)
    if digest is None:
        raise LookupError(f"the registry has no image {text}")
    return str(Reference(reference.registry, reference.repository, digest))
