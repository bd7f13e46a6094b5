"""Owns the step from an endpoint's file to what serves it: the model or image found, and the runtime chosen.

Leaves the rules to `runtimes.selection` and asking to `lookup`. One idea: the program, a plan and a build choose by
the same function, and whatever can't be chosen is a problem of the field that says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from components.manifests.served import Served, ServedImage, ServedModel, wish_of
from runtimes.selection import Choice, Runtime, SelectionError, select
from spec import names
from spec.endpoint import EndpointSpec
from spec.problems import Problem, SpecError
from spec.quantities import Cpu, Memory
from stacks import images
from stacks.images import ImageError
from stacks.lookup import Lookup
from stacks.model_registry import ModelRegistryError, RegisteredModel


@dataclass(frozen=True)
class Place:
    """One environment, the checkout that declares it, the registry of its images, and whom to ask."""

    root: Path
    environment: str
    registry: str
    look_up: Lookup


def served(place: Place, spec: EndpointSpec) -> Served:
    """What the file declares, found and chosen for; a SpecError names the field that keeps it from being served."""
    if spec.image is not None:
        with _blaming(place, spec, "image"):
            image = place.look_up.own(spec.image)
            proxy = place.look_up.digest(images.own_image(place.registry, place.root, images.PROXY))
        return ServedImage(str(spec.image), spec.image.version_text, image, proxy, spec.first_limit)
    assert spec.model is not None  # a file names one of the two
    with _blaming(place, spec, "model"):
        found = place.look_up.model(spec.model)
        choice = select(found.card, wish_of(spec))
        image, fetch = _images(place, found, choice)
    return ServedModel(found.uri, found.version, found.sha256, image, fetch, choice)


def _images(place: Place, found: RegisteredModel, choice: Choice) -> tuple[str, str]:
    """Of the server and of the init step: one image where the model's own environment holds MLflow."""
    if choice.runtime is not Runtime.MLFLOW:
        wanted = (images.engine_image(choice.runtime, choice.gpus, found.card.flavor), images.FETCH)
        server, fetch = (place.look_up.digest(images.own_image(place.registry, place.root, name)) for name in wanted)
        return server, fetch
    if not found.environment:
        raise ImageError(f"{found.uri} has no image yet for its own environment: run `knobless build`")
    image = place.look_up.digest(images.model_image(place.registry, found.environment))
    return image, image


@contextmanager
def _blaming(place: Place, spec: EndpointSpec, field: str) -> Iterator[None]:
    file = names.EndpointStack(place.environment, spec.team, spec.endpoint).file
    try:
        yield
    except (ModelRegistryError, ImageError) as error:
        raise SpecError([Problem(file, None, None, field, str(error))]) from None
    except SelectionError as error:
        problems = [Problem(file, None, None, each.field, each.message) for each in error.refusals]
        raise SpecError(problems) from None


def told_choice(spec: EndpointSpec, found: Served) -> str:
    """One line for a person: `mlflow, 500m CPU, 1Gi, first limit 64 (scikit-learn of 12 KiB, ...)`; a replica over
    several nodes is `vllm, 2 nodes a replica, each 4 CPU, ...`."""
    if isinstance(found, ServedImage):
        stated = "as the file says" if spec.parallelism is not None else "no parallelism is stated"
        protocol = spec.container.protocol if spec.container is not None else ""
        return f"an image of its own behind the interface ({protocol}), first limit {found.first_limit} ({stated})"
    return told(found.choice)


def told(choice: Choice) -> str:
    """The choice and its reason."""
    gpus = f", {choice.gpus} GPU{'s' if choice.gpus > 1 else ''}" if choice.gpus else ""
    size = f"{Cpu(choice.cpu_millicores)} CPU, {Memory(choice.memory_bytes)}{gpus}"
    spread = f"{choice.nodes} nodes a replica, each " if choice.nodes > 1 else ""
    return f"{choice.runtime}, {spread}{size}, first limit {choice.first_limit} ({choice.why})"
