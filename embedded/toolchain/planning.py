"""What is there, what will be built, and where it goes.

Layout of ``home`` (removing it removes everything):

    go/{mod,build,pkg,tmp}   downloads, compiled packages, checksum database, scratch
    go-toolchain/            Go itself, only where none is installed
    tools/store/NAME-DIGEST  one finished binary each; being there is the stamp that it is finished
    tools/DIGEST/bin         what a user puts on PATH: links to the store and to tools found on PATH
    tools/DIGEST/plugins     the Kubernetes provider, in the layout of Pulumi's plugin cache

The digest of a binary covers its module's ``go.mod`` and ``go.sum``, our own sources of it, and the flags.
The Go version counts as what ``go.mod`` asks for: a newer compiler on the machine is no reason to
build everything again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import detect, probe, versions
from .versions import MODULES, Target

DIGEST_CHARACTERS = 16
HOST_SOURCE = Path(__file__).with_name("language_host.py")


@dataclass(frozen=True)
class Task:
    """One binary to have: built unless ``output`` is there."""

    target: Target
    digest: str
    output: Path

    @property
    def is_done(self) -> bool:
        return self.output.is_file()

    def carried(self, name: str) -> Path:
        """Where a file goes that belongs beside the binary."""
        return self.output.with_name(f"{name}-{self.digest}")


@dataclass(frozen=True)
class BuildPlan:
    home: Path
    digest: str
    tasks: tuple[Task, ...]
    used: Mapping[str, Path]  # program -> the user's own, from PATH
    refused: tuple[str, ...]  # tools on PATH that will not do, each with the reason

    @property
    def root(self) -> Path:
        return self.home / "tools" / self.digest

    @property
    def bin_dir(self) -> Path:
        return self.root / "bin"

    @property
    def missing(self) -> tuple[Task, ...]:
        return tuple(task for task in self.tasks if not task.is_done)


def sources(target: Target, modules: Path = MODULES) -> tuple[Path, ...]:
    """The files of ours that go into a binary: its module's pins, its main package, replaced modules."""
    module = modules / target.module
    pins = [module / "go.mod", module / "go.sum"]
    own = module / target.package
    folders = [own] if target.package.startswith("./") else []
    folders += [path.parent for path in module.glob("*/go.mod")]
    return (*pins, *sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()))


def digest_of(parts: Iterable[str | bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "big") + data)
    return total.hexdigest()[:DIGEST_CHARACTERS]


def target_digest(target: Target, modules: Path = MODULES) -> str:
    module = modules / target.module
    flags = [*versions.BUILD_FLAGS, link_flags(target), target.package]
    files = [
        part for path in sources(target, modules) for part in (path.relative_to(module).as_posix(), path.read_bytes())
    ]
    return digest_of([target.name, *flags, *files])


def link_flags(target: Target) -> str:
    settings = (f"-X {name}={value}" for name, value in target.variables.items())
    return " ".join((versions.LINK_FLAGS, *settings))


def task_of(home: Path, target: Target) -> Task:
    """Where one binary goes."""
    digest = target_digest(target)
    return Task(target, digest, home / "tools" / "store" / f"{target.name}-{digest}")


def make_plan(home: Path, found: detect.Selection) -> BuildPlan:
    """A plan from what was found. Reads our own sources, runs nothing."""
    used = detect.settle(found.used)
    tasks = tuple(task_of(home, target) for target in detect.targets_to_build(used))
    names = (task.output.name for task in tasks)
    borrowed = (f"{program}={path}" for program, path in sorted(used.items()))
    return BuildPlan(home, digest_of([HOST_SOURCE.read_bytes(), *names, *borrowed]), tasks, used, found.refused)


def outside(home: Path, path_env: str) -> str:
    """PATH without our own folders: what we built is not what the user has."""
    tools = home / "tools"
    return os.pathsep.join(entry for entry in path_env.split(os.pathsep) if not Path(entry).is_relative_to(tools))


def pulumi_home_of_user(home: Path, variables: Mapping[str, str]) -> Path:
    """The plugin cache's folder; ours, which `knobless env` names in a shell, only leads to what we built."""
    named = variables.get("PULUMI_HOME")
    return Path(named) if named and not Path(named).is_relative_to(home) else Path.home() / ".pulumi"


def plan(home: Path, path_env: str) -> BuildPlan:
    """Looks at what is installed (starting each candidate once for its version) and decides what to build."""
    home = home.absolute()
    rules = detect.rules()
    of_user = pulumi_home_of_user(home, os.environ)
    return make_plan(home, detect.select(rules, probe.look_around(rules, outside(home, path_env), of_user)))
