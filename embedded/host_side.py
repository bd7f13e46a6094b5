"""Owns what a node needs on the host's side: one interface with two routes, and cgroups for it and its pods.

Leaves the node's own side to `layout`. Everything made here is named after the instance and taken away by the same
name, whatever the state it is found in.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from embedded.instance import Instance
from embedded.layout import INTERFACE

SYS_INTERFACES: Final = Path("/sys/class/net")
CGROUP_BUSY_BOUND_S: Final = 5.0
# What the kubelet wants to find in a cgroup of its own where the hierarchy is cgroup v2.
KUBELET_CONTROLLERS: Final = ("cpu", "cpuset", "hugetlb", "memory", "pids")
NODE_CGROUP: Final = "node"


def link_commands(instance: Instance, node_process: int) -> str:
    """For `ip -batch`: the host's end of the pair, with the ranges of pods and Services behind it."""
    own = instance.interface
    return "\n".join(
        (
            # udev gives an interface with a random address another one, at some later moment; not one with its own.
            f"link add {own} address {instance.host_mac} type veth peer name {INTERFACE} netns {node_process}",
            f"addr add {instance.host_address}/{instance.link.prefixlen} dev {own}",
            f"link set {own} up",
            f"route add {instance.pods} via {instance.node_address} dev {own}",
            f"route add {instance.services} via {instance.node_address} dev {own}",
            "",
        )
    )


def connect(instance: Instance, node_process: int) -> None:
    _ip(("-batch", "-"), link_commands(instance, node_process))


def disconnect(instance: Instance) -> None:
    """Its routes and its other end go with an interface."""
    if (SYS_INTERFACES / instance.interface).exists():
        with contextlib.suppress(RuntimeError):  # it also goes by itself, when the node's namespace does
            _ip(("link", "del", instance.interface))


def _ip(arguments: tuple[str, ...], stdin: str = "") -> None:
    done = subprocess.run(("ip", *arguments), input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def hierarchies(mountinfo: str) -> tuple[tuple[Path, bool], ...]:
    """Mount point of each cgroup hierarchy, and whether it is v2, from the text of /proc/self/mountinfo."""
    found: dict[Path, bool] = {}
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind = right.split(" ", 1)[0]
        if kind in ("cgroup", "cgroup2"):
            found[Path(left.split(" ")[4])] = kind == "cgroup2"
    return tuple(found.items())


def missing_controllers(available: str, enabled: str) -> str:
    """What to write to cgroup.subtree_control so that a child has what the kubelet wants, as far as there is any."""
    missing = set(available.split()) - set(enabled.split())
    return " ".join(f"+{name}" for name in KUBELET_CONTROLLERS if name in missing)


def is_held(is_true_root: bool, processes: str, wanted: str) -> bool:
    """Whether a v2 root can't hand `wanted` down: in a container of its own it holds processes, which only the true
    root may do besides."""
    return bool(wanted and processes.split()) and not is_true_root


def pure_v2(found: tuple[tuple[Path, bool], ...]) -> Path | None:
    """The one hierarchy of a host that has no other; with a v1 beside it, it has no controllers to hand down."""
    return found[0][0] if len(found) == 1 and found[0][1] else None


def make_cgroups(instance: Instance) -> None:
    found = hierarchies(Path("/proc/self/mountinfo").read_text())
    root = pure_v2(found)
    if root is not None:
        _hand_down(root)
    for top, _ in found:
        (top / instance.cgroup).mkdir(exist_ok=True)
    if root is not None:
        # systemd takes controllers back that no unit of its own needs; the kernel refuses where they are handed on.
        _hand_down(root / instance.cgroup)


def _hand_down(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    wanted = missing_controllers((folder / "cgroup.controllers").read_text(), control.read_text())
    if wanted:
        control.write_text(wanted)


def adopt(instance: Instance, node_process: int) -> None:
    """Take the node out of the cgroup of whoever started it: with a session or a unit, systemd ends all that is in it.

    It goes to a leaf beside the pods', since a v2 cgroup holds processes or hands down controllers, not both.
    """
    for root, is_v2 in hierarchies(Path("/proc/self/mountinfo").read_text()):
        if is_v2:
            leaf = root / instance.cgroup / NODE_CGROUP
            leaf.mkdir(exist_ok=True)
            (leaf / "cgroup.procs").write_text(str(node_process))


def remove_cgroups(instance: Instance) -> None:
    """Depth first; a cgroup whose last process is still ending is busy for a moment."""
    for root, _ in hierarchies(Path("/proc/self/mountinfo").read_text()):
        if (root / instance.cgroup).exists():
            _remove_tree(root / instance.cgroup)


def _remove_tree(top: Path) -> None:
    bound_s = time.monotonic() + CGROUP_BUSY_BOUND_S
    while left := _removed(Path(folder) for folder, _, _ in os.walk(top, topdown=False)):
        if time.monotonic() > bound_s:
            raise TimeoutError(f"{left[0]} still has processes")
        time.sleep(0.05)


def _removed(folders: Iterable[Path]) -> list[Path]:
    """The folders that could not be removed."""
    left = []
    for folder in folders:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            left.append(folder)
    return left
