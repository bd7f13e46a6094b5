"""What can be told from a stack's state as Pulumi writes it: whose settings fit it, and what a killed run left open.

Pure but for reading the one file. Leaves every change of a state to Pulumi's own `stack import`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def with_created(exported: Mapping[str, Any]) -> dict[str, Any] | None:
    """An exported state in which each object whose creation began, and whose end no run noted, is a resource.

    None where there is no such object. One that was not made after all is no problem: what is not there can be deleted.
    """
    deployment = exported["deployment"]
    resources, pending = deployment.get("resources") or [], deployment.get("pending_operations") or []
    noted = {resource["urn"] for resource in resources}
    begun = [each["resource"] for each in pending if each["type"] == "creating"]
    found = [
        {**resource, "id": name, "outputs": resource["inputs"]}
        for resource in begun
        if resource["urn"] not in noted and (name := name_in_cluster(resource))
    ]
    if not found:
        return None
    rest = [each for each in pending if each["type"] != "creating"]
    return {**exported, "deployment": {**deployment, "resources": [*resources, *found], "pending_operations": rest}}


def name_in_cluster(resource: Mapping[str, Any]) -> str:
    """`namespace/name`, the id that the Kubernetes provider gives; nothing for what is no object of a cluster."""
    metadata = (resource.get("inputs") or {}).get("metadata") or {}
    name = str(metadata.get("name") or "")
    return f"{metadata['namespace']}/{name}" if name and metadata.get("namespace") else name


def salt(state_file: Path) -> str | None:
    """The salt that a stack's secrets were encrypted with; empty where there are none, None where there is no state."""
    try:
        latest = json.loads(state_file.read_bytes())["checkpoint"]["latest"] or {}
    except (OSError, ValueError, KeyError):
        return None  # Pulumi's own word about such a state is the better one
    provider = latest.get("secrets_providers") or {}
    return str((provider.get("state") or {}).get("salt") or "")
