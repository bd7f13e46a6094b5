"""Pods without a cluster: network, host name, shared memory and processes' messages of their own, on one bridge.

What two processes of one machine share and two pods never do can't make a test pass that way.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

_INSIDE = """
mount -t tmpfs -o size=1g shm /dev/shm
mount --bind "$1" /etc/hosts
hostname "$2"
shift 2
exec "$@"
"""


@dataclass(frozen=True)
class Pod:
    """One that is empty yet."""

    name: str
    address: str
    hosts: Path

    def command(self, words: Sequence[str]) -> list[str]:
        """The same command in the pod, as the very process that is started."""
        own = ["unshare", "--mount", "--uts", "--ipc", "sh", "-ec", _INSIDE, "sh", str(self.hosts), self.name]
        return ["ip", "netns", "exec", self.name, *own, *words]

    def kill(self) -> None:
        """All of its processes at once."""
        told = subprocess.run(["ip", "netns", "pids", self.name], check=True, capture_output=True, text=True).stdout
        for pid in map(int, told.split()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def lose(self) -> None:
        """Its node is gone: nothing comes from it any more, nor an end of its connections."""
        _ip(["-n", self.name, "link", "set", "eth0", "down"])


@contextlib.contextmanager
def pods(count: int, folder: Path) -> Iterator[list[Pod]]:
    """So many, which find each other and this machine by address, and each other by name."""
    third, fourth = secrets.token_bytes(2)  # other tests have bridges at the same time
    network = ip_network(f"100.127.{third}.{fourth & 0xF0}/28")  # of the providers of networks, and rarely used
    bridge = f"kb{third:02x}{fourth >> 4:x}"
    here, *addresses = map(str, network.hosts())
    made = [Pod(f"{bridge}-{index}", addresses[index], folder / f"hosts-{index}") for index in range(count)]
    with ExitStack() as stack:
        _made(stack, ["link", "add", bridge, "type", "bridge"], ["link", "del", bridge])
        _ip(["addr", "add", f"{here}/{network.prefixlen}", "dev", bridge])
        _ip(["link", "set", bridge, "up"])
        for pod in made:
            pod.hosts.write_text("".join(f"{other.address} {other.name}\n" for other in made) + "127.0.0.1 localhost\n")
            _made(stack, ["netns", "add", pod.name], ["netns", "del", pod.name])
            cable = f"{pod.name}v"
            peer = ["type", "veth", "peer", "name", "eth0", "netns", pod.name]
            _made(stack, ["link", "add", cable, *peer], ["link", "del", cable])
            _ip(["link", "set", cable, "master", bridge, "up"])
            _ip(["-n", pod.name, "addr", "add", f"{pod.address}/{network.prefixlen}", "dev", "eth0"])
            for link in ("lo", "eth0"):
                _ip(["-n", pod.name, "link", "set", link, "up"])
            _ip(["-n", pod.name, "route", "add", "default", "via", here])
        for pod in made:
            stack.callback(pod.kill)
        yield made


def _made(stack: ExitStack, words: Sequence[str], back: Sequence[str]) -> None:
    _ip(words)
    stack.callback(_ip, back)


def _ip(words: Sequence[str]) -> None:
    subprocess.run(["ip", *words], check=True)
