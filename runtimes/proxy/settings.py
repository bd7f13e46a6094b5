"""What the proxy is told on its command line, besides what the interface is told.

Owns the options, their defaults and their limits; leaves acting on them to the engine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from runtimes.interface import settings as interface

PROTOCOLS = ("mlflow", "v2", "openai", "http")


@dataclass(frozen=True, kw_only=True)
class ProxySettings(interface.Settings):
    """One proxy process."""

    upstream_port: int
    upstream_host: str = "127.0.0.1"
    health_path: str = "/health"
    protocol: tuple[str, ...] = ("mlflow",)
    path: tuple[str, ...] = ()
    load_timeout_s: float = 600.0


def parse_settings(arguments: Sequence[str] | None = None) -> ProxySettings:
    """The settings of a command line; ends the process with a usage message where they make no sense."""
    parser = argparse.ArgumentParser(prog="python -m runtimes.proxy", description="Serve what another server answers.")
    add = parser.add_argument
    add("--upstream-port", type=interface.count, required=True, help="where the other server listens")
    add("--upstream-host", default="127.0.0.1", help="its address; in a pod it is loopback")
    add("--health-path", default="/health", type=_path, help="answers 200 once the server can predict")
    add("--protocol", action="append", choices=PROTOCOLS, help="what it speaks; may be repeated (default: mlflow)")
    add("--path", action="append", type=_path, help="a path of its own that passes; may be repeated")
    add("--load-timeout-s", type=interface.seconds, default=600.0, help="the longest until it is healthy")
    interface.add_options(parser)
    given = vars(parser.parse_args(arguments))
    if not given["protocol"]:
        given["protocol"] = ("http",) if given["path"] else ("mlflow",)
    given["protocol"], given["path"] = tuple(given["protocol"]), tuple(given["path"] or ())
    if given["protocol"] == ("http",) and not given["path"]:
        parser.error("--protocol http needs at least one --path")
    return ProxySettings(**given)


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise argparse.ArgumentTypeError("must begin with /")
    return text
