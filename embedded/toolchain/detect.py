"""Which of the tools that are already there will do.

Pure: :mod:`embedded.toolchain.probe` looks around and hands over what it saw; here is only the judgement.
A tool of the wrong version is named once, with the version it has and the one it would need; the
pinned one is built in its place. The first suitable one on PATH wins, as for a shell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import versions

Version = tuple[int, int, int]


def parse_version(text: str) -> Version | None:
    """The first ``1.2`` or ``1.2.3`` in the output of ``tool --version``, or None."""
    match = re.search(r"(?<![\d.])v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


def format_version(version: Version) -> str:
    return ".".join(map(str, version))


@dataclass(frozen=True)
class Rule:
    """``at_least <= version < below``, and what has to lie beside the program (or on PATH)."""

    program: str
    at_least: Version
    below: Version
    companions: tuple[str, ...] = ()

    def accepts(self, version: Version) -> bool:
        return self.at_least <= version < self.below

    def __str__(self) -> str:
        return f"{format_version(self.at_least)} or later, below {format_version(self.below)}"


@dataclass(frozen=True)
class Found:
    """One program that is there; ``version`` is None where it would not say."""

    program: str
    path: Path
    version: Version | None
    companions: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Selection:
    used: Mapping[str, Path]  # program -> the one on PATH that will be used
    refused: tuple[str, ...]  # one sentence for each program of which only unsuitable ones are there


def _minor(version: str, *, plus: int = 0) -> Version:
    parsed = parse_version(version)
    if parsed is None:
        raise ValueError(f"not a version: {version}")
    return (parsed[0], parsed[1] + plus, 0)


def rules() -> tuple[Rule, ...]:
    """What suits the pinned versions."""
    cluster = versions.KUBERNETES
    same_minor = (_minor(cluster), _minor(cluster, plus=1))
    provider = parse_version(versions.PULUMI_KUBERNETES) or (0, 0, 0)
    return (
        *(Rule(program, *same_minor) for program in versions.CLUSTER_PROGRAMS),
        # kubectl supports servers one minor older and newer than itself.
        Rule("kubectl", _minor(cluster, plus=-1), _minor(cluster, plus=2)),
        Rule("etcd", _minor(versions.ETCD), _minor(versions.ETCD, plus=1)),
        Rule("coredns", (1, 11, 0), (2, 0, 0)),
        # 3.227 is the oldest engine that the locked Python SDK and policy SDK work with.
        Rule("pulumi", (3, 227, 0), (4, 0, 0), companions=(versions.LANGUAGE_HOST,)),
        # The Python SDK asks for its own version; the engine takes a later one of the same major.
        Rule("pulumi-resource-kubernetes", provider, (provider[0] + 1, 0, 0)),
    )


def objection(rule: Rule, found: Found) -> str | None:
    """Why this one will not do, or None if it will."""
    if found.version is None:
        return f"{found.path} does not say its version"
    if not rule.accepts(found.version):
        return f"{found.path} is {format_version(found.version)}"
    missing = [name for name in rule.companions if name not in found.companions]
    return f"{found.path} comes without {' and '.join(missing)}" if missing else None


def select(wanted: Iterable[Rule], there: Iterable[Found]) -> Selection:
    """The first suitable one of each program; ``there`` is in the order of PATH."""
    candidates: dict[str, list[Found]] = {}
    for found in there:
        candidates.setdefault(found.program, []).append(found)
    used: dict[str, Path] = {}
    refused = []
    for rule in wanted:
        mine = candidates.get(rule.program, [])
        suitable = [found.path for found in mine if objection(rule, found) is None]
        if suitable:
            used[rule.program] = suitable[0]
        elif mine:
            reasons = "; ".join(reason for found in mine if (reason := objection(rule, found)))
            refused.append(f"{rule.program}: {reasons} (needed: {rule})")
    return Selection(used, tuple(refused))


def settle(used: Mapping[str, Path]) -> Mapping[str, Path]:
    """The programs that are taken from PATH in the end.

    Those of a cluster all together or not at all: a control plane put together from two installations
    is nobody's tested release. Pulumi brings its language host.
    """
    kept = dict(used)
    if not set(kept).issuperset(versions.CLUSTER_PROGRAMS):
        kept = {program: path for program, path in kept.items() if program not in versions.CLUSTER_PROGRAMS}
    if "pulumi" in kept:
        kept[versions.LANGUAGE_HOST] = kept["pulumi"].with_name(versions.LANGUAGE_HOST)
    return kept


def targets_to_build(have: Iterable[str], only: frozenset[str] | None = None) -> tuple[versions.Target, ...]:
    """The binaries of which at least one program is not there yet, in building order."""
    programs = frozenset(have)
    return tuple(
        target
        for target in versions.TARGETS
        if (only is None or target.name in only) and not programs.issuperset(target.programs)
    )
