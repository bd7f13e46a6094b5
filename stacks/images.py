"""Owns the names of the images that the platform runs, and the step from a name to a digest.

Leaves building them to `knobless build`. One idea: a tag is the digest of what goes into the image, so the program
knows which image belongs to this checkout without anybody telling it; what runs is named by content alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from spec.image_reference import DOCKER_HUB, ImageReference

_HUB_HOST = "registry-1.docker.io"  # where Docker Hub's images are asked for
NAMESPACE = "knobless"
PLATFORM, PROXY, FETCH = "platform", "proxy", "fetch"
VLLM, VLLM_GPU, TRITON, TRITON_TORCH = "vllm", "vllm-gpu", "triton", "triton-torch"
LEADER_WORKER_SET = "leaderworkerset"
MODEL_REPOSITORY = f"{NAMESPACE}/model"


@dataclass(frozen=True)
class Own:
    """One image of this checkout: the folder of its Containerfile below images/, all that goes in, build arguments."""

    folder: str
    inputs: tuple[str, ...]
    arguments: Mapping[str, str] = field(default_factory=dict)


_STEP = ("runtimes/__init__.py", "runtimes/jsonlog.py", "runtimes/termination.py")
_INTERFACE = (*_STEP, "runtimes/interface")
_ENGINE = (
    *(*_INTERFACE, "runtimes/gpus.py", "runtimes/quota.py"),
    *("runtimes/images.py", "runtimes/selection.py", "runtimes/selection_card.py"),
)
_VLLM = ("images/base", "images/vllm", *_ENGINE, "runtimes/vllm", "requirements/vllm.txt", "requirements/vllm-gpu.txt")
_TRITON = (
    *("images/base", "images/triton", *_ENGINE, "runtimes/triton"),
    *("runtimes/mlflow", "runtimes/protocols"),  # what reads and writes every MLflow model's requests
    *("runtimes/requirements.txt", "requirements/triton.txt", "requirements/triton-torch.txt"),
)
# Its program is compiled from a pinned module, by flags that stand beside it.
_TOOLCHAIN = "embedded/toolchain"
_LEADER_WORKER_SET = (
    *("images/leaderworkerset", f"{_TOOLCHAIN}/modules/leaderworkerset"),
    *(f"{_TOOLCHAIN}/versions.py", f"{_TOOLCHAIN}/planning.py"),
)
# Nothing of a model is in them, so what goes in is in Git. An engine's image has the engine's name.
OWN = {
    PLATFORM: Own("platform", ("images/base", "images/platform", "requirements/platform.txt", "spec", "controllers")),
    PROXY: Own("proxy", ("images/base", "images/proxy", *_INTERFACE, "runtimes/proxy", "runtimes/requirements.txt")),
    FETCH: Own(
        "fetch",
        ("images/base", "images/fetch", *_STEP, "runtimes/digest.py", "runtimes/fetch.py", "requirements/fetch.txt"),
    ),
    VLLM: Own("vllm", _VLLM),
    VLLM_GPU: Own("vllm", _VLLM, {"REQUIREMENTS": "vllm-gpu.txt", "COMPILER": "gcc libc6-dev python3-dev"}),
    TRITON: Own("triton", _TRITON),
    TRITON_TORCH: Own("triton", _TRITON, {"REQUIREMENTS": "triton-torch.txt"}),
    LEADER_WORKER_SET: Own("leaderworkerset", _LEADER_WORKER_SET),
}
# What goes into the image of a model beside its own requirements.
MODEL_INPUTS = (
    *(*_INTERFACE, "runtimes/quota.py", "runtimes/mlflow", "runtimes/protocols", "runtimes/requirements.txt"),
    *("runtimes/digest.py", "runtimes/fetch.py"),
)
_TAG_LENGTH = 16
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DIGEST_HEADER = "Docker-Content-Digest"


class ImageError(Exception):
    """Why an image can't be named by its digest, and what to do about it."""


@dataclass(frozen=True)
class Image:
    """An image by tag. `registry` is a host with an optional port and path."""

    registry: str
    repository: str
    tag: str

    def __str__(self) -> str:
        return f"{self.registry}/{self.repository}:{self.tag}"

    def at(self, digest: str) -> str:
        return f"{self.registry}/{self.repository}@{digest}"


def own_image(registry: str, root: Path, name: str) -> Image:
    """One of this checkout's images, by a name of `OWN`."""
    return Image(registry, f"{NAMESPACE}/{name}", inputs_tag(root, OWN[name].inputs, OWN[name].arguments))


def reference_image(reference: ImageReference) -> Image:
    """An image of the user's own, which is named by its tag."""
    return Image(reference.registry, reference.repository, str(reference.tag))


def model_image(registry: str, environment: str) -> Image:
    """The image that loads models of one environment; `environment` is what `knobless build` noted on the model."""
    return Image(registry, MODEL_REPOSITORY, environment)


def engine_image(engine: str, gpus: int, flavor: str) -> str:
    """The name in `OWN` of an engine's image: vLLM's packages for GPUs are others, and only PyTorch's own networks need
    PyTorch, which is several times larger than the rest of Triton's."""
    if engine == VLLM and gpus:
        return VLLM_GPU
    return TRITON_TORCH if engine == TRITON and flavor == "pytorch" else engine


def inputs_tag(root: Path, inputs: Iterable[str], arguments: Mapping[str, str]) -> str:
    """The first digits of a SHA-256 over arguments and the inputs' paths and bytes; `inputs` are files and folders
    below `root`."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}\n"
        for path in sorted(_files(root, inputs))
    ]
    lines += [f"{name}={value}\n" for name, value in sorted(arguments.items())]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:_TAG_LENGTH]


def _files(root: Path, inputs: Iterable[str]) -> set[Path]:
    found = {
        path
        for name in inputs
        for path in ([root / name] if (root / name).is_file() else (root / name).rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
    if not found:
        raise ImageError(f"none of {', '.join(inputs)} is in {root}")
    return found


def find(client: httpx.Client, image: Image, scheme: str) -> str | None:
    """`<registry>/<repository>@sha256:...`, what the tag means now, or None where there is no such tag.

    `scheme` is the registry's, http or https; whatever credentials it asks for are the client's.
    """
    host, _, path = image.registry.partition("/")
    host = _HUB_HOST if host == DOCKER_HUB else host
    repository = f"{path}/{image.repository}" if path else image.repository
    url = f"{scheme}://{host}/v2/{repository}/manifests/{image.tag}"
    try:
        answer = client.head(url, headers={"Accept": ", ".join(_MANIFESTS)})
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ImageError(f"the registry {image.registry} does not answer: {reason}") from None
    if answer.status_code == httpx.codes.NOT_FOUND:
        return None
    digest = answer.headers.get(_DIGEST_HEADER, "")
    if answer.status_code == httpx.codes.OK and digest.startswith("sha256:"):
        return image.at(digest)
    refused = answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN)
    remedy = f": log in with `buildah login {host}`, or name a file of logins in REGISTRY_AUTH_FILE" if refused else ""
    raise ImageError(f"the registry {image.registry} answers {answer.status_code} for {image}{remedy}")


def resolve(client: httpx.Client, image: Image, scheme: str, remedy: str = "run `knobless build`") -> str:
    """As `find`; an ImageError where there is no such tag."""
    found = find(client, image, scheme)
    if found is None:
        raise ImageError(f"the image {image} is not in the registry: {remedy}")
    return found
