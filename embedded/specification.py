"""Owns the types that describe a node before it runs, and their form on disk.

Leaves to `services` and `configs` what goes in, and to `init` to carry it out. One idea: the node is one value; its
digest says whether what runs is what is wanted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Component:
    """A process of the node. It starts when all of `after` were ready, and is ready when `probe` answers.

    `probe` is `unix:<path>`, `tcp:<host>:<port>`, a URL that answers 200, or empty: ready once started.
    `stop_grace_s` is the time between SIGTERM and SIGKILL; zero is SIGKILL at once, for what keeps nothing on disk.
    """

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    after: tuple[str, ...] = ()
    probe: str = ""
    stop_grace_s: float = 0.0


@dataclass(frozen=True)
class Entry:
    """A path that must exist inside before a mount: a folder, or a file with this content."""

    path: str
    content: str | None = None


@dataclass(frozen=True)
class Step:
    """One step of laying out the node's own file system and network: make the entries, then run the command."""

    argv: tuple[str, ...]
    entries: tuple[Entry, ...] = ()
    stdin: str = ""


@dataclass(frozen=True)
class NodeSpecification:
    """Everything that the node's init needs, and nothing that it must look up."""

    hostname: str
    interface: str
    socket: str
    log: str
    log_bytes_max: int
    layout: tuple[Step, ...]
    components: tuple[Component, ...]
    files_digest: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(dump(self).encode()).hexdigest()


def files_digest(files: Mapping[str, str]) -> str:
    """One digest of all rendered files, names included, in no order but the names'."""
    return hashlib.sha256(json.dumps(sorted(files.items())).encode()).hexdigest()


def dump(specification: NodeSpecification) -> str:
    return json.dumps(asdict(specification), indent=1, sort_keys=True)


def load(text: str) -> NodeSpecification:
    """The inverse of `dump`. Raises ValueError, KeyError or TypeError on anything else."""
    raw = json.loads(text)
    layout = tuple(_step(step) for step in raw.pop("layout"))
    components = tuple(_component(component) for component in raw.pop("components"))
    return NodeSpecification(layout=layout, components=components, **raw)


def _step(raw: dict[str, Any]) -> Step:
    return Step(tuple(raw["argv"]), tuple(Entry(**entry) for entry in raw["entries"]), raw["stdin"])


def _component(raw: dict[str, Any]) -> Component:
    return Component(**{**raw, "argv": tuple(raw["argv"]), "after": tuple(raw["after"])})
