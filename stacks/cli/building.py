"""`knobless build`: the platform's image and one for each distinct model environment, built once and pushed.

Owns the build contexts and what is noted on a model afterwards. Leaves what an image holds to its Containerfile, and
building and pushing to `embedded.images`. One idea: a tag is a digest of inputs, so "is it there?" is a look-up, and
where everything is there nothing is asked of this machine: no root, no builder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from embedded import debian
from embedded import images as builder
from embedded.images import Destination, Recipe
from embedded.services import SYSTEM_PATH
from runtimes import images as runtime_images
from spec.endpoint import EndpointSpec
from stacks import images, model_registry, registry_login
from stacks.cli import mlflow_env, model_facts
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.model_facts import ModelFacts
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts
from stacks.images import Image
from stacks.lookup import HttpLookup

Report = Callable[[str], None]
PROGRAMS = ("buildah", "debootstrap", "runc")
GO_ON = "the next run goes on from here"


@dataclass(frozen=True)
class Site:
    """Where images go and models come from. `embedded`: both are the embedded cluster's own."""

    workspace: Workspace
    facts: ClusterFacts
    embedded: bool
    report: Report

    @property
    def lookup(self) -> HttpLookup:
        return HttpLookup(self.facts, self.embedded)

    @property
    def destination(self) -> Destination:
        login = None if self.embedded else registry_login.find(self.facts.registry, os.environ)
        return Destination(self.facts.registry, self.facts.registry_plain_http, login.file if login else None)


def build(
    workspace: Workspace, facts: ClusterFacts, specs: Sequence[EndpointSpec], context: str | None, report: Report
) -> list[str]:
    """Build and push what is missing; returns a line an image for a person. `context` is None on the embedded one."""
    site = Site(workspace, facts, context is None, report)
    try:
        return [_push_platform(site), *_push_models(site, specs)]
    except builder.ImageError as error:
        raise CliError(f"an image could not be built: {error}", hint=GO_ON) from error
    except (images.ImageError, OSError) as error:
        raise CliError(str(error), hint=GO_ON) from error


def _push_platform(site: Site) -> str:
    """The gateway's and the controllers' image; the context is the checkout's own folders, nothing else."""
    root = site.workspace.root
    wanted = images.platform_image(site.facts.registry, root)
    found = site.lookup.find(wanted)
    if found is None:
        base = _base(site, wanted)
        with tempfile.TemporaryDirectory(prefix="platform-", dir=_scratch(site.workspace)) as folder:
            for name in images.PLATFORM_INPUTS:
                _copy(root / name, Path(folder) / name)
            containerfile = Path(folder) / "images" / "platform" / "Containerfile"
            _publish(site, Recipe("platform", containerfile, Path(folder), wanted.tag, {"BASE": base}))
        found = site.lookup.digest(wanted)
    return f"platform     {found}"


def _push_models(site: Site, specs: Sequence[EndpointSpec]) -> list[str]:
    """Every problem of every model is told at once; images are built only where there is none."""
    found: dict[str, runtime_images.Environment] = {}
    lines, problems = [], []
    recipe = recipe_digest(site.workspace.root)
    with site.lookup.model_registry() as client:
        for spec in specs:
            try:
                model = _facts(site, spec, client)
                wanted = runtime_images.environment(runtime_images.read_files(model.folder))
            except (CliError, runtime_images.UnsupportedModelError, model_registry.ModelRegistryError) as error:
                problems.append(f"{spec.endpoint}: model: {error}")
                continue
            tag = runtime_images.image_tag(wanted, recipe)
            model_facts.note(client, model, tag)
            found[tag] = wanted
            lines.append(f"{spec.endpoint:<12} {spec.model} in {images.model_image(site.facts.registry, tag)}")
    if problems:
        raise CliError("\n".join(problems), code=ExitCode.SPEC)
    for tag, wanted in found.items():
        _push_model(site, tag, wanted)
    return lines


def _facts(site: Site, spec: EndpointSpec, client: httpx.Client) -> ModelFacts:
    """From what was read before, where the registry says that it is the same; else by reading it."""
    tracking_uri = site.facts.model_registry
    noted = model_registry.ModelRegistry(client).noted_sha256(spec.model)
    before = model_facts.known(site.workspace, tracking_uri, spec.model)
    if before is not None and before.sha256 == noted:
        return before
    mlflow_env.ensure(site.workspace, site.report)
    site.report(f"reading {spec.model}")
    return model_facts.read(site.workspace, tracking_uri, spec.model)


def recipe_digest(root: Path) -> str:
    """Over what we put into a model's image ourselves. The mirror that Debian comes from is no part of it: machines
    with different ones must agree on a model's image, or each would replace the other's pods."""
    base = f"{debian.RELEASE} {builder.inputs_digest((debian.SOURCE,), {'left out': ' '.join(debian.LEFT_OUT)})}"
    inputs = (root / runtime_images.CONTAINERFILE, root / runtime_images.CONTEXT_FOLDER)
    return builder.inputs_digest(inputs, {"BASE": base})


def _push_model(site: Site, tag: str, wanted: runtime_images.Environment) -> None:
    image = images.model_image(site.facts.registry, tag)
    if site.lookup.find(image) is not None:
        return
    base = _base(site, image)
    with tempfile.TemporaryDirectory(prefix="model-", dir=_scratch(site.workspace)) as folder:
        context, root = Path(folder), site.workspace.root
        _copy(root / runtime_images.CONTEXT_FOLDER, context / runtime_images.CONTEXT_FOLDER)
        (context / runtime_images.CONTEXT_REQUIREMENTS).write_text(wanted.requirements_text)
        _publish(site, Recipe("model", root / runtime_images.CONTAINERFILE, context, tag, {"BASE": base}))


def _publish(site: Site, recipe: Recipe) -> None:
    builder.publish(site.workspace.home, recipe, site.destination, site.report)


def _base(site: Site, image: Image) -> str:
    """The base image in the build storage. CliError where this machine can't build and `image` is not there."""
    lacking = lacks(os.geteuid(), lambda program: shutil.which(program, path=SYSTEM_PATH) is not None)
    if lacking:
        raise CliError(
            f"the image {image} is not in the registry, and this machine can't build it: {'; '.join(lacking)}",
            hint="run `knobless build` on one that can, in CI for instance: `knobless up` here then needs no builder",
            code=ExitCode.MACHINE,
        )
    return debian.build(site.workspace.home, site.report)


def lacks(user_id: int, is_there: Callable[[str], bool]) -> list[str]:
    """What a machine lacks to build images, each with its remedy."""
    missing = [program for program in PROGRAMS if not is_there(program)]
    return [
        *(["this is not root, which buildah's mounts need (sudo)"] if user_id != 0 else []),
        *([f"missing: {', '.join(missing)} (apt-get install {' '.join(missing)})"] if missing else []),
    ]


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
