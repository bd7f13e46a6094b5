"""Owns observing the host for `preflight`: asks the kernel by trying each feature in namespaces that end with the try.

Changes nothing that outlives the call, but for kernel modules that a feature needs and that load when it is asked for.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from embedded import host_side, packages
from embedded.host_side import hierarchies
from embedded.instance import Instance
from embedded.preflight import Host, Route, file_system_of
from embedded.services import SYSTEM_PATH

NFT_RULES: Final = """table ip knobless_try {
  chain to_outside { type nat hook postrouting priority 100; masquerade fully-random; }
  chain to_inside { type nat hook prerouting priority -100; tcp dport 1 dnat to 192.0.2.1:2; }
}
"""
OVERLAY: Final = (
    "mount -t tmpfs tmpfs /mnt && mkdir /mnt/a /mnt/b /mnt/c /mnt/d && "
    "mount -t overlay -o lowerdir=/mnt/a,upperdir=/mnt/b,workdir=/mnt/c overlay /mnt/d"
)
# Feature -> the program that has to be there, the try, and what it reads.
TRIES: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    "namespaces": ("unshare", ("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "true"), ""),
    "overlayfs": ("unshare", ("unshare", "--mount", "sh", "-c", OVERLAY), ""),
    "veth": ("ip", ("unshare", "--net", "ip", "link", "add", "one", "type", "veth", "peer", "name", "two"), ""),
    "nftables": ("nft", ("unshare", "--net", "nft", "-f", "-"), NFT_RULES),
}


def observe(instance: Instance) -> Host:
    mountinfo = Path("/proc/self/mountinfo").read_text()
    existing = next(path for path in (instance.home, *instance.home.parents) if path.exists())
    return Host(
        user=os.geteuid(),
        machine=os.uname().machine,
        python=sys.version_info[:2],
        go=go_version(_said("go", "version")),
        has_apt=shutil.which("apt-get") is not None,
        missing_packages=packages.missing(),
        memory_available_bytes=memory_available_bytes(Path("/proc/meminfo").read_text()),
        disk_free_bytes=shutil.disk_usage(existing).free,
        home_file_system=file_system_of(existing.resolve(), mountinfo),
        cgroup_controllers=_controllers(mountinfo),
        cgroups_read_only=any(os.statvfs(root).f_flag & os.ST_RDONLY for root, _ in hierarchies(mountinfo)),
        cgroup_root_held=_cgroup_root_held(mountinfo),
        routes=routes(_said("ip", "-json", "-4", "route", "show", "table", "all")),
        features={feature: _works(*trial) for feature, trial in TRIES.items()} if os.geteuid() == 0 else {},
    )


def _works(program: str, argv: tuple[str, ...], stdin: str) -> bool | None:
    if shutil.which(program, path=SYSTEM_PATH) is None:
        return None
    environment = {"PATH": SYSTEM_PATH}
    done = subprocess.run(argv, input=stdin, env=environment, capture_output=True, text=True, check=False)
    return done.returncode == 0


def go_version(text: str) -> tuple[int, int] | None:
    """From `go version go1.26.8 linux/amd64`."""
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def memory_available_bytes(meminfo: str) -> int:
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def routes(text: str) -> tuple[Route, ...]:
    """From the JSON of `ip route`: networks, and single addresses as networks of one."""
    found: list[dict[str, Any]] = json.loads(text) if text else []
    return tuple(
        Route(IPv4Network("0.0.0.0/0" if route["dst"] == "default" else route["dst"]), route.get("dev", "nowhere"))
        for route in found
    )


def _controllers(mountinfo: str) -> frozenset[str]:
    """Of v1 each hierarchy is named by its controllers; v2 lists them in a file."""
    names: set[str] = set()
    for root, is_v2 in hierarchies(mountinfo):
        names.update((root / "cgroup.controllers").read_text().split() if is_v2 else root.name.split(","))
    return frozenset(names)


def _cgroup_root_held(mountinfo: str) -> bool:
    root = host_side.pure_v2(hierarchies(mountinfo))
    if root is None:
        return False
    said = {name: (root / f"cgroup.{name}").read_text() for name in ("controllers", "subtree_control", "procs")}
    wanted = host_side.missing_controllers(said["controllers"], said["subtree_control"])
    return host_side.is_held(not (root / "cgroup.type").exists(), said["procs"], wanted)


def _said(*argv: str) -> str:
    if shutil.which(argv[0]) is None:
        return ""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout
