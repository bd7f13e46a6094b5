"""Owns the Pulumi program: from a stack's name to its components.

Leaves the vocabulary to `spec`, the objects to `components`, and what is looked up to `images` and `model_registry`.
One idea: a stack's name says which file declares it; whatever can't be declared is one sentence, before the first
resource is registered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pulumi
import pulumi_kubernetes

from components.controllers import Controllers
from components.gateway import Gateway
from components.leader_worker_set import LeaderWorkerSets
from components.local_services import LocalServices
from components.manifests.endpoint import pod_template
from components.model_endpoint import ModelEndpoint
from components.system import System
from components.team import Team
from spec import names
from spec.endpoint import EndpointSpec
from spec.environment import Environment, effective_rollout
from spec.problems import Problem, SpecError
from spec.revision import revision_of
from stacks import images
from stacks.choosing import Place, served, told_choice
from stacks.cluster import ClusterFacts, ClusterUnknownError, authority, cluster_facts
from stacks.declared import read_environment
from stacks.images import ImageError
from stacks.lookup import HttpLookup, Lookup, MakeLookup

STACKS_VARIABLE = "KNOBLESS_STACKS"
SHOWN = 32  # the exit status that tells Pulumi's language host: the error has been shown


class StackNameError(Exception):
    """The selected stack is none of ours."""


@dataclass(frozen=True)
class Site:
    """One environment, the cluster it is for, and the checkout it is declared in."""

    root: Path
    environment: Environment
    cluster: ClusterFacts
    look_up: Lookup

    @property
    def embedded(self) -> bool:
        return self.environment.platform.context is None

    @property
    def place(self) -> Place:
        return Place(self.root, self.environment.platform.environment, self.cluster.registry, self.look_up)


def provider_of(site: Site) -> pulumi.ResourceOptions:
    """Registers the one provider that knows this cluster, as an option of every component."""
    platform = site.environment.platform
    provider = pulumi_kubernetes.Provider(
        "cluster",
        # Its certificate, address or proxy may change and be an update; another cluster is another provider.
        cluster_identifier=f"{platform.environment}/{platform.context or 'embedded'}",
        kubeconfig=site.cluster.kubeconfig,
        context=platform.context,
        enable_config_map_mutable=True,
        enable_server_side_apply=True,
    )
    return pulumi.ResourceOptions(providers={"kubernetes": provider})


def run() -> None:
    """Declare the selected stack, or end with one error that a person can act on."""
    try:
        declare(selected(), Path(pulumi.get_root_directory()), os.environ, HttpLookup)
    except SpecError as error:
        fail(told(error))
    except (ClusterUnknownError, ImageError, StackNameError) as error:
        fail(str(error))


def selected() -> names.Stack:
    try:
        return names.parse_stack(pulumi.get_stack())
    except ValueError as error:
        raise StackNameError(str(error)) from None


def fail(message: str) -> NoReturn:
    """Show one error and end; a RunError would be followed by a second error about the process's exit status."""
    pulumi.log.error(message)
    sys.exit(SHOWN)


def told(error: SpecError) -> str:
    count = len(error.problems)
    return "\n".join([f"{count} problem{'s' if count > 1 else ''} in what Git declares:", *map(str, error.problems)])


def declare(stack: names.Stack, root: Path, variables: Mapping[str, str], look_up: MakeLookup) -> None:
    """Register every resource of the stack; `root` is the checkout, `variables` the process's environment."""
    stacks = Path(variables.get(STACKS_VARIABLE) or root / names.STACKS_FOLDER)
    environment = read_environment(stacks, stack.environment)
    cluster = cluster_facts(environment.platform, variables)
    site = Site(root, environment, cluster, look_up(cluster, environment.platform.context is None))
    if isinstance(stack, names.PlatformStack):
        declare_platform(site)
    else:
        declare_endpoint(site, endpoint_of(stack, environment))


def endpoint_of(stack: names.EndpointStack, environment: Environment) -> EndpointSpec:
    spec = environment.endpoint(stack.endpoint)
    if spec is None or spec.team != stack.team:
        raise SpecError(
            [Problem(stack.file, None, None, "", f"no such file, so nothing declares the stack {stack.name}")]
        )
    return spec


def declare_platform(site: Site) -> None:
    """What all endpoints of an environment share."""
    platform = site.environment.platform
    image = site.look_up.digest(images.own_image(site.cluster.registry, site.root, images.PLATFORM))
    options = provider_of(site)
    system = System("system", options)
    before: list[pulumi.Resource] = [system.kind, system.namespace]
    controllers = Controllers("controllers", platform, image, site.cluster.prometheus, before, options)
    Gateway("gateway", platform, image, before, options)
    teams: dict[str, pulumi.Resource] = {
        name: Team(name, team, controllers.rights, options).namespace for name, team in sorted(platform.teams.items())
    }
    if site.embedded:
        LocalServices("local-services", site.cluster.registry, options)
        if site.cluster.groups or any(spec.pods_each > 1 for spec in site.environment.endpoints):
            declare_groups(site, teams, before, options)
    pulumi.export("environment", platform.environment)
    pulumi.export("gateway", site.cluster.gateway_url)
    pulumi.export("modelRegistry", site.cluster.model_registry)
    pulumi.export("image", image)
    pulumi.export("teams", {name: names.team_namespace(name) for name in sorted(platform.teams)})


def declare_groups(
    site: Site, teams: Mapping[str, pulumi.Resource], before: list[pulumi.Resource], options: pulumi.ResourceOptions
) -> None:
    """What makes groups of pods; on a cluster of a person's own it is there already."""
    image = site.look_up.digest(images.own_image(site.cluster.registry, site.root, images.LEADER_WORKER_SET))
    LeaderWorkerSets("leaderworkerset", image, authority(site.cluster), teams, before, options)


def declare_endpoint(site: Site, spec: EndpointSpec) -> None:
    """One endpoint, with its model or image found."""
    found = served(site.place, spec)
    registry = site.cluster.model_registry
    rollout = effective_rollout(spec, site.environment.platform)
    secrets = site.environment.platform.pull_secrets_of(spec.team)
    ModelEndpoint(spec.endpoint, spec, found, registry, rollout, secrets, provider_of(site))
    path = f"/serving-endpoints/{spec.endpoint}{spec.asked_at}"
    pulumi.export("url", f"{site.cluster.gateway_url or ''}{path}")
    pulumi.export("namespace", names.team_namespace(spec.team))
    pulumi.export("model", found.uri)
    pulumi.export("modelVersion", found.version)
    pulumi.export("image", found.image)
    pulumi.export("runtime", told_choice(spec, found))
    template = pod_template(spec, found, registry, rollout)
    pulumi.export("revision", revision_of(spec.endpoint, template, found.nodes))
