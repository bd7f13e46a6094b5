"""The first whole configuration, before HAProxy starts: from the API server, or from a file of its objects.

Its one idea: it is the same snapshot, assignment and rendering as later, so the first pass of `serve` changes
nothing.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Protocol

from controllers.gateway import files, render, snapshot
from controllers.gateway.assignment import assign, restore, spares, wanted
from controllers.gateway.desired import desired
from controllers.gateway.observation import PODS_OF_ENDPOINTS, Observation
from controllers.gateway.observed import Declared, Object
from controllers.gateway.settings import Settings
from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS, Gvr, KubeError
from spec import names

log = logging.getLogger(__name__)

_RETRY_S: Final = 1.0


class StartError(Exception):
    """There is no configuration to start with; the text says why."""


class Listing(Protocol):
    """What we need of the Kubernetes client to read everything once."""

    async def list(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> Iterable[Object]: ...


async def from_api(kube: Listing, wait_s: float) -> Observation:
    """Everything, once each kind could be listed; StartError where that takes longer than `wait_s`."""
    last: KubeError | None = None
    try:
        async with asyncio.timeout(wait_s):
            while True:
                try:
                    return await _listed(kube)
                except KubeError as error:
                    if str(error) != str(last):
                        log.warning("the API server can't be read yet", extra={"error": str(error)})
                    last = error
                await asyncio.sleep(_RETRY_S)
    except TimeoutError:
        raise StartError(f"the API server could not be read within {wait_s:g} s: {last}") from last


async def _listed(kube: Listing) -> Observation:
    seen = Observation()
    seen.load(
        await kube.list(MODEL_ENDPOINTS),
        await kube.list(ENDPOINT_SLICES, labels=PODS_OF_ENDPOINTS),
        await kube.list(SECRETS, names.SYSTEM_NAMESPACE, name=names.SECRET_GATEWAY_KEYS),
    )
    return seen


def from_file(path: Path) -> Observation:
    """`{"endpoints": [...], "slices": [...], "keys": {the Secret}}`, as the API server would list them."""
    objects = json.loads(path.read_text())
    seen = Observation()
    keys = [objects["keys"]] if objects.get("keys") else []
    seen.load(objects.get("endpoints", []), objects.get("slices", []), keys)
    return seen


def write(seen: Observation, settings: Settings) -> None:
    """Every file that HAProxy starts from. Routes are those that another gateway last reported, where they stand."""
    remembered, objects, good = files.remembered(settings.state)
    live = {
        said.name: said.recorded_traffic
        for said in seen.endpoints.values()
        if isinstance(said, Declared) and said.recorded_traffic
    }
    available = spares(settings.queue_classes)
    shot = snapshot.build(seen.endpoints, seen.pods, seen.keys, good, live)
    held = restore(shot.endpoints, {}, {}, remembered, available)
    assignment, _ = assign(wanted(shot.endpoints), held, available)
    target = desired(shot, assignment, live)
    files.write_all(settings.run, render.files(target, settings))
    kept = {identity: seen.objects.get(identity, objects.get(identity, {})) for identity in shot.good}
    files.write(settings.state, files.memory_text(assignment, kept))
    log.info("configuration written", extra={"endpoints": len(shot.endpoints), "problems": len(shot.problems)})


async def check(settings: Settings) -> None:
    """HAProxy's own opinion of the file, where HAProxy is on PATH."""
    binary = shutil.which("haproxy")
    if binary is None:
        return
    process = await asyncio.create_subprocess_exec(
        binary, "-c", "-f", str(settings.config), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    if process.returncode != 0:
        raise StartError(f"HAProxy refuses {settings.config}: {said.decode(errors='replace').strip()}")
