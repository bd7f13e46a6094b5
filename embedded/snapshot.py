"""Owns what of the host a cluster could change: taken before and after, the two must be equal.

Leaves out what other programs change by themselves: counters, process numbers, what goes on inside namespaces.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from embedded.host_side import hierarchies

SYSCTLS: Final = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/bridge/bridge-nf-call-iptables",
    "net/ipv4/conf/all/forwarding",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/conf/all/rp_filter",
    "net/ipv4/conf/default/forwarding",
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "net/netfilter/nf_conntrack_max",
    "net/netfilter/nf_conntrack_tcp_timeout_close_wait",
    "net/netfilter/nf_conntrack_tcp_timeout_established",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
FOLDERS: Final = (
    "/etc/cni",
    "/etc/kubernetes",
    "/opt/cni",
    "/opt/containerd",
    "/run/cni",
    "/run/containerd",
    "/run/netns",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/etcd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
LISTENING: Final = "0A"
_COUNTERS = re.compile(r"counter packets \d+ bytes \d+")

Snapshot = dict[str, list[str]]


def host_snapshot() -> Snapshot:
    """Sorted lines by kind; two snapshots of an unchanged host are equal."""
    return {
        "cgroups": _cgroups(),
        "folders": [_listed(path) for path in map(Path, FOLDERS) if path.is_dir()],
        "interfaces": _addresses(_said("ip", "-oneline", "address")),
        "iptables": _legacy_rules(),
        "listening": listening("tcp") + listening("udp"),
        "mounts": mounts(Path("/proc/self/mountinfo").read_text()),
        "namespaces": _namespaced_processes(),
        "nftables": _COUNTERS.sub("counter", _said("nft", "list", "ruleset")).splitlines(),
        "routes": sorted(_said("ip", "route", "show", "table", "all").splitlines()),
        "sysctls": [f"{name} = {value}" for name in SYSCTLS if (value := _read(Path("/proc/sys", name)))],
    }


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    """One line for each thing that came or went; empty where nothing did."""
    return [
        f"{kind}: {sign} {line}"
        for kind in sorted(before.keys() | after.keys())
        for sign, these, those in (("-", before, after), ("+", after, before))
        for line in these.get(kind, [])
        if line not in those.get(kind, [])
    ]


def mounts(mountinfo: str) -> list[str]:
    """`<mount point> <type> <source>`, without the numbers that differ between two equal hosts."""
    lines = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, source = right.split(" ")[:2]
        lines.append(f"{left.split(' ')[4]} {kind} {source}")
    return sorted(lines)


def listening(protocol: str) -> list[str]:
    """Local endpoints that take connections or datagrams, in the kernel's hexadecimal form.

    Without the ports that the kernel hands out to whoever asks for any: other programs' come and go.
    """
    found = set()
    first, last = (int(port) for port in _read(Path("/proc/sys/net/ipv4/ip_local_port_range")).split())
    for table in (protocol, f"{protocol}6"):
        for line in _read(Path("/proc/net", table)).splitlines()[1:]:
            _, local, _, state = line.split()[:4]
            port = int(local.rpartition(":")[2], 16)
            if (protocol == "udp" or state == LISTENING) and not first <= port <= last:
                found.add(f"{table} {local}")
    return sorted(found)


def _addresses(text: str) -> list[str]:
    """Lifetimes left out: they count down."""
    return sorted(re.sub(r"\\.*", "", line.split(": ", 1)[-1]).strip() for line in text.splitlines())


def _listed(folder: Path) -> str:
    return f"{folder}: {' '.join(sorted(path.name for path in folder.iterdir()))}"


def _cgroups() -> list[str]:
    """The top of each hierarchy: below it, other programs come and go."""
    roots = [root for root, _ in hierarchies(Path("/proc/self/mountinfo").read_text())]
    return sorted(str(child) for root in roots for child in root.iterdir() if child.is_dir())


def _legacy_rules() -> list[str]:
    """Rules of the older iptables kernel interface; asked only where there are any, since asking loads modules."""
    if not _read(Path("/proc/net/ip_tables_names")):
        return []
    lines = _said("iptables-legacy-save").splitlines()
    return [re.sub(r"\[\d+:\d+\]", "", line) for line in lines if not line.startswith("#")]


def _namespaced_processes() -> list[str]:
    """Command lines of processes of the host that run in mounts or networks of their own, and of containers' first."""
    own = _namespaces(os.getpid())
    found = []
    for process in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        status = _read(Path(f"/proc/{process}/status"))
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        is_first = len(numbers) == 2 and numbers[1] == "1"
        if is_first or (len(numbers) == 1 and _namespaces(process) not in (own, None)):
            found.append(_read(Path(f"/proc/{process}/cmdline")).replace("\0", " ").strip())
    return sorted(line for line in found if line)


def _namespaces(process: int) -> tuple[str, ...] | None:
    """None where it ended meanwhile."""
    try:
        return tuple(str(Path(f"/proc/{process}/ns/{kind}").readlink()) for kind in ("mnt", "net"))
    except OSError:
        return None


def _said(*argv: str) -> str:
    if shutil.which(argv[0]) is None:
        return ""
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
