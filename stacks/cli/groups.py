"""What a cluster needs before an endpoint's replicas can be groups of pods: the API of LeaderWorkerSet.

Leaves the controller to the platform's stack. One idea: a kind belongs to the cluster. On the embedded one `up` brings
it, from the module that its controller is compiled from; on a cluster of one's own it is there, or `up` stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import yaml

from components.manifests import leader_worker_set as manifests
from controllers.kube import CUSTOM_RESOURCE_DEFINITIONS, LEADER_WORKER_SETS, KubeClient, NotFound, Object
from embedded import toolchain
from spec import names
from spec.endpoint import EndpointSpec
from stacks.cli import tls
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import Workspace

KIND: Final = f"{LEADER_WORKER_SETS.plural}.{LEADER_WORKER_SETS.group}"
REMEDY: Final = "install LeaderWorkerSet 0.9 or later (https://lws.sigs.k8s.io), or leave `resources.nodes` out"
ANNOTATION: Final = f"{names.GROUP}/digest"
Report = Callable[[str], None]
_MANAGER: Final = "knobless-kinds"
_TRIES, _PAUSE_S = 100, 0.1


def wanted(specs: Iterable[EndpointSpec]) -> bool:
    return any(spec.pods_each > 1 for spec in specs)


async def standing(kube: KubeClient) -> bool:
    """Whether groups run, of whatever version: one that serves until its successor does needs its controller too."""
    try:
        return bool(await kube.list(LEADER_WORKER_SETS))
    except NotFound:
        return False


async def problems(kube: KubeClient, specs: Iterable[EndpointSpec]) -> list[str]:
    """Where the cluster does not know the kind, one line that says who needs it."""
    try:
        await kube.get(CUSTOM_RESOURCE_DEFINITIONS, None, KIND)
        return []
    except NotFound:
        spanning = ", ".join(spec.endpoint for spec in specs if spec.pods_each > 1)
        return [f"the cluster does not know LeaderWorkerSet, and replicas of {spanning} span nodes: {REMEDY}"]


async def check(kube: KubeClient, specs: Iterable[EndpointSpec]) -> None:
    """CliError where the cluster does not know the kind."""
    found = await problems(kube, specs)
    if found:
        raise CliError(*found, code=ExitCode.NOT_FOUND)


def definitions(workspace: Workspace, report: Report) -> dict[str, Path]:
    """The files of the kinds' definitions, by the names of these; built where they are missing."""
    task = toolchain.ensure_one(workspace.home, toolchain.LEADER_WORKER_SET, report)
    return {name: task.carried(name) for name in task.target.beside}


async def ensure(kube: KubeClient, found: Mapping[str, Path], ca_dir: Path, now: datetime) -> None:
    """The kinds, established, and the certificate of the controller's webhooks. `now` is aware, UTC."""
    for name, file in found.items():
        await _ensure_kind(kube, name, file)
    await tls.ensure_secret(kube, ca_dir, [manifests.HOST], now, manifests.SECRET_TLS, manifests.NAME)


async def _ensure_kind(kube: KubeClient, name: str, file: Path) -> None:
    """A definition is a megabyte of text: it is read and sent where the cluster has another one, or none."""
    if await _has(kube, name, file.name):
        return
    body: Object = await asyncio.to_thread(_read, file)
    body["metadata"].setdefault("annotations", {})[ANNOTATION] = file.name
    await kube.apply(CUSTOM_RESOURCE_DEFINITIONS, None, name, _MANAGER, body)
    for _ in range(_TRIES):
        if await _has(kube, name, file.name):
            return
        await asyncio.sleep(_PAUSE_S)
    raise CliError(f"the API server has not established {name} within {_TRIES * _PAUSE_S:.0f} s")


async def _has(kube: KubeClient, name: str, version: str) -> bool:
    """Whether the definition is there, of this version, and served."""
    try:
        found = await kube.get(CUSTOM_RESOURCE_DEFINITIONS, None, name)
    except NotFound:
        return False
    conditions = found.get("status", {}).get("conditions") or []
    established = any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
    return established and found["metadata"].get("annotations", {}).get(ANNOTATION) == version


def _read(file: Path) -> Object:
    body: Object = yaml.safe_load(file.read_bytes())
    return body
