"""Owns which container image a file may name: one with its registry, by digest or by a tag that says a version.

Leaves finding its digest to the registry's client. One idea: a pod runs what was reviewed, so a tag is only a way to
write a digest, and one that means something else every week is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

ALLOWED: Final = "<registry>/<repository>@sha256:<64 hex digits>, <registry>/<repository>:<tag>"
DOCKER_HUB: Final = "docker.io"
_HOST = re.compile(r"(?:localhost|[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(?::[0-9]{1,5})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_SHORT: Final = 12  # digits of a digest that a person compares
_VERSION_MAX: Final = 64


@dataclass(frozen=True)
class ImageReference:
    """One image; `tag` is None where only a digest was written, `digest` where only a tag was."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.registry}/{self.repository}{tag}" + (f"@{self.digest}" if self.digest else "")

    @property
    def version_text(self) -> str:
        """What a person calls this version: the tag, or the digest's first digits."""
        if self.tag is not None and len(self.tag) <= _VERSION_MAX:
            return self.tag
        return (self.digest or self.tag or "").removeprefix("sha256:")[:_SHORT]

    def at(self, digest: str) -> str:
        """The image by its content alone; `digest` is what the tag was found to mean."""
        return f"{self.registry}/{self.repository}@{self.digest or digest}"


def parse_image_reference(text: str) -> ImageReference:
    """Parse a reference; a ValueError says why it is none and what to write."""
    if "://" in text:
        raise ValueError(f"{text!r} is an address: write the image without {text.partition('://')[0]}://")
    named, at, digest = text.partition("@")
    host, slash, path = named.partition("/")
    if not slash or not (host == "localhost" or "." in host or ":" in host):
        full = f"{DOCKER_HUB}/{named if slash else f'library/{named}'}"
        raise ValueError(f"{text!r} names no registry: write {full}{at}{digest} if Docker Hub is meant")
    repository, colon, tag = path.partition(":")
    if not (_HOST.fullmatch(host) and _REPOSITORY.fullmatch(repository) and len(text) <= 512):
        raise ValueError(f"{text!r} is no name of an image")
    if at and not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no digest: sha256: and 64 hex digits")
    if colon and not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} is no tag")
    if not at and (not colon or tag == "latest"):
        raise ValueError(f"{text!r} may mean another image tomorrow: write a version's tag, or the digest")
    return ImageReference(host, repository, tag or None, digest or None)
