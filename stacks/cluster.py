"""Owns the facts of a running cluster that no file in Git can know: where it is and how it is reached.

Leaves making them to `knobless up`. One idea: a fact that Git declares is taken from Git; the file of facts fills
in what the embedded cluster was given when it started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from spec.platform import PLAIN_HTTP, PlatformSpec

VARIABLE = "KNOBLESS_CLUSTER"


class ClusterFacts(BaseModel):
    """Addresses as the program and the pods use them; `kubeconfig` is a path, so that no key enters a state.

    `registry` begins image names, so it has no scheme; `registry_plain_http` says that it has no TLS either.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    kubeconfig: str
    registry: str
    registry_plain_http: bool = False
    model_registry: str
    prometheus: str | None = None
    gateway_url: str | None = None
    node_address: str | None = None
    authority: str | None = None  # file of the local CA's certificate, where one signs what serves in the cluster
    groups: bool = False  # whether groups of pods run on the embedded cluster, whatever the files say by now


class ClusterUnknownError(Exception):
    """What is missing, and what to do about it."""


def cluster_facts(platform: PlatformSpec, variables: Mapping[str, str]) -> ClusterFacts:
    """The facts of the cluster that `platform` names; `variables` is the process's environment."""
    told = _told(variables.get(VARIABLE))
    if platform.context is None and not told:
        raise ClusterUnknownError(
            f"the embedded cluster of {platform.environment!r} is not known here: `knobless up` starts it, and "
            f'`eval "$(knobless env)"` sets {VARIABLE} and the other variables in a shell'
        )
    if platform.context is not None:
        # A file about another cluster, or about the embedded one of the same name, says nothing about this one.
        told = told if told.get("context") == platform.context else {}
        told = {"kubeconfig": str(user_kubeconfig(variables, platform.context))} | told
    facts = told | _declared(platform)
    try:
        return ClusterFacts.model_validate(facts)
    except ValidationError as error:
        fields = ", ".join(str(detail["loc"][0]) for detail in error.errors())
        raise ClusterUnknownError(f"{variables.get(VARIABLE)} does not hold what the program needs: {fields}") from None


def authority(facts: ClusterFacts) -> bytes:
    """The certificate (PEM) of the CA that signs what serves inside the embedded cluster."""
    try:
        return Path(facts.authority or "").read_bytes()
    except OSError as error:
        raise ClusterUnknownError(f"no certificate authority is known here ({error}): run `knobless up`") from None


def _declared(platform: PlatformSpec) -> dict[str, object]:
    """What Git says; the embedded registry always speaks plain HTTP, on an address of this machine."""
    if platform.registry is None or platform.model_registry is None:
        return {"registry_plain_http": True}
    return {
        "registry": platform.registry.removeprefix(PLAIN_HTTP),
        "registry_plain_http": platform.registry.startswith(PLAIN_HTTP),
        "model_registry": platform.model_registry,
        "prometheus": platform.prometheus,
    }


def _told(path: str | None) -> dict[str, object]:
    if not path or not Path(path).is_file():
        return {}
    try:
        facts = json.loads(Path(path).read_bytes())
    except ValueError:
        facts = None
    if not isinstance(facts, dict):
        raise ClusterUnknownError(f"{path} ({VARIABLE}) is no JSON object of facts: `knobless up` writes it anew")
    return facts


def user_kubeconfig(variables: Mapping[str, str], context: str) -> Path:
    """Where kubectl would look too; of several files the first that has the context, else the first."""
    listed = [Path(part) for part in variables.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = listed or [Path(variables.get("HOME", "~")) / ".kube" / "config"]
    return next((file for file in files if context in contexts(file)), files[0])


def contexts(kubeconfig: Path) -> list[str]:
    """The names of the contexts in a kubeconfig; none where it can't be read."""
    try:
        entries = yaml.safe_load(kubeconfig.read_bytes())["contexts"]
        return sorted(str(entry["name"]) for entry in entries)
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return []
