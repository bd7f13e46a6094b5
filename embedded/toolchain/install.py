"""Lays out the folder of programs: what a user, Pulumi and the cluster's supervisor start.

Owns ``tools/DIGEST``. Ours are hard links and not symlinks, since Pulumi looks for its language host
beside the file that it was started from, behind symlinks. Everything here can be done again at any time.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from . import versions
from .planning import HOST_SOURCE, BuildPlan, Task

PROVIDER = "pulumi-resource-kubernetes"
LAUNCHER = """#!/bin/sh
default={default}
export KNOBLESS_LANGUAGE_EXEC={program}
exec "${{KNOBLESS_PYTHON:-$default}}" -P {host} "$@"
"""


@dataclass(frozen=True)
class PulumiTools:
    """Put ``bin_dir`` first on PATH, or name the programs by these paths."""

    bin_dir: Path
    pulumi: Path
    pulumi_language_python: Path
    pulumi_resource_kubernetes: Path  # not in bin_dir: Pulumi warns of providers that it finds on PATH


@dataclass(frozen=True)
class Tools(PulumiTools):
    kube_apiserver: Path
    kube_controller_manager: Path
    kube_scheduler: Path
    kubelet: Path
    kube_proxy: Path
    kubectl: Path
    etcd: Path
    coredns: Path


def plugin_path(folder: Path) -> Path:
    """Where Pulumi's plugin cache in ``folder`` keeps the provider."""
    return folder / f"resource-kubernetes-{versions.PULUMI_KUBERNETES}" / PROVIDER


def program_path(plan: BuildPlan, program: str) -> Path:
    return plugin_path(plan.root / "plugins") if program == PROVIDER else plan.bin_dir / program


def pulumi_tools(plan: BuildPlan) -> PulumiTools:
    names = ("pulumi", versions.LANGUAGE_HOST, PROVIDER)
    return PulumiTools(plan.bin_dir, *(program_path(plan, name) for name in names))


def tools(plan: BuildPlan) -> Tools:
    pulumi = pulumi_tools(plan)
    names = (*versions.CLUSTER_PROGRAMS, "kubectl", "etcd", "coredns")
    return Tools(**vars(pulumi), **{name.replace("-", "_"): program_path(plan, name) for name in names})


def add_to_plugin_cache(tools: PulumiTools, pulumi_home: Path) -> Path:
    """Makes the provider known to a Pulumi whose PULUMI_HOME this is."""
    plugin = plugin_path(pulumi_home / "plugins")
    plugin.parent.mkdir(parents=True, exist_ok=True)
    point(plugin, tools.pulumi_resource_kubernetes)
    return plugin


def lay_out(plan: BuildPlan, python: Path | None = None) -> None:
    """Links what is finished and what is borrowed from PATH into place."""
    plan.bin_dir.mkdir(parents=True, exist_ok=True)
    for program, path in plan.used.items():
        place = program_path(plan, program)
        place.parent.mkdir(parents=True, exist_ok=True)
        point(place, path)
    for task in plan.tasks:
        if task.is_done:
            lay_out_target(plan, task)
            if task.target.name == "pulumi":
                install_language_host(plan.root, python)


def lay_out_target(plan: BuildPlan, task: Task) -> None:
    binary = program_path(plan, task.target.name)
    binary.parent.mkdir(parents=True, exist_ok=True)
    link(binary, task.output)
    for name in task.target.beside:
        link(plan.bin_dir / name, task.carried(name))
    for program in task.target.programs:
        if program not in (task.target.name, versions.LANGUAGE_HOST, *plan.used):
            point(plan.bin_dir / program, Path(task.target.name))


def install_language_host(root: Path, python: Path | None = None) -> Path:
    """Writes the launcher of the Python language host beside ``pulumi``.

    ``python`` (by default the one already written there, or else this one) starts the host and needs the
    ``pulumi`` package; KNOBLESS_PYTHON names another one when the host is started. A program's own
    interpreter is that of its virtualenv, as ever.
    """
    root = root.resolve()  # another home may have this folder by a link, and goes before it does
    source = root / "lib" / HOST_SOURCE.name
    source.parent.mkdir(parents=True, exist_ok=True)
    write(source, HOST_SOURCE.read_text(), 0o644)
    launcher = root / "bin" / versions.LANGUAGE_HOST
    if python is not None or not launcher.exists():
        program = launcher.with_name(versions.LANGUAGE_EXEC)
        words = {"default": python or Path(sys.executable), "program": program, "host": source}
        quoted = {name: shlex.quote(str(path)) for name, path in words.items()}
        write(launcher, LAUNCHER.format(**quoted), 0o755)
    return launcher


def link(place: Path, file: Path) -> None:
    """``place`` is another name of ``file``, or a copy where the file system has no links."""
    if place.exists() and place.samefile(file):
        return
    scratch = place.with_name(f".{place.name}.new")
    scratch.unlink(missing_ok=True)
    try:
        os.link(file, scratch)
    except OSError:
        shutil.copy2(file, scratch)
    scratch.replace(place)


def point(place: Path, to: Path) -> None:
    """``place`` is a symlink to ``to``."""
    if place.is_symlink() and place.readlink() == to:
        return
    scratch = place.with_name(f".{place.name}.new")
    scratch.unlink(missing_ok=True)
    scratch.symlink_to(to)
    scratch.replace(place)


def write(place: Path, text: str, mode: int) -> None:
    if place.is_file() and place.read_text() == text and place.stat().st_mode & 0o777 == mode:
        return
    scratch = place.with_name(f".{place.name}.new")
    scratch.write_text(text)
    scratch.chmod(mode)
    scratch.replace(place)
