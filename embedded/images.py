"""Owns building images from Containerfiles and bringing them into a registry, an instance's own or another.

Leaves what an image contains to its Containerfile. One idea: an image is named by a digest of everything that goes
in, so "is it built?" and "is it pushed?" are look-ups, and a second run builds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from embedded import host_settings, registry
from embedded.instance import Instance
from embedded.services import SYSTEM_PATH

NAMESPACE: Final = "knobless"
TAIL_LINES: Final = 20
# buildah insists on a cache in /var/lib/containers: it gets a private layer over /var/lib, in which `home` is the real
# one again (held open meanwhile, since its path leads into the layer) and has the cache: what is known there of a layer
# that is in the registry need not be packed again, minutes for one of gigabytes. The first argument is home, then the
# command.
PRIVATE_MOUNTS: Final = """
home=$1; private=$1/images/private; shift
exec 9<"$home"
mount -t tmpfs tmpfs "$private"
mkdir "$private/upper" "$private/work"
mount -t overlay overlay -o "lowerdir=/var/lib,upperdir=$private/upper,workdir=$private/work" /var/lib
mkdir -p "$home"
mount --no-canonicalize --rbind /proc/self/fd/9 "$home"
exec 9<&-
mkdir -p /var/lib/containers/cache
mount --bind "$home/images/cache" /var/lib/containers/cache
exec "$@"
"""

REPORT_EVERY_S: Final = 10.0

Report = Callable[[str], None]


class ImageError(Exception):
    """An image could not be built or pushed; the message ends with what the tool said last."""


@dataclass(frozen=True)
class Recipe:
    """How to build one image. `inputs_digest` covers everything that the result depends on."""

    name: str
    containerfile: Path
    context: Path
    inputs_digest: str
    build_args: Mapping[str, str] = field(default_factory=dict)

    @property
    def repository(self) -> str:
        return f"{NAMESPACE}/{self.name}"

    @property
    def tag(self) -> str:
        return self.inputs_digest[:24]

    @property
    def local(self) -> str:
        """Its name in the build storage: what another Containerfile's FROM takes."""
        return f"localhost/{self.repository}:{self.tag}"

    def published(self, instance: Instance) -> registry.Reference:
        return registry.Reference(instance.registry, self.repository, self.tag)


@dataclass(frozen=True)
class Destination:
    """A registry to push to: `host[:port][/path]`, whether it has no TLS, and the file with the login it asks for."""

    registry: str
    plain_http: bool = False
    auth_file: Path | None = None


def recipe(
    name: str, containerfile: Path, context: Path, inputs: Iterable[Path], build_args: Mapping[str, str] | None = None
) -> Recipe:
    """A recipe whose digest covers the Containerfile, the inputs (files, or folders with all in them) and arguments."""
    arguments = dict(build_args or {})
    digest = inputs_digest((containerfile, *inputs), arguments)
    return Recipe(name, containerfile, context, digest, arguments)


def inputs_digest(paths: Iterable[Path], build_args: Mapping[str, str]) -> str:
    """Over names relative to each path given, contents and the executable bit; no times, owners or places."""
    digest = hashlib.sha256(json.dumps(sorted(build_args.items())).encode())
    for top in paths:
        files = [top] if top.is_file() else sorted(path for path in top.rglob("*") if path.is_file())
        for path in files:
            if "__pycache__" in path.parts:
                continue
            name = path.name if path == top else str(path.relative_to(top))
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            digest.update(f"{name}\0{os.access(path, os.X_OK)}\0{content}\n".encode())
    return digest.hexdigest()


def build(home: Path, wanted: Recipe, report: Report = lambda _: None) -> str:
    """The image's name in the build storage below `home`. Built only where it is not there yet.

    The context is the caller's copy: its files get plain modes.
    """
    if is_built(home, wanted):
        return wanted.local
    report(f"building image {wanted.name}")
    give_plain_modes(wanted.context)
    settings = host_settings.write_build_settings(home / "images" / "settings")
    arguments = [part for key, value in wanted.build_args.items() for part in ("--build-arg", f"{key}={value}")]
    volumes = [part for source, target in settings.items() for part in ("--volume", f"{source}:{target}:ro")]
    _buildah(
        home,
        report,
        *("build", "--isolation", "oci", "--runtime", "runc", "--network", "host", "--format", "oci"),
        *("--layers", "--pull-never", "--timestamp", "0", "--file", str(wanted.containerfile)),
        *arguments,
        *volumes,
        *("--tag", wanted.local, str(wanted.context)),
    )
    return wanted.local


