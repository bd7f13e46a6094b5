"""A cluster of one's own as the command line uses it: how it is reached, its gateway's certificate, its clearing.

Leaves the cluster to its owner. One idea: what is there already (the context, the certificate, an address) is taken
as it is; only what a first `up` can't do without is made, and `down` takes away what `up` brought and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from controllers.kube import (
    CUSTOM_RESOURCE_DEFINITIONS,
    NAMESPACES,
    SECRETS,
    SERVICES,
    Gvr,
    KubeClient,
    NotFound,
    Object,
)
from controllers.kube.credentials import Credentials, CredentialsError
from spec import names
from spec.platform import PlatformSpec, load_platform
from spec.problems import SpecError
from stacks import cluster
from stacks.cli import applying, entrance, exec_credentials, tls
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.planning import StackPlan
from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.workspace import Workspace

NODES = Gvr("", "v1", "nodes", "Node", namespaced=False)
CERTIFICATE_REMEDY = (
    f"make it once: `kubectl -n {names.SYSTEM_NAMESPACE} create secret tls {names.SECRET_GATEWAY_TLS} --cert FILE "
    "--key FILE`, or let cert-manager write it; the namespace is there now"
)
RESTART = f"kubectl -n {names.SYSTEM_NAMESPACE} rollout restart deployment {names.COMPONENT_GATEWAY}"


@dataclass(frozen=True)
class Entrance:
    """The gateway as clients reach it; `ca` is what they trust besides their system's authorities."""

    url: str | None
    ca: Path | None


def context_of(workspace: Workspace) -> str | None:
    """The context that the platform's file names, or, where that can't be read, the one that was used last."""
    file = workspace.stacks / workspace.environment / names.PLATFORM_FILE
    try:
        return load_platform(file.read_bytes(), str(file), workspace.environment).context
    except (OSError, SpecError):
        return _told(workspace).get("context")


