"""Owns what a file says of a container of one's own: how it is reached, asked and told to end.

Leaves the pod around it to `components`. One idea: the platform's interface stands before it in the same pod, so that
a foreign server needs to keep only these few promises; `knobless check-image` tries them.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from spec import names
from spec.quantities import Cpu, Memory
from spec.reading import Allowed, SpecModel, echo, refused

CONTAINER_FORMS: Final = "{protocol: mlflow | v2 | openai | http, port: ..., health: ...}"
PROXY_PORT: Final = 18080  # of the interface in the same pod; the container's own port is another one
PROXY_CPU: Final = Cpu(1000)
PROXY_CPU_REQUEST: Final = Cpu(50)
PROXY_MEMORY: Final = Memory(384 * 1024**2)
IMAGE_PARALLELISM: Final = 8  # first limit of a container that declares none: a guess that hurts few
HEALTH: Final = {"mlflow": "/health", "v2": "/v2/health/ready", "openai": "/health"}
PREDICTS: Final = {"mlflow": "/invocations", "v2": "/v2/models/{name}/infer", "openai": "/v1/chat/completions"}
PATHS_MOST: Final = 32
_FOLDER = re.compile(r"(?:/[A-Za-z0-9._-]+)+")
_OURS: Final = ("/ping", "/health", "/live", "/version", "/metrics")  # the interface answers these itself
_NO_FOLDERS: Final = ("/proc", "/sys", "/etc", "/bin", "/sbin", "/usr", "/lib", "/lib64", "/tmp")

Protocol = Literal["mlflow", "v2", "openai", "http"]


def _check_port(port: int) -> int:
    if port == PROXY_PORT:
        raise refused(f"{PROXY_PORT} is the port of the platform's interface in the same pod: choose another one")
    if port < 1024:
        raise refused(
            f"{port} is a port for root, which no container is: set the server to a higher one", "1024 to 65535"
        )
    return port


def _check_path(path: str) -> str:
    if not re.fullmatch(names.URL_PATH, path) or len(path) > names.URL_PATH_MAX:
        raise refused(f"{echo(path)} is no path: it begins with /, no segment is empty or only dots, no ? # %")
    return path


def _check_own_path(path: str) -> str:
    if path in _OURS:
        raise refused(f"{path} is answered by the platform's interface: the container's health path is `health`")
    return _check_path(path)


def _check_each_once(paths: tuple[str, ...]) -> tuple[str, ...]:
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise refused(f"{twice} stands there twice")
    return paths


def _check_folder(folder: str) -> str:
    if not _FOLDER.fullmatch(folder) or ".." in folder or folder.startswith(_NO_FOLDERS):
        raise refused(f"{echo(folder)} can't be made writable: name a folder of the server's own (/tmp is writable)")
    return folder


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Path = Annotated[str, AfterValidator(_check_path)]
OwnPaths = Annotated[
    tuple[Annotated[str, AfterValidator(_check_own_path)], ...],
    AfterValidator(_check_each_once),
    BeforeValidator(_as_tuple),
]
Folders = Annotated[tuple[Annotated[str, AfterValidator(_check_folder)], ...], BeforeValidator(_as_tuple)]


class Container(SpecModel):
    """A foreign server's promises. It runs as the image's own user (or `user`), never as root, without capabilities,
    on a file system that it can't write but for /tmp and what `writable` names. `paths` take requests beside those of
    the protocol; http has none of its own."""

    protocol: Annotated[Protocol, Allowed("mlflow, v2, openai, http")]
    port: Annotated[int, AfterValidator(_check_port)] = Field(default=8080, ge=1, le=65_535)
    health: Path | None = None
    paths: OwnPaths = Field(default=(), max_length=PATHS_MOST)
    writable: Folders = Field(default=(), max_length=16)
    user: int | None = Field(default=None, ge=1, le=2_147_483_647)
    stop_s: int = Field(default=15, ge=1, le=120)

    @model_validator(mode="after")
    def _check(self) -> Container:
        if self.protocol != "http":
            return self
        if not self.paths:
            raise refused("the protocol http has no paths of its own: name those that take requests", field="paths")
        if self.health is None:
            raise refused("the protocol http has no health path of its own: name it", field="health")
        return self

    def asked_at(self, name: str) -> str:
        """The path that takes a prediction of the endpoint of this name: http has the first that is declared."""
        return PREDICTS[self.protocol].format(name=name) if self.protocol in PREDICTS else self.paths[0]

    @property
    def health_path(self) -> str:
        """Where the container says with a 200 that it takes requests."""
        return self.health or HEALTH[self.protocol]