def give_plain_modes(context: Path) -> None:
    """As Git knows modes: a strict umask, now or at the clone, must not make an image that only root can read."""
    for path in (context, *context.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def push(instance: Instance, wanted: Recipe, report: Report = lambda _: None) -> str:
    """The image in the instance's registry, by digest. Pushed, and before that built, only where it is missing."""
    target = wanted.published(instance)
    if registry.find(target) is None:
        publish(instance.home, wanted, Destination(instance.registry, plain_http=True), report)
    return registry.resolve(str(target))


def publish(home: Path, wanted: Recipe, destination: Destination, report: Report = lambda _: None) -> None:
    """Push the image to any registry, and before that build it where it is missing. ImageError: it was refused."""
    local = build(home, wanted, report)
    report(f"pushing image {wanted.name}")
    _buildah(home, report, *push_arguments(local, wanted, destination))


def push_arguments(local: str, wanted: Recipe, destination: Destination) -> tuple[str, ...]:
    """What buildah is told. A login is in its file, so that no list of processes shows it."""
    target = registry.Reference(destination.registry, wanted.repository, wanted.tag)
    login = (f"--authfile={destination.auth_file}",) if destination.auth_file is not None else ()
    return (
        "push",
        f"--tls-verify={str(not destination.plain_http).lower()}",
        *login,
        local,
        f"docker://{target}",
    )


def is_built(home: Path, wanted: Recipe) -> bool:
    done = subprocess.run(
        (*_command(home), "images", "--quiet", wanted.local),
        env=environment(home),
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


@dataclass
class Steps:
    """Where a long run of buildah is, from what it prints. Times are seconds of a monotonic clock."""

    step: str
    began_s: float
    latest: str = ""

    def read(self, line: str, now_s: float) -> str | None:
        """What to tell of a line at once: a step of the Containerfile that begins."""
        if not line.startswith("STEP "):
            said = line.strip()
            self.latest = said if said[:1].isalnum() else self.latest  # and not a bar that has come to its end
            return None
        self.step, self.began_s, self.latest = line.partition(":")[0], now_s, ""
        return f"  {line.strip()[:100]}"

    def lasting(self, now_s: float) -> str:
        """What to tell of a step that takes long: its last line, and for how long it has run."""
        said = f": {self.latest}" if self.latest else ""
        return f"  {self.step}, {now_s - self.began_s:.0f} s{said}"[:100]


@contextmanager
def _telling(report: Report, what: str) -> Iterator[Report]:
    """Takes the lines of a run, reports its steps as they begin, and every ten seconds that it is still at one."""
    steps, ended = Steps(what, time.monotonic()), threading.Event()

    def read(line: str) -> None:
        told = steps.read(line, time.monotonic())
        if told is not None:
            report(told)

    def tick() -> None:
        while not ended.wait(REPORT_EVERY_S):
            report(steps.lasting(time.monotonic()))

    ticking = threading.Thread(target=tick, daemon=True)
    ticking.start()
    try:
        yield read
    finally:
        ended.set()
        ticking.join()


def _buildah(home: Path, report: Report, *arguments: str) -> None:
    """Run buildah, reporting where it is. Raises ImageError."""
    said: deque[str] = deque(maxlen=TAIL_LINES)
    with (
        _telling(report, arguments[0]) as tell,
        subprocess.Popen(
            (*_command(home), *arguments),
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip())
            tell(line)
    if process.returncode != 0:
        raise ImageError(f"buildah {arguments[0]} failed:\n" + "\n".join(said))


def _command(home: Path) -> tuple[str, ...]:
    """buildah with a storage of its own, in mounts of its own: nothing of it outlives it but what it built."""
    return (*private(home), *buildah(home))


def private(home: Path) -> tuple[str, ...]:
    """What stands before a command that is to have mounts of its own."""
    return ("unshare", "--mount", "--propagation", "private", "sh", "-ec", PRIVATE_MOUNTS, "sh", str(home))


def buildah(home: Path) -> tuple[str, ...]:
    """buildah on the storage below `home`, for a command in `private` mounts."""
    storage = home / "images"
    return ("buildah", "--root", str(storage / "storage"), "--runroot", str(storage / "run"))


def environment(home: Path) -> dict[str, str]:
    """The caller's proxies, none of them before an embedded registry, and what buildah needs; nothing else."""
    own = {"PATH": SYSTEM_PATH, "HOME": "/root", "STORAGE_DRIVER": "overlay", "TMPDIR": str(home / "images" / "tmp")}
    for folder in ("cache", "private", "tmp"):
        (home / "images" / folder).mkdir(parents=True, exist_ok=True)
    proxies = {name: value for name, value in os.environ.items() if name.lower() in host_settings.PROXY_VARIABLES}
    return own | proxies | host_settings.no_proxy(os.environ)
