"""Owns what an endpoint's pod is made for: a model that was found and chosen for, or an image of one's own.

Leaves finding to the program and the pods to `model_pod` and `image_pod`. One idea: everything that needed a look-up is
in these values, so that a pod template is a function of a file and of one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from runtimes.selection import Choice, Runtime, Wish
from spec.endpoint import EndpointSpec

PROXY: Final = "proxy"


@dataclass(frozen=True)
class ServedModel:
    """One model, found in its registry; the images (`<registry>/<repository>@sha256:...`) that serve and bring it."""

    uri: str
    version: str
    sha256: str
    image: str
    fetch_image: str
    choice: Choice

    @property
    def runtime(self) -> str:
        return self.choice.runtime

    @property
    def first_limit(self) -> int:
        return self.choice.first_limit

    @property
    def caches_prefixes(self) -> bool:
        return self.choice.caches_prefixes

    @property
    def nodes(self) -> int:
        return self.choice.nodes


@dataclass(frozen=True)
class ServedImage:
    """One image of the user's own, by its digest, and the image of the interface that stands before it."""

    uri: str
    version: str
    image: str
    proxy_image: str
    first_limit: int

    @property
    def runtime(self) -> str:
        return PROXY

    @property
    def caches_prefixes(self) -> bool:
        """Unknown to us: its file says so."""
        return False

    @property
    def nodes(self) -> int:
        return 1

    @property
    def sha256(self) -> str:
        """The image's digest: all that it serves is in it."""
        return self.image.rpartition("sha256:")[2]


Served = ServedModel | ServedImage


def wish_of(spec: EndpointSpec) -> Wish:
    """What an endpoint's file states of what is chosen else."""
    cpu, memory, gpus = spec.resources.cpu, spec.resources.memory, spec.accelerator
    gpu_memory = gpus.gpu_memory if gpus is not None else None
    return Wish(
        runtime=Runtime(spec.runtime) if spec.runtime is not None else None,
        cpu_millicores=cpu.millicores if cpu is not None else None,
        memory_bytes=memory.bytes if memory is not None else None,
        gpus=gpus.gpus if gpus is not None else None,
        gpu_bytes=gpu_memory.bytes if gpu_memory is not None else None,
        parallelism=spec.parallelism,
        nodes=spec.resources.nodes,
    )
