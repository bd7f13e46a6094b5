"""Owns the step from a folder to the environment that it declares.

Leaves every rule to `spec`. One idea: a path in a message is the path in the repository, wherever the folder lies.
"""

from __future__ import annotations

from pathlib import Path

from spec import names
from spec.environment import Environment, load_environment
from spec.platform import PlatformSpec, load_platform
from spec.problems import Problem, SpecError

LINK = "is a symbolic link: put the file itself here"


def read_files(stacks: Path, environment: str) -> dict[str, bytes]:
    """Every file below an environment's folder, by its path in the repository; `stacks` holds the environments.

    A symbolic link is a problem: where it leads nowhere, its endpoint would seem to have been removed.
    """
    paths = sorted((stacks / environment).rglob("*"))
    links = [Problem(_in_repository(stacks, path), None, None, "", LINK) for path in paths if path.is_symlink()]
    if links:
        raise SpecError(links)
    return {_in_repository(stacks, path): path.read_bytes() for path in paths if path.is_file()}


def _in_repository(stacks: Path, path: Path) -> str:
    return f"{names.STACKS_FOLDER}/{path.relative_to(stacks).as_posix()}"


def read_environment(stacks: Path, environment: str) -> Environment:
    """The whole environment; a SpecError holds every problem of every file."""
    return load_environment(environment, read_files(stacks, environment))


def read_platform(stacks: Path, environment: str) -> PlatformSpec:
    """The platform's file alone; a SpecError holds every problem of it."""
    file = names.PlatformStack(environment).file
    try:
        text = (stacks / environment / names.PLATFORM_FILE).read_bytes()
    except FileNotFoundError:
        return load_environment(environment, {}).platform  # which says so
    return load_platform(text, file, environment)
