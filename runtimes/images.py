"""From a model's folder to the image that can run it.

Owns which environment a model asks for and its digest. Leaves the replica's size to selection, and building and
pushing to whoever has an engine for it. Pure but for ``read_files``, and of the standard library alone, so that it
reads the few YAML scalars it needs by line. One idea: two models with the same requirements share one image.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

PYTHON = "3.11"  # of Debian bookworm, the image's base
CONTAINERFILE = "images/mlflow/Containerfile"
CONTEXT_REQUIREMENTS = "model-requirements.txt"
_MLFLOW = re.compile(r"mlflow(-skinny)?\s*(\[[^\]]*\])?\s*([=<>~!;@ ]|$)", re.IGNORECASE)
_NOT_FROM_AN_INDEX = re.compile(r"(-r|-c|-e|--requirement|--constraint|--editable)\b|\.{0,2}/|file:|.*@\s*file:|code/")


class UnsupportedModelError(ValueError):
    """This model can't get an image; the text is one line and says what to change."""


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model's folder that say what it needs, as text; None where one is not there."""

    mlmodel: str | None
    requirements: str | None
    python_env: str | None


@dataclass(frozen=True)
class Environment:
    """What the model's environment is made from."""

    python: str
    requirements: tuple[str, ...]

    @property
    def requirements_text(self) -> str:
        """The content of ``model-requirements.txt`` in the build context."""
        return "".join(f"{line}\n" for line in self.requirements)

    @property
    def digest(self) -> str:
        """sha256 (hex) over everything of the model that goes into the image."""
        canonical = json.dumps([self.python, self.requirements], separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def read_files(folder: Path) -> ModelFiles:
    """The three files of a downloaded model."""
    return ModelFiles(*(_text(folder / name) for name in ("MLmodel", "requirements.txt", "python_env.yaml")))


def environment(files: ModelFiles) -> Environment:
    """The environment that the model asks for; UnsupportedModelError where the image can't give it."""
    if files.mlmodel is None:
        raise UnsupportedModelError("the folder has no MLmodel file, so it is not an MLflow model")
    if "python_function:" not in files.mlmodel:
        raise UnsupportedModelError("the model has no python_function flavor, which is how it would be called")
    if files.requirements is None:
        raise UnsupportedModelError("the model has no requirements.txt; log it with pip_requirements")
    _check_python(_scalar(files.python_env or "", "python") or _scalar(files.mlmodel, "python_version"))
    lines = _requirements(files.requirements)
    if not any(_MLFLOW.match(line) for line in lines):
        raise UnsupportedModelError("the model's requirements.txt does not list mlflow, which loads the model")
    return Environment(PYTHON, tuple(sorted(lines, key=str.lower)))


def image_tag(wanted: Environment, recipe_digest: str) -> str:
    """The tag of the image: the model's environment, and the digest of what we put into it ourselves."""
    return hashlib.sha256(f"{recipe_digest}\n{wanted.digest}\n".encode()).hexdigest()[:24]


def _check_python(version: str | None) -> None:
    if version is None:
        raise UnsupportedModelError("neither python_env.yaml nor MLmodel says which Python the model was logged with")
    if ".".join(version.split(".")[:2]) != PYTHON:
        raise UnsupportedModelError(
            f"the model was logged with Python {version}, the image has {PYTHON}: log it again with Python {PYTHON}"
        )


def _requirements(text: str) -> list[str]:
    lines = [re.sub(r"(^|\s)#.*$", "", line).strip() for line in text.splitlines()]
    for line in filter(None, lines):
        if _NOT_FROM_AN_INDEX.match(line):
            raise UnsupportedModelError(f"the model's requirements.txt names something beside it: {line[:100]}")
    return [line for line in lines if line]


def _scalar(text: str, key: str) -> str | None:
    """The first ``key: value`` of a YAML file, at whatever depth, without its quotes."""
    found = re.search(rf"^\s*{re.escape(key)}:\s*['\"]?([^'\"\s#]+)", text, re.MULTILINE)
    return found.group(1) if found else None


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
