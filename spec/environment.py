"""Owns the rules over all files of one environment: what no single file can show.

Leaves single files to `endpoint` and `platform`, and reading the disk to its callers. One idea: a whole environment
is a mapping from path to text, so a pull request, a folder and a test are checked by the same function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from spec import capacity, names
from spec.endpoint import EndpointSpec, read_endpoint
from spec.platform import PlatformSpec, Quota, Rollout, read_platform
from spec.problems import Problem, SpecError
from spec.yaml_text import Document

_SIDE_FILES = (".md", ".txt")
_BACKUPS = ("~", ".orig", ".swp")


@dataclass(frozen=True)
class Environment:
    """Everything that one environment declares; the endpoints are sorted by name."""

    platform: PlatformSpec
    endpoints: tuple[EndpointSpec, ...]

    def endpoint(self, name: str) -> EndpointSpec | None:
        return next((spec for spec in self.endpoints if spec.endpoint == name), None)


def effective_rollout(spec: EndpointSpec, platform: PlatformSpec) -> Rollout:
    """An endpoint's rollout settings: its own where stated, else the platform's."""
    return platform.rollout.model_copy(update=spec.rollout.model_dump(exclude_none=True))


def load_environment(environment: str, files: Mapping[str, str | bytes]) -> Environment:
    """Check all files of an environment; a SpecError holds every problem of all of them.

    `files` maps paths relative to the repository's root, with `/`, to texts: everything below the environment's folder.
    Hidden files, `.md`, `.txt` and the backups of editors are passed over.
    """
    reading = _Reading(environment)
    platform_file = names.PlatformStack(environment).file
    if platform_file in files:
        reading.read_platform(platform_file, files[platform_file])
    else:
        reading.add(platform_file, "the file is missing: it declares the environment")
    for file in sorted(files):
        if file != platform_file and not _passed_over(file):
            reading.read_file(file, files[file])
    reading.check_across()
    if reading.problems or reading.platform is None:
        raise SpecError(reading.problems)
    return Environment(reading.platform, tuple(sorted(reading.specs.values(), key=lambda spec: spec.endpoint)))


def _passed_over(file: str) -> bool:
    path = PurePosixPath(file)
    return path.name.startswith(".") or path.suffix in _SIDE_FILES or path.name.endswith(_BACKUPS)


class _Reading:
    """What was read so far, with all problems."""

    def __init__(self, environment: str) -> None:
        self.environment = environment
        self.platform: PlatformSpec | None = None
        self.platform_document = Document(names.PlatformStack(environment).file)
        self.specs: dict[str, EndpointSpec] = {}
        self.documents: dict[names.EndpointStack, Document] = {}
        self.problems: list[Problem] = []

    def add(self, file: str, message: str, allowed: str | None = None) -> None:
        self.problems.append(Problem(file, None, None, "", message, allowed))

    def read_platform(self, file: str, text: str | bytes) -> None:
        self.platform, self.platform_document = read_platform(text, file, self.environment)
        self.problems += self.platform_document.problems

    def read_file(self, file: str, text: str | bytes) -> None:
        try:
            stack = names.stack_of_file(file)
        except ValueError as error:
            self.add(file, _stray(file, self.environment, error))
            return
        if stack.environment != self.environment or not isinstance(stack, names.EndpointStack):
            self.add(file, f"lies outside of {names.environment_folder(self.environment)}")
            return
        spec, document = read_endpoint(text, file, stack.team)
        self.documents[stack] = document
        if spec is not None:
            self.specs[file] = spec

    def check_across(self) -> None:
        self._check_names()
        teams = _declared_teams(self.platform_document)
        if teams is not None:
            for stack, document in self.documents.items():
                _check_teams(stack, document, teams)
        if self.platform is not None:
            for team, settings in self.platform.teams.items():
                self._check_quota(team, settings.quota, self.platform.autoscaler.utilization)
        for document in self.documents.values():
            self.problems += document.problems

    def _check_names(self) -> None:
        first: dict[str, names.EndpointStack] = {}
        for stack, document in self.documents.items():
            other = first.setdefault(stack.endpoint, stack)
            if other is not stack:
                message = f"{stack.endpoint!r} stands in {other.file} too: a name is given once in an environment"
                document.report(("endpoint",), message)

    def _check_quota(self, team: str, quota: Quota, utilization: float) -> None:
        specs = [spec for spec in self.specs.values() if spec.team == team]
        known = len(self.platform_document.problems)
        for field, message in capacity.shortfalls(specs, quota, utilization):
            self.platform_document.report(("teams", team, "quota", field), message)
        self.problems += self.platform_document.problems[known:]


def _stray(file: str, environment: str, error: ValueError) -> str:
    if file.endswith(".yml"):
        return "declares nothing: rename it to end in .yaml"
    folder = names.environment_folder(environment)
    return str(error) if file.startswith(f"{folder}/") else f"lies outside of {folder}"


def _declared_teams(platform: Document) -> frozenset[str] | None:
    """Teams of a platform file that may have problems elsewhere; None where they can't be known."""
    if not isinstance(platform.value, dict) or platform.is_broken(("teams",)):
        return None
    teams: Any = platform.value.get("teams", {})
    return frozenset(teams) if isinstance(teams, dict) else None


def _check_teams(stack: names.EndpointStack, document: Document, teams: frozenset[str]) -> None:
    allowed = ", ".join(sorted(teams)) or "none: declare teams in platform.yaml"
    if stack.team not in teams:
        document.report((), f"the folder names team {stack.team!r}, which platform.yaml doesn't declare", allowed)
    access = document.value.get("access") if isinstance(document.value, dict) else None
    listed = access.get("teams") if isinstance(access, dict) else None
    for index, team in enumerate(listed if isinstance(listed, list) else []):
        path = ("access", "teams", index)
        if isinstance(team, str) and team not in teams and not document.is_broken(path):
            document.report(path, f"{team!r} is no team of platform.yaml", allowed)
