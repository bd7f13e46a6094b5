"""`knobless build`: the images that the declared endpoints need, built once and pushed: the platform's, one for each
distinct model environment, the engines' and the interface's where an endpoint uses them.

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

from components.manifests.served import wish_of
from embedded import debian, toolchain
from embedded import images as builder
from embedded.images import Destination, Recipe
from embedded.services import SYSTEM_PATH
from runtimes import images as runtime_images
from runtimes.selection import Runtime, SelectionError, select
from spec.endpoint import EndpointSpec
from spec.model_reference import ModelReference
from stacks import images, model_registry, registry_login
from stacks.choosing import told
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
    workspace: Workspace,
    facts: ClusterFacts,
    specs: Sequence[EndpointSpec],
    context: str | None,
    report: Report,
    *,
    groups: bool = False,
) -> list[str]:
    """Build and push what is missing; returns a line an image for a person. `context` is None on the embedded one,
    which needs what makes `groups` of pods where any endpoint has some."""
    site = Site(workspace, facts, context is None, report)
    try:
        found = _choose(site, specs)
        if groups and site.embedded:
            found.add_own(images.LEADER_WORKER_SET)
        return [_push_own(site, name) for name in found.own] + _push_models(site, found)
    except builder.ImageError as error:
        raise CliError(f"an image could not be built: {error}", hint=GO_ON) from error
    except (images.ImageError, toolchain.ToolchainError, OSError) as error:
        raise CliError(str(error), hint=GO_ON) from error


@dataclass
class _Wanted:
    """What the endpoints need: this checkout's own images, environments of models by tag, and a line an endpoint."""

    own: list[str]
    models: dict[str, runtime_images.Environment]
    lines: list[str]

    def add_own(self, *names: str) -> None:
        self.own += [name for name in names if name not in self.own]


def _choose(site: Site, specs: Sequence[EndpointSpec]) -> _Wanted:
    """Every problem of every endpoint is told at once; images are built only where there is none."""
    wanted, problems = _Wanted([images.PLATFORM], {}, []), []
    recipe = recipe_digest(site.workspace.root)
    with site.lookup.model_registry() as client:
        for spec in specs:
            if spec.image is not None:
                wanted.add_own(images.PROXY)
                wanted.lines.append(f"{spec.endpoint:<12} {spec.image} behind the interface")
                continue
            try:
                _choose_model(site, spec, client, recipe, wanted)
            except SelectionError as error:
                problems += [f"{spec.endpoint}: {each.field}: {each.message}" for each in error.refusals]
            except (CliError, runtime_images.UnsupportedModelError, model_registry.ModelRegistryError) as error:
                problems.append(f"{spec.endpoint}: model: {error}")
    if problems:
        raise CliError("\n".join(problems), code=ExitCode.SPEC)
    return wanted


def _choose_model(site: Site, spec: EndpointSpec, client: httpx.Client, recipe: str, wanted: _Wanted) -> None:
    """Choose for one model, and note on it what a plan needs."""
    assert spec.model is not None  # a file names a model or an image
    model = _facts(site, spec.model, client)
    choice = select(model.card, wish_of(spec))
    tag: str | None = None
    if choice.runtime is Runtime.MLFLOW:
        environment = runtime_images.environment(runtime_images.read_files(model.folder))
        tag = runtime_images.image_tag(environment, recipe)
        wanted.models[tag] = environment
    else:
        wanted.add_own(images.engine_image(choice.runtime, choice.gpus, model.card.flavor), images.FETCH)
    model_facts.note(client, model, tag)
    wanted.lines.append(f"{spec.endpoint:<12} {spec.model}: {told(choice)}")


def _push_own(site: Site, name: str) -> str:
    """An image of this checkout's own; the context is what goes into it, nothing else."""
    root, own = site.workspace.root, images.OWN[name]
    wanted = images.own_image(site.facts.registry, root, name)
    found = site.lookup.find(wanted)
    if found is None:
        base = _base(site, wanted)
        with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=_scratch(site.workspace)) as folder:
            for each in own.inputs:
                _copy(root / each, Path(folder) / each)
            if name == images.LEADER_WORKER_SET:
                _copy_program(site, toolchain.LEADER_WORKER_SET, Path(folder))
            containerfile = Path(folder) / "images" / own.folder / "Containerfile"
            arguments = {"BASE": base, **own.arguments}
            _publish(site, Recipe(name, containerfile, Path(folder), wanted.tag, arguments))
        found = site.lookup.digest(wanted)
    return f"{name:<12} {found}"


def _copy_program(site: Site, target: toolchain.Target, context: Path) -> None:
    task = toolchain.ensure_one(site.workspace.home, target, site.report)
    shutil.copy(task.output, context / target.name)  # with its mode


def _push_models(site: Site, wanted: _Wanted) -> list[str]:
    for tag, environment in wanted.models.items():
        _push_model(site, tag, environment)
    return [f"{'model':<12} {images.model_image(site.facts.registry, tag)}" for tag in wanted.models] + wanted.lines


def _facts(site: Site, reference: ModelReference, client: httpx.Client) -> ModelFacts:
    """From what was read before, where the registry says that it is the same; else by reading it."""
    tracking_uri = site.facts.model_registry
    noted = model_registry.ModelRegistry(client).noted_sha256(reference)
    before = model_facts.known(site.workspace, tracking_uri, reference)
    if before is not None and before.sha256 == noted:
        return before
    mlflow_env.ensure(site.workspace, site.report)
    site.report(f"reading {reference}")
    return model_facts.read(site.workspace, tracking_uri, reference)


def recipe_digest(root: Path) -> str:
    """Over what we put into a model's image ourselves. The mirror that Debian comes from is no part of it: machines
    with different ones must agree on a model's image, or each would replace the other's pods."""
    base = f"{debian.RELEASE} {builder.inputs_digest((debian.SOURCE,), {'left out': ' '.join(debian.LEFT_OUT)})}"
    inputs = (root / name for name in (runtime_images.CONTAINERFILE, *images.MODEL_INPUTS))
    return builder.inputs_digest(inputs, {"BASE": base})


def _push_model(site: Site, tag: str, wanted: runtime_images.Environment) -> None:
    image = images.model_image(site.facts.registry, tag)
    if site.lookup.find(image) is not None:
        return
    base = _base(site, image)
    with tempfile.TemporaryDirectory(prefix="model-", dir=_scratch(site.workspace)) as folder:
        context, root = Path(folder), site.workspace.root
        for each in images.MODEL_INPUTS:
            _copy(root / each, context / each)
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
