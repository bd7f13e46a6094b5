"""How a gateway instance is set up: paths, ports, sizes; read once from the environment.

Owns names and defaults of the variables. Its one idea: what HAProxy can't take at run time stands here and
nowhere else; a change of it is the only reason for a reload.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PREFIX: Final = "KNOBLESS_GATEWAY_"
DEADLINE_MAX_S: Final = 297
# A connection at each side of a request, and room for listeners, logs and control connections.
_FILES_A_CONNECTION: Final = 2
_FILES_RESERVED: Final = 200
_CONNECTIONS_MIN: Final = 100


class SettingsError(ValueError):
    """A variable that can't be used; the text names it and what it takes."""


@dataclass(frozen=True)
class QueueClass:
    """Spare back ends whose queue gives up after `timeout_ms`: HAProxy 2.8 can't set that per request."""

    timeout_ms: int
    backends: int


def queue_classes(spare_backends: int) -> tuple[QueueClass, ...]:
    """Most spares wait as long as the default says (5 s); a sixteenth each waits 1, 15 or 60 s."""
    few = spare_backends // 16
    main = spare_backends - 3 * few
    if not few:
        return (QueueClass(5_000, main),)
    return QueueClass(1_000, few), QueueClass(5_000, main), QueueClass(15_000, few), QueueClass(60_000, few)


@dataclass(frozen=True)
class Settings:
    run: Path = Path("/run/gateway")
    certificate: Path | None = Path("/etc/gateway/tls/tls.crt")  # the key beside it; None: plain HTTP
    address: str = ""  # of every TCP listener; empty: all
    https_port: int = 8443
    stats_port: int = 8404
    exporter_port: int = 8405
    control_port: int = 8406
    queue_classes: tuple[QueueClass, ...] = field(default_factory=lambda: queue_classes(256))
    max_connections: int = 8_000
    body_max_bytes: int = 16 * 1024 * 1024
    drain_s: int = DEADLINE_MAX_S + 33  # longest deadline, and the queue before it
    api_wait_s: float = 120.0  # how long `render` waits for the API server

    @property
    def config(self) -> Path:
        return self.run / "haproxy.cfg"

    @property
    def control_socket(self) -> Path:
        return self.run / "ctl.sock"

    @property
    def master_socket(self) -> Path:
        return self.run / "master.sock"

    @property
    def state(self) -> Path:
        return self.run / "state.json"


def from_environment(env: Mapping[str, str], files_max: int | None = None) -> Settings:
    """Settings of this process; `files_max` (default: the hard limit) bounds the connections."""
    default = Settings()
    spares = _integer(env, "SPARE_BACKENDS", 256)
    wanted = _integer(env, "MAX_CONNECTIONS", default.max_connections, least=_CONNECTIONS_MIN)
    certificate = env.get(f"{PREFIX}CERTIFICATE", str(default.certificate))
    return Settings(
        run=Path(env.get(f"{PREFIX}RUN", str(default.run))),
        certificate=Path(certificate) if certificate else None,
        address=env.get(f"{PREFIX}ADDRESS", default.address),
        https_port=_integer(env, "HTTPS_PORT", default.https_port),
        stats_port=_integer(env, "STATS_PORT", default.stats_port),
        exporter_port=_integer(env, "EXPORTER_PORT", default.exporter_port),
        control_port=_integer(env, "CONTROL_PORT", default.control_port),
        queue_classes=queue_classes(spares),
        max_connections=connections_that_fit(wanted, _hard_limit() if files_max is None else files_max),
        body_max_bytes=_integer(env, "BODY_MAX_BYTES", default.body_max_bytes),
        api_wait_s=float(_integer(env, "API_WAIT_S", int(default.api_wait_s))),
    )


def connections_that_fit(wanted: int, files_max: int) -> int:
    """HAProxy does not start with more connections than half its files: 8,000 in 4,096 files become 1,948."""
    return max(_CONNECTIONS_MIN, min(wanted, (files_max - _FILES_RESERVED) // _FILES_A_CONNECTION))


def _hard_limit() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1 << 30 if hard == resource.RLIM_INFINITY else hard


def _integer(env: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = env.get(PREFIX + name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise SettingsError(f"{PREFIX}{name} is {text!r}: an integer of at least {least} is needed")
    return int(text)
