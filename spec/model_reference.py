"""Owns which model a file may name: one version of a registered model, or one logged model.

Leaves finding it to the registry's clients. One idea: Git says exactly what serves, so a reference that can mean
another model tomorrow (an alias, a stage, the latest) is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

ALLOWED: Final = "models:/<name>/<version>, models:/m-<32 hex digits>"
_PREFIX: Final = "models:/"
_NAME = re.compile(r"""[^\s/:@%?#'"\\\x00-\x1f](?:[^/:@%?#'"\\\x00-\x1f]{0,254}[^\s/:@%?#'"\\\x00-\x1f])?""")
_VERSION = re.compile(r"[1-9][0-9]{0,9}")
_LOGGED_MODEL = re.compile(r"m-[0-9a-f]{32}")
_STAGES: Final = frozenset({"none", "staging", "production", "archived"})


@dataclass(frozen=True)
class ModelReference:
    """One immutable model; `name` and `version` are None for a logged model, `model_id` for a registered one."""

    uri: str
    name: str | None = None
    version: int | None = None
    model_id: str | None = None

    def __str__(self) -> str:
        return self.uri

    @property
    def version_text(self) -> str:
        """What a person calls this version: `7`, or the id of a logged model."""
        return str(self.version) if self.model_id is None else self.model_id


def parse_model_reference(text: str) -> ModelReference:
    """Parse a reference; a ValueError says why it is none and what to write."""
    if not text.startswith(_PREFIX) or text.startswith(_PREFIX + "/"):
        raise ValueError(_foreign(text))
    name, slash, version = text.removeprefix(_PREFIX).partition("/")
    if _LOGGED_MODEL.fullmatch(name) and not slash:
        return ModelReference(text, model_id=name)
    if "@" in text:
        raise ValueError(f"{text!r} is an alias, which may mean another version tomorrow: write the version")
    if not slash:
        raise ValueError(f"{text!r} names no version: write models:/{name or '<name>'}/<version>")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a registered model")
    if not _VERSION.fullmatch(version):
        raise ValueError(_no_version(text, version))
    return ModelReference(text, name=name, version=int(version))


def _no_version(text: str, version: str) -> str:
    if version.lower() == "latest":
        return f"{text!r} may mean another version tomorrow: write the version"
    if version.lower() in _STAGES:
        return f"{text!r} is a stage, which may mean another version tomorrow: write the version"
    return f"{version!r} is no version: versions are whole numbers from 1"


def _foreign(text: str) -> str:
    if text.startswith("models://"):
        return f"{text!r} names a server: the environment's model registry is set in platform.yaml"
    if text.startswith("runs:/"):
        return f"{text!r} is a file of a run, which may change: register the model and write its version"
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.\-]*):", text)
    if scheme:
        return f"{text!r} is not in the model registry ({scheme[1]}: is another scheme): register the model"
    return f"{text!r} is a path: register the model and write its version"
