"""Owns the facts of a running cluster that no file in Git can know: where it is and how it is reached.

Leaves making them to `knobless up`. One idea: a fact that Git declares is taken from Git; the file of facts fills
in what the embedded cluster was given when it started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from spec.platform import PlatformSpec

VARIABLE = "KNOBLESS_CLUSTER"


class ClusterFacts(BaseModel):
    """Addresses as the program and the pods use them; `kubeconfig` is a path, so that no key enters a state."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kubeconfig: str
    registry: str
    model_registry: str
    gateway_url: str | None = None
    node_address: str | None = None


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
    declared = {"registry": platform.registry, "model_registry": platform.model_registry}
    facts = _of_user(variables) | told | {key: value for key, value in declared.items() if value is not None}
    try:
        return ClusterFacts.model_validate(facts)
    except ValidationError as error:
        fields = ", ".join(str(detail["loc"][0]) for detail in error.errors())
        raise ClusterUnknownError(f"{variables.get(VARIABLE)} does not hold what the program needs: {fields}") from None


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


def _of_user(variables: Mapping[str, str]) -> dict[str, object]:
    """Where kubectl would look too; of several files, the first."""
    first = variables.get("KUBECONFIG", "").split(os.pathsep)[0]
    return {"kubeconfig": first or str(Path(variables.get("HOME", "~")) / ".kube" / "config")}
