"""Owns the identity of one embedded cluster: every path, address, port and host-side name follows from it.

Leaves to others to make what is named here. One idea: 198.18.0.0/15 (reserved for benchmarks, routed nowhere) is cut
into sixteen slices, an instance takes one by its index, and so two instances can't meet, on disk or on a wire.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

POOL: Final = IPv4Network("198.18.0.0/15")
SLICE_PREFIX: Final = 19
INDEX_MAX: Final = 2 ** (SLICE_PREFIX - POOL.prefixlen) - 1
DEFAULT_HOME: Final = Path("/var/lib/knobless")
KNOWN_INDEX: Final = {"default": 0, "test": 1}
# "kn-" and a name make an interface name, of which the kernel takes 15 characters.
NAME_MAX: Final = 12
_NAME = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
# A socket's path has at most 107 bytes; the longest below a home is /nodes/<name>/init.sock.
HOME_MAX: Final = 107 - len(f"/nodes/{'n' * NAME_MAX}/init.sock")


# What this package makes directly below a home.
FOLDERS: Final = frozenset(
    {"containerd", "go", "go-toolchain", "images", "locks", "mlflow", "nodes", "registry", "tools"}
)


@dataclass(frozen=True)
class Instance:
    """One embedded cluster. Ports are ports of the node's own address, never of the host's."""

    name: str = "default"
    home: Path = DEFAULT_HOME
    index: int = 0
    mlflow_port: int = 5500
    gateway_port: int = 8443

    def __post_init__(self) -> None:
        problems = [problem for problem in (self._name_problem(), self._home_problem()) if problem]
        if not 0 <= self.index <= INDEX_MAX:
            problems.append(f"index {self.index} is outside 0 to {INDEX_MAX}")
        if problems:
            raise ValueError("; ".join(problems))

    def _name_problem(self) -> str | None:
        if _NAME.fullmatch(self.name) and len(self.name) <= NAME_MAX:
            return None
        return f"{self.name!r} can't name an instance: at most {NAME_MAX} of a-z, 0-9 and '-', first a letter"

    def _home_problem(self) -> str | None:
        if not self.home.is_absolute() or self.home.is_relative_to("/run"):
            return f"home {self.home} must be an absolute path outside /run"
        return f"home {self.home} is longer than {HOME_MAX} characters" if len(str(self.home)) > HOME_MAX else None

    # Addresses

    @property
    def network(self) -> IPv4Network:
        """The slice of the pool: everything this instance may ever use."""
        first = int(POOL.network_address) + (self.index << (32 - SLICE_PREFIX))
        return IPv4Network((first, SLICE_PREFIX))

    @property
    def pods(self) -> IPv4Network:
        """First half of the slice: 4,096 addresses."""
        return next(self.network.subnets(new_prefix=20))

    @property
    def services(self) -> IPv4Network:
        """Third quarter of the slice: 2,048 addresses."""
        return list(self.network.subnets(new_prefix=21))[2]

    @property
    def link(self) -> IPv4Network:
        """The last four addresses of the slice: the veth pair between host and node."""
        return IPv4Network((int(self.network.broadcast_address) - 3, 30))

    @property
    def host_address(self) -> IPv4Address:
        return self.link.network_address + 1

    @property
    def host_mac(self) -> str:
        """Of the host's end of the pair: locally administered, and of this address alone."""
        return "02:00:" + self.host_address.packed.hex(":")

    @property
    def node_address(self) -> IPv4Address:
        return self.link.network_address + 2

    @property
    def kubernetes_service_address(self) -> IPv4Address:
        """The ClusterIP that the API server gives its own Service: the first of the range."""
        return self.services.network_address + 1

    @property
    def api_server(self) -> str:
        return f"https://{self.node_address}:6443"

    @property
    def registry(self) -> str:
        return f"{self.node_address}:5000"

    @property
    def mlflow_uri(self) -> str:
        return f"http://{self.node_address}:{self.mlflow_port}"

    @property
    def prometheus(self) -> str:
        return f"http://{self.node_address}:9090"

    @property
    def gateway(self) -> str:
        """Where the gateway's NodePort answers once something serves it."""
        return f"https://{self.node_address}:{self.gateway_port}"

    # Names on the host

    @property
    def node_name(self) -> str:
        return f"knobless-{self.name}"

    @property
    def interface(self) -> str:
        """The host's end of the veth pair."""
        return f"kn-{self.name}"

    @property
    def cgroup(self) -> str:
        """The pods' parent in every cgroup hierarchy, without the leading slash."""
        return f"knobless-{self.name}"

    # Paths of the cluster's state: `down` removes all of them

    @property
    def node(self) -> Path:
        return self.home / "nodes" / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.node / "kubeconfig"

    @property
    def pki(self) -> Path:
        return self.node / "pki"

    @property
    def conf(self) -> Path:
        return self.node / "conf"

    @property
    def log(self) -> Path:
        return self.node / "log"

    @property
    def init_socket(self) -> Path:
        return self.node / "init.sock"

    @property
    def specification(self) -> Path:
        return self.node / "node.json"

    @property
    def etcd(self) -> Path:
        return self.node / "etcd"

    # Paths that outlive `down`

    @property
    def lock(self) -> Path:
        return self.home / "locks" / f"{self.name}.lock"

    @property
    def registry_data(self) -> Path:
        """Content-addressed, so all instances of a home share it."""
        return self.home / "registry"

    @property
    def mlflow_data(self) -> Path:
        return self.home / "mlflow" / self.name

    @property
    def containerd(self) -> Path:
        """Unpacked images, so that the next cluster starts its pods at once; the kubelet clears old containers."""
        return self.home / "containerd" / self.name


def registered(home: Path) -> dict[str, int]:
    """Index by name of the instances that have state below `home`."""
    found = {}
    for record in sorted(home.glob("nodes/*/index")):
        text = record.read_text().strip()
        if text.isdigit():
            found[record.parent.name] = int(text)
    return found


def choose_index(name: str, taken: dict[str, int]) -> int:
    """The index an instance had, or the one its name stands for, or the first free one."""
    if name in taken:
        return taken[name]
    if name in KNOWN_INDEX:
        return KNOWN_INDEX[name]
    used = {*taken.values(), *KNOWN_INDEX.values()}
    for index in range(INDEX_MAX + 1):
        if index not in used:
            return index
    raise ValueError(f"all {INDEX_MAX + 1} address slices are in use: {', '.join(sorted(taken))}")
