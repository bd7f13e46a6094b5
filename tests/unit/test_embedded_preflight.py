"""The table of what stands in the way of a node: each row one fact about the host, and what it is told to do."""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from embedded import host
from embedded.instance import Instance
from embedded.preflight import GIB, NOTHING_CACHED, Host, Needs, Route, file_system_of, problems

INSTANCE = Instance("dev", index=2)
GOOD = Host(
    user=0,
    machine="x86_64",
    python=(3, 11),
    go=(1, 25),
    has_apt=True,
    missing_packages=("containerd",),
    memory_available_bytes=8 * GIB,
    disk_free_bytes=40 * GIB,
    home_file_system="ext4",
    cgroup_controllers=frozenset({"cpu", "cpuset", "memory", "pids"}),
    routes=(Route(IPv4Network("0.0.0.0/0"), "eth0"), Route(IPv4Network("192.0.2.0/24"), "eth0")),
    features={"namespaces": True, "overlayfs": True, "veth": None, "nftables": None},
)


@pytest.mark.parametrize("needs", [Needs(), NOTHING_CACHED])
def test_a_fresh_debian_machine_has_no_problem(needs: Needs) -> None:
    assert problems(GOOD, INSTANCE, needs) == ()


def route(network: str, interface: str = "br-1") -> dict[str, Any]:
    return {"routes": (Route(IPv4Network(network), interface),)}


@pytest.mark.parametrize(
    ("change", "what", "remedy"),
    [
        ({"user": 1000}, "this is not root", "sudo"),
        ({"machine": "riscv64"}, "this machine is riscv64", "x86_64"),
        ({"python": (3, 10)}, "Python is 3.10", "3.11"),
        ({"go": None}, "there is no Go", "1.25"),
        ({"go": (1, 24)}, "Go is 1.24", "1.25"),
        ({"has_apt": False}, "missing: containerd", "no apt-get"),
        ({"memory_available_bytes": 2 * GIB}, "2.0 GiB of memory", "3.0 GiB"),
        ({"disk_free_bytes": 3 * GIB}, "3.0 GiB are free below /var/lib/knobless", "16.0 GiB"),
        ({"home_file_system": "overlay"}, "is on overlay", "another home|a home on"),
        ({"cgroup_controllers": frozenset({"cpu", "memory"})}, "cpuset, pids", "cgroup"),
        ({"cgroups_read_only": True, "cgroup_root_held": True}, "cgroup file system is read-only", "--privileged"),
        ({"cgroup_root_held": True}, "processes are in its root cgroup", "--cgroupns=host"),
        ({"features": {"namespaces": False}}, "does not give us namespaces", "--privileged"),
        ({"features": {"overlayfs": False}}, "does not give us overlayfs", "modprobe overlay"),
        ({"features": {"veth": False}}, "does not give us veth", "modprobe veth"),
        ({"features": {"nftables": False}}, "does not give us nftables", "5.13"),
        (route("198.18.0.0/15"), r"198.18.64.0/19 are in use \(198.18.0.0/15 on br-1\)", "another address slice"),
        (route("198.18.95.254/32"), "in use", "another address slice than 2"),
    ],
)
def test_each_obstacle_is_named_with_a_remedy(change: dict[str, Any], what: str, remedy: str) -> None:
    (problem,) = problems(replace(GOOD, **change), INSTANCE, NOTHING_CACHED)
    assert re.search(what, problem.what)
    assert re.search(remedy, problem.remedy)


@pytest.mark.parametrize(
    "change",
    [
        route("198.18.64.0/20", "kn-dev"),
        route("198.18.32.0/19"),
        {"has_apt": False, "missing_packages": ()},
        {"home_file_system": None},
        {"features": {"veth": None}},
    ],
)
def test_what_is_ours_or_unknown_is_no_problem(change: dict[str, Any]) -> None:
    assert problems(replace(GOOD, **change), INSTANCE, NOTHING_CACHED) == ()


def test_go_is_asked_for_only_where_tools_are_to_be_built() -> None:
    assert problems(replace(GOOD, go=None), INSTANCE, Needs()) == ()


def test_all_problems_are_reported_at_once() -> None:
    bad = replace(GOOD, user=1, python=(3, 9), memory_available_bytes=0, features={"veth": False})
    assert len(problems(bad, INSTANCE, Needs())) == 4


MOUNTINFO = """\
21 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 21 0:25 / /var/lib rw - xfs /dev/vdb rw
31 30 0:26 / /var/lib rw - btrfs /dev/vdc rw
32 21 0:27 / /var/library rw - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"), [("/etc", "ext4"), ("/var/lib/knobless", "btrfs"), ("/var/library/x", "tmpfs"), ("/var", "ext4")]
)
def test_a_path_is_on_the_last_of_the_deepest_mounts_above_it(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTINFO) == kind


def test_observations_are_read_from_what_the_programs_print() -> None:
    assert host.go_version("go version go1.26.8 linux/amd64") == (1, 26)
    assert host.go_version("") is None
    assert host.memory_available_bytes("MemTotal: 9 kB\nMemAvailable:    2048 kB\n") == 2048 * 1024
    routes = host.routes('[{"dst":"default","dev":"eth0"},{"type":"local","dst":"127.0.0.1","dev":"lo"}]')
    assert [str(route.network) for route in routes] == ["0.0.0.0/0", "127.0.0.1/32"]
