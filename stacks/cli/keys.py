"""API keys: 256 random bits shown once, stored as SHA-256 in one Secret that only this module writes.

The gateway's control plane watches the Secret, so a key works, or stops working, within a second, without a restart.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from controllers.kube import SECRETS, Conflict, KubeClient, NotFound
from spec import names
from stacks.cli.errors import CliError, ExitCode

PREFIX = "kn_"
ATTEMPTS = 5


@dataclass(frozen=True)
class KeyEntry:
    """What the cluster keeps of a key: never the key."""

    team: str
    sha256: str
    created: str


@dataclass(frozen=True)
class NewKey:
    """A key just made; `secret` exists only here and in the file it is saved to."""

    key_id: str
    secret: str
    entry: KeyEntry


def make_key(team: str, created: str) -> NewKey:
    """A fresh key for a team. `created`: RFC 3339."""
    secret = PREFIX + secrets.token_urlsafe(32)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return NewKey(f"{team}-{digest[:8]}", secret, KeyEntry(team, digest, created))


def save(folder: Path, key: NewKey) -> Path:
    """Write the key to a file that only its owner can read, named by team and id."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"{key.key_id}.key"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as sink:
        sink.write(key.secret + "\n")
    return path


def saved(folder: Path, team: str, known: dict[str, KeyEntry]) -> tuple[str, str] | None:
    """(key id, key) of a saved key that the cluster still accepts for this team, if there is one."""
    for key_id, entry in sorted(known.items()):
        path = folder / f"{key_id}.key"
        if entry.team == team and path.is_file():
            secret = path.read_text().strip()
            if hashlib.sha256(secret.encode()).hexdigest() == entry.sha256:
                return key_id, secret
    return None


def decode(secret: dict[str, Any]) -> dict[str, KeyEntry]:
    """Key id -> entry, of the Secret's data."""
    return {
        key_id: KeyEntry(**json.loads(base64.b64decode(text))) for key_id, text in (secret.get("data") or {}).items()
    }


def encode(entries: dict[str, KeyEntry]) -> dict[str, str]:
    return {
        key_id: base64.b64encode(json.dumps(asdict(entry), sort_keys=True).encode()).decode()
        for key_id, entry in sorted(entries.items())
    }


async def entries(kube: KubeClient) -> dict[str, KeyEntry]:
    """All keys the cluster accepts."""
    try:
        return decode(await kube.get(SECRETS, names.SYSTEM_NAMESPACE, names.SECRET_GATEWAY_KEYS))
    except NotFound:
        return {}


async def add(kube: KubeClient, key: NewKey) -> None:
    """Make a key valid."""
    await _change(kube, lambda known: {**known, key.key_id: key.entry})


async def revoke(kube: KubeClient, key_id: str) -> None:
    """Make a key invalid; raises CliError where there is none of this id."""

    def without(known: dict[str, KeyEntry]) -> dict[str, KeyEntry]:
        if key_id not in known:
            raise CliError(f"no key {key_id!r}", hint="`knobless keys list` shows them", code=ExitCode.NOT_FOUND)
        return {name: entry for name, entry in known.items() if name != key_id}

    await _change(kube, without)


async def _change(kube: KubeClient, change: Any) -> None:
    """Read, change, write with the version that was read; again when somebody wrote in between."""
    for _ in range(ATTEMPTS):
        try:
            secret = await kube.get(SECRETS, names.SYSTEM_NAMESPACE, names.SECRET_GATEWAY_KEYS)
        except NotFound:
            secret = await kube.create(SECRETS, names.SYSTEM_NAMESPACE, _empty(), "knobless-keys")
        secret["data"] = encode(change(decode(secret)))
        try:
            await kube.replace(SECRETS, names.SYSTEM_NAMESPACE, secret, "knobless-keys")
            return
        except Conflict:
            continue
    raise CliError("the keys changed five times while this one was written", hint="run the command again")


def _empty() -> dict[str, Any]:
    labels = names.managed_labels(names.COMPONENT_GATEWAY)
    return {"metadata": {"name": names.SECRET_GATEWAY_KEYS, "labels": labels}, "type": "Opaque"}
