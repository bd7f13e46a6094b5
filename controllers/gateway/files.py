"""Files of the run folder: written whole by rename, and our own memory beside them.

Its one idea: a reader sees the old file or the new one, and a file that did not change is not touched.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from controllers.gateway.assignment import Assignment, Revision
from controllers.gateway.observed import Declared, Identity, Object, read_endpoint


def write(path: Path, text: str) -> bool:
    """Whether the file had to be written."""
    try:
        if path.read_text() == text:
            return False
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    return True


def write_all(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        write(folder / name, text)


def memory_text(assignment: Assignment, good: Mapping[Identity, Object]) -> str:
    """Which revision has which back end, and each endpoint object that was last good."""
    backends = [[r.endpoint, r.name, backend] for r, backend in sorted(assignment.backends.items())]
    objects = [lean(obj) for _, obj in sorted(good.items())]
    memory = {"backends": backends, "freed": list(assignment.freed), "endpoints": objects}
    return json.dumps(memory, separators=(",", ":"))


def lean(obj: Object) -> Object:
    """The object without its pod template and other controllers' prose."""
    spec = {key: value for key, value in obj.get("spec", {}).items() if key != "podTemplate"}
    metadata = {k: obj["metadata"].get(k) for k in ("namespace", "name", "generation", "creationTimestamp")}
    status = obj.get("status") or {}
    kept = {key: status[key] for key in ("trafficRevision", "revisions", "gateway") if key in status}
    scaled = {"autoscaler": {"revisions": (status.get("autoscaler") or {}).get("revisions")}}
    return {"metadata": metadata, "spec": spec, "status": kept | scaled}


def remembered(path: Path) -> tuple[Assignment, dict[Identity, Object], dict[Identity, Declared]]:
    """What `memory_text` kept; nothing where there is none or it can't be read."""
    try:
        memory = json.loads(path.read_text())
        backends = {Revision(endpoint, name): backend for endpoint, name, backend in memory["backends"]}
        assignment = Assignment(backends, tuple(memory["freed"]))
        objects = list(memory["endpoints"])
    except (OSError, ValueError, KeyError, TypeError):
        return Assignment(), {}, {}
    declared = [(obj, read_endpoint(obj)) for obj in objects]
    good = [(obj, said) for obj, said in declared if isinstance(said, Declared)]
    return assignment, {s.identity: o for o, s in good}, {s.identity: s for _, s in good}