def _told(workspace: Workspace) -> dict[str, Any]:
    try:
        facts = json.loads(workspace.cluster_file.read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def note_facts(workspace: Workspace, context: str, gateway_url: str | None) -> None:
    """What the Pulumi program can't know from Git."""
    workspace.cluster_file.parent.mkdir(parents=True, exist_ok=True)
    fresh = workspace.cluster_file.with_suffix(".new")
    fresh.write_text(json.dumps({"context": context, "gateway_url": gateway_url}, indent=2) + "\n")
    fresh.rename(workspace.cluster_file)


def credentials(kubeconfig: Path, context: str) -> Credentials:
    """How the cluster is reached; raises CliError with the contexts that there are."""
    known = cluster.contexts(kubeconfig)
    if context not in known:
        there = f"contexts there: {', '.join(known)}" if known else "it has no contexts, or is not there"
        raise CliError(
            f"no context {context!r} in {kubeconfig}: {there}",
            hint="platform.yaml names the context; KUBECONFIG names the file",
            code=ExitCode.NOT_FOUND,
        )
    try:
        return exec_credentials.load(kubeconfig, context)
    except (CredentialsError, OSError, KeyError, ValueError) as error:
        raise CliError(f"the context {context!r} in {kubeconfig} can't be used: {error}") from error


async def reach(kube: KubeClient) -> None:
    """Whether the cluster answers us, and knows us."""
    await kube.get(NAMESPACES, None, "kube-system")


# The gateway's certificate and address


async def entrance_of(kube: KubeClient, platform: PlatformSpec, ca_dir: Path) -> Entrance:
    """One URL that the certificate is for; none while the cluster has given the gateway no address."""
    certificate = entrance.certificate_of(await _certificate_secret(kube) or {})
    hosts = entrance.certificate_hosts(certificate) if certificate is not None else []
    host = entrance.public_host(await _addresses(kube, platform), hosts)
    url = entrance.url(host, platform.gateway.port) if host is not None else None
    return Entrance(url, tls.ca_file(ca_dir) if _is_of_this_machine(certificate, ca_dir) else None)


async def _addresses(kube: KubeClient, platform: PlatformSpec) -> list[str]:
    if platform.gateway.expose == "NodePort":
        return entrance.node_addresses(await kube.list(NODES))
    try:
        return entrance.balancer_addresses(await kube.get(SERVICES, names.SYSTEM_NAMESPACE, names.COMPONENT_GATEWAY))
    except NotFound:
        return []


async def _certificate_secret(kube: KubeClient) -> Object | None:
    try:
        return await kube.get(SECRETS, names.SYSTEM_NAMESPACE, names.SECRET_GATEWAY_TLS)
    except NotFound:
        return None


def _is_of_this_machine(certificate: x509.Certificate | None, ca_dir: Path) -> bool:
    ca = tls.ca_file(ca_dir)
    if certificate is None or not ca.is_file():
        return False
    return entrance.issued_by(certificate, x509.load_pem_x509_certificate(ca.read_bytes()))


async def ensure_certificate(kube: KubeClient, platform: PlatformSpec, ca_dir: Path, now: datetime) -> str | None:
    """The owner's Secret is never touched. Without one, a gateway on the nodes' ports gets one of the local CA, which
    is renewed as on the embedded cluster; one behind a load balancer, which the world may see, is refused. Returns
    what a person should know, if anything.
    """
    present = await _certificate_secret(kube)
    if present is not None and not _is_of_this_machine(entrance.certificate_of(present), ca_dir):
        return None
    if present is None and platform.gateway.expose == "LoadBalancer":
        missing = f"the Secret {names.SECRET_GATEWAY_TLS} in {names.SYSTEM_NAMESPACE} (the gateway's certificate)"
        raise CliError(f"{missing} is missing", hint=CERTIFICATE_REMEDY, code=ExitCode.NOT_FOUND)
    hosts = [*await _addresses(kube, platform), *reversed(entrance.CLUSTER_NAMES)]
    if not await tls.ensure_secret(kube, ca_dir, hosts, now):
        return None
    made = f"made the gateway's certificate; clients have to trust {tls.ca_file(ca_dir)} (docs/your-own-cluster.md)"
    return made if present is None else f"{made}; a running gateway takes it after `{RESTART}`"


# down


@dataclass(frozen=True)
class Standing:
    """What an environment has on the cluster: its stacks, by the names that the backend knows, and team namespaces."""

    platform: str | None
    endpoints: tuple[str, ...]
    namespaces: tuple[str, ...]

    @property
    def stacks(self) -> tuple[str, ...]:
        """Endpoints first, then what they stand on."""
        return (*self.endpoints, *([self.platform] if self.platform is not None else []))

    @property
    def is_empty(self) -> bool:
        return not self.stacks


def standing(pulumi: Pulumi, environment: str) -> Standing:
    platform, endpoints = stacks_of(pulumi.stacks(), environment)
    teams = (pulumi.outputs(platform).get("teams") or {}) if platform is not None else {}
    return Standing(platform, endpoints, tuple(sorted(str(namespace) for namespace in teams.values())))


def stacks_of(known: Iterable[str], environment: str) -> tuple[str | None, tuple[str, ...]]:
    """(the platform's stack, those of endpoints) of one environment, among all that a backend knows."""
    platform, endpoints = None, []
    for name in known:
        try:
            stack = names.parse_stack(name)
        except ValueError:
            continue  # not one of ours
        if stack.environment != environment:
            continue
        if isinstance(stack, names.PlatformStack):
            platform = name
        else:
            endpoints.append(name)
    return platform, tuple(sorted(endpoints))


def removal(context: str, what: Standing) -> str:
    """What `down` is about to take away, for a person who then says yes or no."""
    lines = [f"On the cluster {context!r} this removes:"]
    if what.endpoints:
        lines.append(f"- endpoints, which stop answering: {', '.join(what.endpoints)}")
    if what.platform is not None:
        places = ", ".join((names.SYSTEM_NAMESPACE, *what.namespaces))
        lines.append(f"- the namespaces {places} with all that is in them: the gateway, its certificate, every key")
        lines.append(f"- the kind {names.KIND}, and every object of it")
    return "\n".join([*lines, "Images and models stay in their registries."])


def remove(pulumi: Pulumi, what: Standing, console: Console) -> None:
    """Endpoints first, side by side; then what they stood on, its protection taken off."""
    applying.apply(pulumi, tuple(StackPlan(stack, None) for stack in what.stacks), console, lambda _: lambda: None)


async def clear_leftovers(kube: KubeClient) -> None:
    """What an `up` that ended before its first stack has made. Where the kind stands, a platform does: hands off."""
    try:
        await kube.get(CUSTOM_RESOURCE_DEFINITIONS, None, names.CRD)
        return
    except NotFound:
        pass
    for found in await kube.list(NAMESPACES, labels=f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"):
        name = str(found["metadata"]["name"])
        if name == names.SYSTEM_NAMESPACE or names.team_of_namespace(name) is not None:
            await kube.delete(NAMESPACES, None, name)
