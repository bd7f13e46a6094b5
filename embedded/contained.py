"""Owns running one image on this machine as a pod of the platform would: no root, no capability, nothing writable but
/tmp, and the host's network, so that it can be asked.

Leaves images to `images` and what is asked to its callers. One idea: what the kubelet would hand to runc is written
down here in a bundle of runc's own, so that an image which fails here fails for the reason that it would there.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from embedded import images

TAIL_LINES: Final = 20
ANYBODY: Final = 10001  # stands in for a user that an image should have named
_STOPS_S: Final = 10  # after it is killed
# The image's file system at the place that the bundle names; the first arguments are the bundle, then buildah.
_RUN: Final = """
bundle=$1 id=$2; shift 2
root=$("$@" mount "$id")
mkdir -p "$bundle/rootfs"
mount --bind "$root" "$bundle/rootfs"
exec runc --root "$bundle/state" run --bundle "$bundle" "$id"
"""
_READ: Final = """
file=$1 id=$2; shift 2
root=$("$@" mount "$id")
cat "$root$file" 2>/dev/null || true
"""
_DEVICES: Final = ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")


@dataclass(frozen=True)
class Config:
    """What an image says of its own start. `user` is as written: a number, a name, with or without a group, empty."""

    user: str
    argv: tuple[str, ...]
    env: tuple[str, ...]
    folder: str


@dataclass(frozen=True)
class Run:
    """How to start it: as which user and group, with which variables and writable folders besides its own."""

    user: int
    group: int
    env: Mapping[str, str] = field(default_factory=dict)
    writable: Sequence[str] = ()


@dataclass(frozen=True)
class Image:
    """An image that is here, as a working container of buildah's named `name`."""

    home: Path
    name: str
    config: Config

    def user_id(self) -> int | None:
        """The number of the image's user, a name looked up in its own /etc/passwd; None: not there. 0 is root."""
        user = self.config.user.partition(":")[0]
        if not user:
            return 0
        if user.isdecimal():
            return int(user)
        rows = (line.split(":") for line in self._read("/etc/passwd").splitlines())
        return next((int(row[2]) for row in rows if row[0] == user and len(row) > 3), None)

    def _read(self, file: str) -> str:
        argv = (*images.private(self.home), "sh", "-ec", _READ, "sh", file, self.name, *images.buildah(self.home))
        return subprocess.run(
            argv, env=images.environment(self.home), capture_output=True, text=True, check=True
        ).stdout


class Process:
    """One running container."""

    def __init__(self, popen: subprocess.Popen[bytes], output: Path) -> None:
        self._popen = popen
        self._output = output

    @property
    def status(self) -> int | None:
        """Its exit status once it has ended; a signal's is 128 and its number."""
        return self._popen.poll()

    def last_words(self) -> str:
        """The end of what it wrote."""
        lines = self._output.read_text(errors="replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def stop(self, seconds: float) -> int | None:
        """Tell it to end, and wait; None where it is still there after that."""
        self._popen.terminate()  # runc hands it on to the container
        with suppress(subprocess.TimeoutExpired):
            return self._popen.wait(seconds)
        return None


@contextmanager
def image(home: Path, reference: str, *, plain_http: bool = False, auth_file: Path | None = None) -> Iterator[Image]:
    """Bring an image here, for as long as it is needed. ImageError where it is nowhere, or is refused."""
    login = (f"--authfile={auth_file}",) if auth_file is not None else ()
    made = _buildah(home, "from", f"--tls-verify={str(not plain_http).lower()}", *login, reference)
    name = made.strip().splitlines()[-1]
    try:
        yield Image(home, name, _config(json.loads(_buildah(home, "inspect", name))))
    finally:
        with suppress(images.ImageError):
            _buildah(home, "rm", name)


def _config(inspected: Mapping[str, Any]) -> Config:
    said = (inspected.get("OCIv1") or {}).get("config") or {}
    argv = (*(said.get("Entrypoint") or ()), *(said.get("Cmd") or ()))
    return Config(str(said.get("User") or ""), argv, tuple(said.get("Env") or ()), str(said.get("WorkingDir") or "/"))


def _buildah(home: Path, *arguments: str) -> str:
    done = subprocess.run(
        (*images.private(home), *images.buildah(home), *arguments),
        env=images.environment(home), capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise images.ImageError(f"buildah {arguments[0]} {arguments[-1]}: {last}")
    return done.stdout


@contextmanager
def running(found: Image, run: Run) -> Iterator[Process]:
    """Start it, and see that nothing of it is left."""
    scratch = found.home / "images" / "tmp"
    with tempfile.TemporaryDirectory(prefix="check-", dir=scratch) as folder:
        place = Path(folder)
        (place / "config.json").write_text(json.dumps(bundle(found.config, run)))
        output = place / "output"
        argv = (
            *images.private(found.home),
            *("sh", "-ec", _RUN, "sh", str(place), found.name, *images.buildah(found.home)),
        )
        with output.open("wb") as sink:
            popen = subprocess.Popen(
                argv, env=images.environment(found.home), stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
            )
            try:
                yield Process(popen, output)
            finally:
                _end(place, found.name, popen)


def _end(place: Path, name: str, popen: subprocess.Popen[bytes]) -> None:
    runc = ("runc", "--root", str(place / "state"))
    subprocess.run((*runc, "kill", name, "KILL"), capture_output=True, check=False)
    with suppress(subprocess.TimeoutExpired):
        popen.wait(_STOPS_S)
    subprocess.run((*runc, "delete", "--force", name), capture_output=True, check=False)
    if popen.poll() is None:
        popen.kill()
        popen.wait()


def bundle(config: Config, run: Run) -> dict[str, Any]:
    """runc's own description of the container."""
    variables = dict(pair.partition("=")[::2] for pair in config.env)
    variables = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"} | variables | dict(run.env)
    none: dict[str, list[str]] = {kind: [] for kind in ("bounding", "effective", "inheritable", "permitted", "ambient")}
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": run.user, "gid": run.group},
            "args": list(config.argv),
            "env": [f"{name}={value}" for name, value in variables.items()],
            "cwd": config.folder,
            "capabilities": none,
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": _mounts(run.writable),
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")],
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    }


def _mounts(writable: Sequence[str]) -> list[dict[str, Any]]:
    def mount(target: str, kind: str, *options: str, source: str | None = None) -> dict[str, Any]:
        return {"destination": target, "type": kind, "source": source or kind, "options": list(options)}

    folders = [mount(target, "tmpfs", "nosuid", "nodev", "mode=1777") for target in ("/tmp", *writable)]
    shared = [] if "/dev/shm" in writable else [mount("/dev/shm", "tmpfs", "nosuid", "nodev", "mode=1777", "size=64m")]
    return [
        mount("/proc", "proc"),
        mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755"),
        mount("/dev/pts", "devpts", *_DEVICES),
        *shared,
        mount("/sys", "none", "rbind", "ro", "nosuid", "noexec", "nodev", source="/sys"),
        *(mount(file, "bind", "rbind", "ro", source=file) for file in ("/etc/resolv.conf", "/etc/hosts")),
        *folders,
    ]
