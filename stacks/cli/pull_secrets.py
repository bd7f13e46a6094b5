"""Pull secrets: how nodes log in to an image registry, by Secrets that Git names and never holds.

Owns which namespace needs which Secret, whether it is there, and writing it from a person's own login. Leaves the
login itself to `registry_login`. One idea: a Secret that is missing is told before anything is applied that would wait
for it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from controllers.kube import NAMESPACES, SECRETS, Conflict, KubeClient, NotFound, Object
from spec import names
from spec.platform import PlatformSpec
from stacks import registry_login
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.session import Session
from stacks.images import ImageError
from stacks.registry_login import Login

MANAGER: Final = "knobless-pull-secrets"
TYPE: Final = "kubernetes.io/dockerconfigjson"
USABLE: Final = (TYPE, "kubernetes.io/dockercfg")
KEY: Final = ".dockerconfigjson"
LABELS: Final = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
REMEDY: Final = (
    "`knobless pull-secret NAME` writes it from your own login to the registry; docs/your-own-cluster.md has other "
    "ways. The namespaces are there now"
)


def wanted(platform: PlatformSpec) -> dict[str, tuple[str, ...]]:
    """Namespace -> the Secrets that its pods pull with, without namespaces that need none."""
    teams = {names.team_namespace(name): platform.pull_secrets_of(name) for name in sorted(platform.teams)}
    found = {names.SYSTEM_NAMESPACE: platform.pull_secrets} | teams
    return {namespace: secrets for namespace, secrets in found.items() if secrets}


def secret_object(name: str, registry: str, login: Login) -> Object:
    """The Secret with one login: that to the registry's host."""
    host = registry.partition("/")[0]
    entry = {"auth": login.basic.removeprefix("Basic ")}
    content = json.dumps({"auths": {host: entry}})
    return {
        "metadata": {"name": name, "labels": LABELS},
        "type": TYPE,
        "data": {KEY: base64.b64encode(content.encode()).decode()},
    }


async def problems(kube: KubeClient, needed: Mapping[str, Iterable[str]]) -> list[str]:
    """What keeps pods from pulling with the Secrets that Git names; nothing is changed."""
    found = []
    for namespace, secrets in needed.items():
        for name in secrets:
            try:
                kind = str((await kube.get(SECRETS, namespace, name)).get("type"))
            except NotFound:
                found.append(f"Secret {name} is missing in {namespace}")
                continue
            if kind not in USABLE:
                found.append(f"Secret {name} in {namespace} has the type {kind}, and must have {TYPE}")
    return found


async def check(kube: KubeClient, platform: PlatformSpec) -> None:
    """Make the namespaces that need a Secret, so that it can be put there; CliError where one is missing."""
    needed = wanted(platform)
    await _ensure_namespaces(kube, needed)
    found = await problems(kube, needed)
    if found:
        lines = "\n".join(f"- {line}" for line in found)
        raise CliError(f"nodes could not pull images:\n{lines}", hint=REMEDY, code=ExitCode.NOT_FOUND)


async def _ensure_namespaces(kube: KubeClient, namespaces: Iterable[str]) -> None:
    """With the one label that never changes: all else of a namespace is the platform's stack's, which takes it over."""
    body = {"metadata": {"labels": LABELS}}
    for namespace in namespaces:
        await kube.apply(NAMESPACES, None, namespace, MANAGER, body, force=False)


def write(session: Session, name: str, login_file: Path | None) -> None:
    """Write the Secret into every namespace that names it, again after another login. Never prints what it holds."""
    platform = session.platform()
    places = [namespace for namespace, secrets in wanted(platform).items() if name in secrets]
    if not places:
        named = ", ".join(sorted({secret for secrets in wanted(platform).values() for secret in secrets})) or "none"
        raise CliError(f"platform.yaml names no pull secret {name!r} (there: {named})", code=ExitCode.NOT_FOUND)
    facts = session.facts()
    login = own_login(facts.registry, login_file)
    session.with_kube(facts, lambda kube: put(kube, places, secret_object(name, facts.registry, login)))
    told = f"Secret {name}: the login of {login.user} to {facts.registry}, from {login.file}"
    session.console.note("\n".join([told, *(f"    written to {namespace}" for namespace in places)]))


def own_login(registry: str, login_file: Path | None) -> Login:
    """The login in the named file, else in the files of buildah and docker; CliError where there is none."""
    variables = {**os.environ, **({"REGISTRY_AUTH_FILE": str(login_file)} if login_file else {})}
    try:
        login = registry_login.find(registry, variables)
    except ImageError as error:
        raise CliError(str(error)) from error
    if login is None:
        where = login_file or "any file of buildah or docker"
        hint = f"`buildah login {registry.partition('/')[0]}`, or name a file with --login"
        raise CliError(f"there is no login to {registry} in {where}", hint=hint, code=ExitCode.NOT_FOUND)
    return login


async def put(kube: KubeClient, namespaces: Iterable[str], secret: Object) -> None:
    """Server-side apply, never by force: a Secret that something else keeps (an operator) is left to it."""
    name = secret["metadata"]["name"]
    places = list(namespaces)
    await _ensure_namespaces(kube, places)
    for namespace in places:
        try:
            await kube.apply(SECRETS, namespace, name, MANAGER, secret, force=False)
        except Conflict as error:
            message = f"Secret {name} in {namespace} is kept by something else, so it was left as it is: {error}"
            raise CliError(message) from error
