"""`knobless build`: the platform's image and one for each distinct model environment, built once and pushed.

Owns the build contexts and what is noted on a model afterwards. Leaves what an image holds to its Containerfile, and
building and pushing to `embedded.images`. One idea: a tag is a digest of inputs, so "is it there?" is a look-up.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx

from embedded import debian
from embedded import images as builder
from embedded.images import ImageError, Recipe
from embedded.instance import Instance
from runtimes import images as runtime_images
from spec.endpoint import EndpointSpec
from stacks import images, model_registry
from stacks.cli import local_cluster, model_facts
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.model_facts import ModelFacts
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts
from stacks.lookup import TIMEOUT_S

Report = Callable[[str], None]


def build(
    workspace: Workspace, facts: ClusterFacts, specs: Sequence[EndpointSpec], context: str | None, report: Report
) -> list[str]:
    """Build and push what is missing; returns a line an image for a person."""
    if context is not None:
        raise CliError(
            f"building images for the cluster {context!r} is not possible yet",
            hint="build images/platform and images/mlflow with your own engine and push them under the tags that "
            "`knobless plan` names",
        )
    try:
        base = debian.build(workspace.home, report)
        lines = [_push_platform(workspace, facts, base, report)]
        return lines + _push_models(workspace, facts, specs, base, report)
    except (ImageError, OSError) as error:
        raise CliError(f"an image could not be built: {error}", hint="the next run goes on from here") from error


def _push_platform(workspace: Workspace, facts: ClusterFacts, base: str, report: Report) -> str:
    """The gateway's and the controllers' image; the context is the checkout's own folders, nothing else."""
    wanted = images.platform_image(facts.registry, workspace.root)
    with tempfile.TemporaryDirectory(prefix="platform-", dir=_scratch(workspace)) as folder:
        for name in images.PLATFORM_INPUTS:
            _copy(workspace.root / name, Path(folder) / name)
        containerfile = Path(folder) / "images" / "platform" / "Containerfile"
        recipe = Recipe("platform", containerfile, Path(folder), wanted.tag, {"BASE": base})
        return f"platform     {builder.push(_instance(workspace), recipe, report)}"


def _push_models(
    workspace: Workspace, facts: ClusterFacts, specs: Sequence[EndpointSpec], base: str, report: Report
) -> list[str]:
    """Every problem of every model is told at once; images are built only where there is none."""
    found: dict[str, tuple[runtime_images.Environment, ModelFacts]] = {}
    lines, problems = [], []
    with httpx.Client(base_url=facts.model_registry, timeout=TIMEOUT_S, trust_env=False) as client:
        for spec in specs:
            try:
                model = _facts(workspace, facts.model_registry, spec, client, report)
                wanted = runtime_images.environment(runtime_images.read_files(model.folder))
            except (CliError, runtime_images.UnsupportedModelError, model_registry.ModelRegistryError) as error:
                problems.append(f"{spec.endpoint}: model: {error}")
                continue
            tag = runtime_images.image_tag(wanted, recipe_digest(workspace.root, base))
            model_facts.note(client, model, tag)
            found[tag] = (wanted, model)
            lines.append(f"{spec.endpoint:<12} {spec.model} in {images.model_image(facts.registry, tag)}")
    if problems:
        raise CliError("\n".join(problems), code=ExitCode.SPEC)
    for tag, (wanted, _) in found.items():
        _push_model(workspace, tag, wanted, base, report)
    return lines


def _facts(
    workspace: Workspace, tracking_uri: str, spec: EndpointSpec, client: httpx.Client, report: Report
) -> ModelFacts:
    """From what was read before, as long as the registry still has the model; else by reading it."""
    before = model_facts.known(workspace, tracking_uri, spec.model)
    if before is not None and model_registry.ModelRegistry(client).exists(spec.model):
        return before
    model_registry.ModelRegistry(client).require(spec.model)
    report(f"reading {spec.model}")
    return model_facts.read(workspace, tracking_uri, spec.model)


def recipe_digest(root: Path, base: str) -> str:
    """Over what we put into a model's image ourselves."""
    inputs = (root / runtime_images.CONTAINERFILE, root / runtime_images.CONTEXT_FOLDER)
    return builder.inputs_digest(inputs, {"BASE": base})


def _push_model(workspace: Workspace, tag: str, wanted: runtime_images.Environment, base: str, report: Report) -> None:
    with tempfile.TemporaryDirectory(prefix="model-", dir=_scratch(workspace)) as folder:
        context = Path(folder)
        _copy(workspace.root / runtime_images.CONTEXT_FOLDER, context / runtime_images.CONTEXT_FOLDER)
        (context / runtime_images.CONTEXT_REQUIREMENTS).write_text(wanted.requirements_text)
        containerfile = workspace.root / runtime_images.CONTAINERFILE
        builder.push(_instance(workspace), Recipe("model", containerfile, context, tag, {"BASE": base}), report)


def _instance(workspace: Workspace) -> Instance:
    return local_cluster.instance_of(workspace, 8443)  # the port of the gateway names no image


def _scratch(workspace: Workspace) -> Path:
    folder = workspace.home / "images" / "tmp"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_file():
        shutil.copyfile(source, target)
    else:
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
