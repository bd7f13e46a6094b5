"""Owns what must hold before anything is installed, built or started: every problem at once, each with a remedy.

Pure: it judges a `Host` that `host` has observed. What could not be observed (`None`) is no problem here; the step
that needs it says so when its time comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from embedded.instance import Instance

GIB: Final = 1024**3
ARCHITECTURES: Final = frozenset({"x86_64", "aarch64"})
# overlayfs can't use them as an upper layer, or they lose what containers store.
UNSUITABLE_FILE_SYSTEMS: Final = frozenset({"overlay", "nfs", "nfs4", "cifs", "vfat", "fuseblk", "9p", "ramfs"})
CONTROLLERS: Final = ("cpu", "cpuset", "memory", "pids")


@dataclass(frozen=True)
class Route:
    """A network that the host reaches, and through which interface."""

    network: IPv4Network
    interface: str


@dataclass(frozen=True)
class Host:
    """What was observed; `None` is "could not be found out"."""

    user: int
    machine: str
    python: tuple[int, int]
    go: tuple[int, int] | None
    has_apt: bool
    missing_packages: tuple[str, ...]
    memory_available_bytes: int
    disk_free_bytes: int
    home_file_system: str | None
    cgroup_controllers: frozenset[str]
    routes: tuple[Route, ...]
    # Why no cgroup can be made or used below the root that is seen, where something stands against it.
    cgroups_read_only: bool = False
    cgroup_root_held: bool = False
    # Feature of the kernel -> it works, it does not, or its program is not installed yet.
    features: Mapping[str, bool | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Needs:
    """What is about to be done asks for this much. `go` is None where no tool has to be built."""

    memory_bytes: int = 3 * GIB
    disk_bytes: int = 4 * GIB
    python: tuple[int, int] = (3, 11)
    go: tuple[int, int] | None = None


# Where every tool and image is still to be made.
NOTHING_CACHED: Final = Needs(disk_bytes=16 * GIB, go=(1, 25))


@dataclass(frozen=True)
class Problem:
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {self.remedy}"


FEATURE_REMEDIES: Final[Mapping[str, str]] = {
    "namespaces": "run on a machine, or in a container started with --privileged, that may make all kinds of them",
    "overlayfs": "load the kernel's overlay module (modprobe overlay)",
    "veth": "load the kernel's veth module (modprobe veth)",
    "nftables": "use a kernel of 5.13 or later with nf_tables, nft_nat and nft_masq",
}


def problems(host: Host, instance: Instance, needs: Needs) -> tuple[Problem, ...]:
    """Everything that stands in the way; empty where nothing does."""
    checks = (_machine(host), _versions(host, needs), _packages(host), _sizes(host, instance, needs))
    return (*(problem for check in checks for problem in check), *_kernel(host), *_addresses(host, instance))


def _machine(host: Host) -> Sequence[Problem]:
    found = []
    if host.user != 0:
        found.append(Problem("this is not root", "run it as root (sudo): the node needs namespaces and mounts"))
    if host.machine not in ARCHITECTURES:
        found.append(Problem(f"this machine is {host.machine}", f"use one of {', '.join(sorted(ARCHITECTURES))}"))
    return found


def _versions(host: Host, needs: Needs) -> Sequence[Problem]:
    found = []
    if host.python < needs.python:
        wanted = _dotted(needs.python)
        found.append(
            Problem(f"Python is {_dotted(host.python)}", f"use Python {wanted} or later (apt install python3)")
        )
    if needs.go is not None and (host.go is None or host.go < needs.go):
        has = "there is no Go" if host.go is None else f"Go is {_dotted(host.go)}"
        found.append(Problem(has, f"put Go {_dotted(needs.go)} or later on PATH, or the missing tools themselves"))
    return found


def _packages(host: Host) -> Sequence[Problem]:
    if host.has_apt or not host.missing_packages:
        return ()
    wanted = ", ".join(host.missing_packages)
    return (Problem(f"missing: {wanted}", "this is no Debian (no apt-get); install what provides them yourself"),)


def _sizes(host: Host, instance: Instance, needs: Needs) -> Sequence[Problem]:
    found = []
    if host.memory_available_bytes < needs.memory_bytes:
        has, wanted = _gib(host.memory_available_bytes), _gib(needs.memory_bytes)
        found.append(Problem(f"{has} of memory are available", f"the local stack needs {wanted}; stop other programs"))
    if host.disk_free_bytes < needs.disk_bytes:
        has, wanted = _gib(host.disk_free_bytes), _gib(needs.disk_bytes)
        found.append(Problem(f"{has} are free below {instance.home}", f"free {wanted}, or name another home"))
    if host.home_file_system in UNSUITABLE_FILE_SYSTEMS:
        remedy = "name a home on a local ext4, xfs or btrfs"
        found.append(Problem(f"{instance.home} is on {host.home_file_system}, which can't hold containers", remedy))
    return found


def _kernel(host: Host) -> Sequence[Problem]:
    found = [
        Problem(f"the kernel does not give us {feature}", FEATURE_REMEDIES[feature])
        for feature, works in host.features.items()
        if works is False
    ]
    lacking = [name for name in CONTROLLERS if name not in host.cgroup_controllers]
    if lacking:
        remedy = "mount the cgroup hierarchies, or start the machine with these controllers enabled"
        found.append(Problem(f"there is no cgroup controller {', '.join(lacking)}", remedy))
    return (*found, *_cgroup_root(host))


def _cgroup_root(host: Host) -> Sequence[Problem]:
    """A container's view of the cgroups may be read-only, or be a cgroup that has processes in it."""
    if host.cgroups_read_only:
        return (Problem("the cgroup file system is read-only", "start the container with --privileged"),)
    if host.cgroup_root_held:
        remedy = "start the container with --cgroupns=host, or move its processes to a cgroup below its root first"
        return (Problem("this container's processes are in its root cgroup, so pods can't get one", remedy),)
    return ()


def _addresses(host: Host, instance: Instance) -> Sequence[Problem]:
    """The default route reaches everything and is nobody's use of the slice."""
    clashes = [
        route
        for route in host.routes
        if route.network.prefixlen > 0
        and route.network.overlaps(instance.network)
        and route.interface != instance.interface
    ]
    return [
        Problem(
            f"addresses {instance.network} are in use ({clash.network} on {clash.interface})",
            f"choose another address slice than {instance.index} for instance {instance.name}",
        )
        for clash in clashes[:1]
    ]


def file_system_of(path: Path, mountinfo: str) -> str | None:
    """Type of the file system that `path` is on, from the text of /proc/self/mountinfo; the last mount wins."""
    best: tuple[int, str] | None = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = Path(left.split(" ")[4])
        if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
            best = (len(point.parts), right.split(" ")[0])
    return best[1] if best else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
