"""Owns the programs that the node takes from Debian: which are missing, and installing them without side effects.

A program that is there, from whatever package, is left alone: another container engine brings its own containerd.
No service is started by an installation, and none of those installed here starts at the next boot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from embedded.services import SYSTEM_PATH

# Package and the program, library or plug-in that shows it is there.
NEEDED: Final = {
    "buildah": "buildah",
    "containerd": "containerd",
    "containernetworking-plugins": "/usr/lib/cni/ptp",
    "debootstrap": "debootstrap",
    "docker-registry": "docker-registry",
    "gcc": "gcc",
    "iproute2": "ip",
    "libc6-dev": "/usr/lib/{machine}-linux-gnu/libc.a",
    "nftables": "nft",
    "prometheus": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
    "runc": "runc",
}
SERVICES: Final = {
    package: f"{package}.service"
    for package in ("containerd", "docker-registry", "prometheus", "prometheus-node-exporter")
}
POLICY: Final = Path("/usr/sbin/policy-rc.d")
SAVED_POLICY: Final = Path("/usr/sbin/policy-rc.d.before-knobless")
DENY: Final = (
    "#!/bin/sh\n# Written by knobless while it installs packages; no service is started meanwhile.\nexit 101\n"
)
DPKG_UPDATES: Final = Path("/var/lib/dpkg/updates")
APT_OPTIONS: Final = (
    *("--yes", "--quiet", "--no-install-recommends", "--no-remove"),
    *("-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0", "-o", "Dpkg::Options::=--force-confold"),
)
# A machine that installs its own updates holds the lock for minutes.
STEPS_SHOWN: Final = ("Waiting for cache lock", "Unpacking ", "Setting up ")
TAIL_LINES: Final = 15

Report = Callable[[str], None]


class PackageError(Exception):
    """apt could not install what is missing; the message ends with what it said last."""


def missing(is_there: Callable[[str], bool] | None = None) -> tuple[str, ...]:
    """Packages to install, in alphabetical order. `is_there` answers for a program's name or an absolute path."""
    there = is_there or _is_there
    return tuple(package for package, sign in NEEDED.items() if not there(sign))


def _is_there(sign: str) -> bool:
    if sign.startswith("/"):
        return Path(sign.format(machine=os.uname().machine)).exists()
    return shutil.which(sign, path=SYSTEM_PATH) is not None


def ensure(report: Report = lambda _: None) -> tuple[str, ...]:
    """Install what is missing; the answer says what that was. Raises PackageError."""
    recover(POLICY, SAVED_POLICY)
    wanted = missing()
    if not wanted:
        return ()
    report(f"installing {', '.join(wanted)}")
    # One unreachable source of the user's fails the whole update; what we need may be there all the same.
    with contextlib.suppress(PackageError):
        _apt(("update", "--quiet"), report)
    with no_services(POLICY, SAVED_POLICY):
        _finish_interrupted(report)
        _apt(("install", *APT_OPTIONS, *wanted), report)
    _disable([SERVICES[package] for package in wanted if package in SERVICES])
    left = missing()
    if left:
        raise PackageError(f"apt reports success, but {', '.join(left)} can't be found")
    return wanted


def _finish_interrupted(report: Report) -> None:
    """apt refuses to install anything after an installation that was cut off, by whomever."""
    if any(path.name.isdigit() for path in DPKG_UPDATES.glob("*")):
        report("finishing an installation that was interrupted before")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(
            ("dpkg", "--configure", "-a", "--force-confold"), env=environment, capture_output=True, check=False
        )


def _apt(arguments: tuple[str, ...], report: Report) -> None:
    """In a process group of its own: an interrupt of ours must not leave Debian's packages half installed."""
    said: deque[str] = deque(maxlen=TAIL_LINES)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C.UTF-8"}
    with subprocess.Popen(
        ("apt-get", *arguments),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip())
            if line.startswith(STEPS_SHOWN):
                report(f"  {line.strip()}")
    if process.returncode != 0:
        raise PackageError(f"apt-get {arguments[0]} failed:\n" + "\n".join(said))


@contextlib.contextmanager
def no_services(policy: Path, saved: Path) -> Iterator[None]:
    """Debian's own way to say that no service is to be started; whatever was said before is put back unchanged."""
    if policy.exists() or policy.is_symlink():
        policy.rename(saved)
    policy.write_text(DENY)
    policy.chmod(0o755)
    try:
        yield
    finally:
        recover(policy, saved)


def recover(policy: Path, saved: Path) -> None:
    """Put back what was there before, also after an installation that was interrupted."""
    if policy.is_file() and policy.read_text(errors="replace") == DENY:
        policy.unlink()
    if saved.exists() or saved.is_symlink():
        saved.rename(policy)


def _disable(units: Iterable[str]) -> None:
    """The node runs its own; a failure only means that systemd does not know the unit."""
    names = list(units)
    if names and shutil.which("systemctl"):
        subprocess.run(("systemctl", "disable", "--quiet", *names), capture_output=True, check=False)
