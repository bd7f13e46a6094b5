"""Looks for tools that are already installed and asks each for its version.

Owns every process that is started to find out what is there. Judges nothing: see
:mod:`embedded.toolchain.detect`. A program that fails, hangs or prints no version has none.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from .detect import Found, Rule, Version, parse_version

PROBE_TIMEOUT_S = 10.0

VERSION_ARGUMENTS = {
    "kubectl": ("version", "--client"),
    "pulumi": ("version",),
    "coredns": ("-version",),
}


def executables(program: str, path_env: str) -> Iterator[Path]:
    """Every ``program`` on PATH once, in its order; relative entries of PATH are not followed."""
    seen = set()
    for folder in path_env.split(os.pathsep):
        candidate = Path(folder) / program
        if candidate.is_absolute() and candidate.is_file() and os.access(candidate, os.X_OK):
            real = candidate.resolve()  # /bin is /usr/bin today
            if real not in seen:
                seen.add(real)
                yield candidate


def ask_version(path: Path, program: str) -> Version | None:
    arguments = VERSION_ARGUMENTS.get(program, ("--version",))
    try:
        # Pulumi writes a log for each question, and makes the folder for it: not in the user's home.
        with tempfile.TemporaryDirectory(prefix="knobless-probe-", ignore_cleanup_errors=True) as scratch:
            answer = subprocess.run(
                [path, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=PROBE_TIMEOUT_S,
                env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true", "PULUMI_HOME": scratch},
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(answer.stdout or answer.stderr) if answer.returncode == 0 else None


def companions(path: Path, names: Iterable[str], path_env: str) -> frozenset[str]:
    """Which of ``names`` lie beside the program (behind symlinks, as Pulumi looks) or on PATH."""
    beside = path.resolve().parent
    return frozenset(name for name in names if os.access(beside / name, os.X_OK) or any(executables(name, path_env)))


def plugin_folders(pulumi_home: Path) -> Iterator[Found]:
    """Kubernetes providers in the plugin cache of the user's Pulumi, the latest first."""
    prefix, program = "resource-kubernetes-v", "pulumi-resource-kubernetes"
    folders = (pulumi_home / "plugins").glob(f"{prefix}*")
    found = [
        Found(program, folder / program, parse_version(folder.name.removeprefix(prefix)))
        for folder in folders
        if os.access(folder / program, os.X_OK) and not folder.with_name(folder.name + ".partial").exists()
    ]
    yield from sorted(found, key=lambda one: one.version or (0, 0, 0), reverse=True)


def look_around(rules: Iterable[Rule], path_env: str, pulumi_home: Path | None = None) -> tuple[Found, ...]:
    """All candidates for the programs that ``rules`` name."""
    rules = tuple(rules)
    found = [
        Found(
            rule.program,
            path,
            ask_version(path, rule.program),
            companions(path, rule.companions, path_env),
        )
        for rule in rules
        for path in executables(rule.program, path_env)
    ]
    if any(rule.program == "pulumi-resource-kubernetes" for rule in rules):
        home = pulumi_home or Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
        found.extend(plugin_folders(home))
    return tuple(found)
