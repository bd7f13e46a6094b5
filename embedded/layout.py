"""Owns what the node sees: its own mounts, kernel settings and network, as steps that `init` carries out inside.

Leaves the host as it is. One idea: a program that insists on a path of the host's gets that path from a private mount,
so nothing has to be cleaned up afterwards: the mounts end with the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from embedded.instance import Instance
from embedded.specification import Entry, Step

INTERFACE: Final = "eth0"
# The kubelet sets these and gives up where it can't. They belong to the whole machine, so it is shown files that
# already say what it wants.
KUBELET_TUNABLES: Final[Mapping[str, str]] = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def steps(instance: Instance) -> tuple[Step, ...]:
    return (
        Step(("mount", "--make-rprivate", "/")),
        Step(("mount", "-t", "proc", "proc", "/proc")),
        # Sockets, network namespaces and pod addresses: forgotten with the node, like a machine's at a reboot.
        Step(("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")),
        *_tunables(),
        *_var_lib(instance),
        Step(("mount", "--bind", f"{instance.node}/var-log", "/var/log"), _folders(f"{instance.node}/var-log")),
        Step((), (Entry("/proc/sys/net/ipv4/ip_forward", "1"),)),
        Step(("ip", "-batch", "-"), stdin=_network(instance)),
    )


def _tunables() -> tuple[Step, ...]:
    return tuple(
        Step(("mount", "--bind", shown, f"/proc/sys/{name}"), (Entry(shown, f"{value}\n"),))
        for name, value in KUBELET_TUNABLES.items()
        for shown in (f"/run/kernel/{name}",)
    )


def _var_lib(instance: Instance) -> tuple[Step, ...]:
    """A private /var/lib that shows the host's: the kubelet and the CNI library insist on folders in it."""
    var_lib = Path("/var/lib")
    overlay = "lowerdir=/var/lib,upperdir=/run/var-lib/upper,workdir=/run/var-lib/work"
    kubelet = f"{instance.node}/kubelet"
    inside = instance.home.is_relative_to(var_lib)
    home, kept = str(instance.home), "/run/home"
    keep = Step(("mount", "--rbind", home, kept), _folders(kept))
    restore = Step(("mount", "--rbind", kept, home), _folders(home))
    return (
        *((keep,) if inside else ()),
        Step(
            ("mount", "-t", "overlay", "overlay", "-o", overlay, str(var_lib)),
            _folders("/run/var-lib/upper", "/run/var-lib/work"),
        ),
        *((restore,) if inside else ()),
        Step(("mount", "--bind", kubelet, "/var/lib/kubelet"), _folders(kubelet, "/var/lib/kubelet")),
    )


def _network(instance: Instance) -> str:
    """Pods' unused addresses are unreachable here instead of bouncing between host and node."""
    return "\n".join(
        (
            "link set lo up",
            f"addr add {instance.node_address}/{instance.link.prefixlen} dev {INTERFACE}",
            f"link set {INTERFACE} up",
            f"route add default via {instance.host_address}",
            f"route add unreachable {instance.pods}",
            "",
        )
    )


def _folders(*paths: str) -> tuple[Entry, ...]:
    return tuple(Entry(path) for path in paths)
