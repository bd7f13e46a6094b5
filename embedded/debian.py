"""Owns the base image: Debian bookworm, bootstrapped from the mirror that the host's own apt uses.

Leaves building to `images`. It stands where production's Containerfiles say `docker.io/library/debian:bookworm-slim`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from embedded import images
from embedded.host_settings import PROXY_VARIABLES
from embedded.services import SYSTEM_PATH

RELEASE: Final = "bookworm"
SOURCE: Final = Path(__file__).parents[1] / "images" / "base"
# What debootstrap unpacks before dpkg's own path-exclude is in force; debian:bookworm-slim has none of it either.
LEFT_OUT: Final = (
    "./usr/share/man/*",
    "./usr/share/info/*",
    "./usr/share/locale/*",
    "./usr/share/lintian/*",
    "./var/cache/apt/*.bin",
    "./var/cache/apt/archives/*.deb",
    "./var/lib/apt/lists/*",
    "./var/log/*",
    "./dev/*",
)

Report = Callable[[str], None]


@dataclass(frozen=True)
class Mirror:
    """Where apt gets Debian and its security updates from."""

    main: str
    security: str

    @property
    def sources(self) -> str:
        return (
            f"deb {self.main} {RELEASE} main\n"
            f"deb {self.main} {RELEASE}-updates main\n"
            f"deb {self.security} {RELEASE}-security main\n"
        )


def mirror_of(sources: Iterable[str]) -> Mirror:
    """The host's mirrors from the texts of its apt sources, one-line or deb822. Raises ImageError where there is none.

    Security updates are looked for beside the main archive where no source names them.
    """
    main, security = "", ""
    for uri in (uri.rstrip("/") for text in sources for uri in _uris(text)):
        if uri.endswith("/debian-security"):
            security = uri
        elif uri.endswith("/debian"):
            main = uri
    if not main:
        raise images.ImageError(
            "apt's sources on this machine name no Debian mirror, from which the base image is made"
        )
    return Mirror(main, security or f"{main}-security")


def _uris(text: str) -> Iterable[str]:
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["URIs:"]:
            yield from words[1:]
        elif words[:1] == ["deb"]:
            yield from (word for word in words[1:] if "://" in word)


def host_mirror() -> Mirror:
    folder = Path("/etc/apt/sources.list.d")
    files = [Path("/etc/apt/sources.list"), *sorted(folder.glob("*.list")), *sorted(folder.glob("*.sources"))]
    return mirror_of(file.read_text() for file in files if file.is_file())


def recipe(mirror: Mirror, context: Path = SOURCE) -> images.Recipe:
    """Named by our own files, the release, the mirror and what is left out; `context` gets rootfs.tar for a build."""
    arguments = {"release": RELEASE, "sources": mirror.sources, "left out": " ".join(LEFT_OUT)}
    return images.Recipe("debian", SOURCE / "Containerfile", context, images.inputs_digest((SOURCE,), arguments))


def build(home: Path, report: Report = lambda _: None) -> str:
    """The base image's name in the build storage: what a Containerfile's BASE argument takes. A minute, once."""
    mirror = host_mirror()
    wanted = recipe(mirror)
    if images.is_built(home, wanted):
        return wanted.local
    scratch = home / "images" / "tmp"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="debian-", dir=scratch) as folder:
        context = Path(folder) / "context"
        shutil.copytree(SOURCE, context)
        report(f"bootstrapping Debian {RELEASE} (once, one to three minutes)")
        _bootstrap(mirror, Path(folder) / "root", context / "rootfs.tar")
        return images.build(home, recipe(mirror, context), report)


def _bootstrap(mirror: Mirror, root: Path, archive: Path) -> None:
    """debootstrap mounts /proc and /sys below `root`: they end with a mount namespace of their own."""
    private = ("unshare", "--mount", "--propagation", "private")
    _run((*private, "debootstrap", "--variant=minbase", RELEASE, str(root), mirror.main))
    (root / "etc/apt/sources.list").write_text(mirror.sources)
    (root / "etc/hostname").unlink(missing_ok=True)
    excluded = tuple(f"--exclude={pattern}" for pattern in LEFT_OUT)
    _run(("tar", "--create", "--numeric-owner", *excluded, f"--file={archive}", f"--directory={root}", "."))


def _run(argv: tuple[str, ...]) -> None:
    proxies = {name: value for name, value in os.environ.items() if name.lower() in PROXY_VARIABLES}
    done = subprocess.run(
        argv,
        env={"PATH": SYSTEM_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"} | proxies,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise images.ImageError(f"{argv[-3]}... failed:\n" + "\n".join(done.stdout.splitlines()[-images.TAIL_LINES :]))
