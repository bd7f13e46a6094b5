"""Owns how a build reaches what the host reaches: its CA bundle, and its settings of pip and apt.

They are mounted while an image is built and are not part of it. Leaves the building to `images`.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from embedded.instance import POOL

PROXY_VARIABLES: Final = frozenset({"http_proxy", "https_proxy", "no_proxy", "ftp_proxy", "all_proxy"})
# Every embedded cluster's addresses, and this machine's own: no proxy leads there.
DIRECT: Final = (str(POOL), "localhost", "127.0.0.1")
CA_VARIABLES: Final = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
CA_DEFAULT: Final = Path("/etc/ssl/certs/ca-certificates.crt")
CA_INSIDE: Final = "/run/knobless/ca.crt"
PIP_KEYS: Final = frozenset({"index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout"})
APT_PREFIXES: Final = ("Acquire::http", "Acquire::https", "Acquire::Check-", "Acquire::Retries")


def has_proxies(environment: Mapping[str, str]) -> bool:
    """Whether some client would send its requests through a proxy."""
    return any(value for name, value in environment.items() if name.lower() in PROXY_VARIABLES - {"no_proxy"})


def no_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """What the user excepts from their proxies and the addresses of embedded clusters, in both spellings."""
    named = (environment.get(name, "").split(",") for name in ("no_proxy", "NO_PROXY"))
    entries = dict.fromkeys(entry.strip() for entries in (*named, DIRECT) for entry in entries if entry.strip())
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(entries))


def ca_bundle(environment: Mapping[str, str]) -> Path | None:
    """The bundle the host's tools trust: a named one, else Debian's."""
    named = [Path(environment[name]) for name in CA_VARIABLES if environment.get(name)]
    return next((path for path in (*named, CA_DEFAULT) if path.is_file()), None)


def pip_conf(listed: str, has_ca: bool) -> str:
    """From the text of `pip config list`: what concerns reaching an index, an environment's word last."""
    chosen: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        scope, _, name = key.rpartition(".")
        if name in PIP_KEYS and (name not in chosen or scope == ":env:"):
            chosen[name] = str(ast.literal_eval(value))
    if has_ca:
        chosen["cert"] = CA_INSIDE
    return "[global]\n" + "".join(f"{name} = {_continued(value)}\n" for name, value in sorted(chosen.items()))


def _continued(value: str) -> str:
    """A value of several lines goes on where a line is indented."""
    return "\n  ".join(line.strip() for line in value.splitlines())


def apt_conf(dumped: str, has_ca: bool) -> str:
    """From the text of `apt-config dump Acquire`: proxies and checks. A CA file is ours inside."""
    lines = [
        line
        for line in dumped.splitlines()
        if line.startswith(APT_PREFIXES) and not line.endswith('"";') and "cainfo" not in line.lower()
    ]
    if has_ca:
        lines.append(f'Acquire::https::CAInfo "{CA_INSIDE}";')
    return "\n".join((*lines, ""))


def write_build_settings(folder: Path) -> dict[Path, str]:
    """Write the host's settings into `folder`; the answer says which file is to appear where in a build."""
    folder.mkdir(parents=True, exist_ok=True)
    bundle = ca_bundle(os.environ)
    listed = _said((sys.executable, "-m", "pip", "config", "list"))
    (folder / "pip.conf").write_text(pip_conf(listed, bundle is not None))
    (folder / "apt.conf").write_text(apt_conf(_said(("apt-config", "dump")), bundle is not None))
    mounts = {folder / "pip.conf": "/etc/pip.conf", folder / "apt.conf": "/etc/apt/apt.conf.d/90host"}
    if bundle is not None:
        shutil.copyfile(bundle, folder / "ca.crt")
        mounts[folder / "ca.crt"] = CA_INSIDE
    return mounts


def _said(argv: tuple[str, ...]) -> str:
    """What a program prints, or nothing where it is missing or fails: then there are no settings to pass on."""
    if shutil.which(argv[0]) is None:
        return ""
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""
