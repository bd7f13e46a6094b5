"""A kubeconfig whose user is a program's word (EKS, GKE, AKS, single sign-on): asked once a command, as kubectl asks.

Owns that conversation (client.authentication.k8s.io). Leaves reading a kubeconfig to `controllers.kube`, which gets the
answer as an ordinary kubeconfig, gone when it has been read: in a cluster nothing of ours needs such a program.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from controllers.kube.credentials import Credentials, CredentialsError, from_kubeconfig

TIMEOUT_S = 60.0
ANSWERED = {"token": "token", "clientCertificateData": "client-certificate-data", "clientKeyData": "client-key-data"}
FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def load(kubeconfig: Path, context: str) -> Credentials:
    """As `from_kubeconfig`, also where the context's user is a program's word. Raises CredentialsError."""
    config = yaml.safe_load(kubeconfig.read_bytes()) or {}
    user = _named(config, "users", _named(config, "contexts", context).get("user"))
    program = user.pop("exec", None)
    if program is None:
        return from_kubeconfig(kubeconfig, context)
    user.update(fields(_ask(program, kubeconfig.parent), str(program.get("command"))))
    for section, key in (("clusters", "cluster"), ("users", "user")):
        for entry in config.get(section) or ():
            _make_absolute(entry.get(key) or {}, kubeconfig.parent)
    with tempfile.NamedTemporaryFile("w", suffix=".kubeconfig") as file:  # readable by its owner alone
        yaml.safe_dump(config, file)
        file.flush()
        return from_kubeconfig(Path(file.name), context)


def _named(config: Mapping[str, Any], section: str, name: object) -> dict[str, Any]:
    """The part of an entry that counts, to read or to change; an empty one where there is none."""
    entries: list[dict[str, Any]] = config.get(section) or []
    part = next((entry.get(section.removesuffix("s")) for entry in entries if entry.get("name") == name), None)
    return part if isinstance(part, dict) else {}


def _make_absolute(part: dict[str, Any], folder: Path) -> None:
    for name in FILES:
        if part.get(name):
            part[name] = str(folder / str(part[name]))


def _ask(program: Mapping[str, Any], folder: Path) -> str:
    """What the program prints. Like kubectl, a command with a slash is relative to the kubeconfig."""
    command = str(program.get("command"))
    argv = [str(folder / command) if "/" in command else command, *map(str, program.get("args") or ())]
    asked = {"apiVersion": program.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    own = {str(each["name"]): str(each["value"]) for each in program.get("env") or ()}
    environment = {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
    try:
        done = subprocess.run(
            argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S,
            check=True,
        )  # fmt: skip
    except FileNotFoundError:
        hint = str(program.get("installHint") or "").strip()
        raise CredentialsError(f"the program {command!r}, which knows the user, is not here. {hint}".strip()) from None
    except (subprocess.SubprocessError, OSError) as error:
        said = str(getattr(error, "stderr", None) or error).strip()[-500:]
        raise CredentialsError(f"the program {command!r}, which knows the user, failed: {said}") from None
    return done.stdout


def fields(answer: str, command: str) -> dict[str, str]:
    """A program's answer as fields of a kubeconfig's user."""
    try:
        status = json.loads(answer)["status"]
        found = {ours: str(status[theirs]) for theirs, ours in ANSWERED.items() if status.get(theirs)}
    except (ValueError, KeyError, TypeError, AttributeError):
        found = {}
    if "token" not in found and len(found) < 2:
        raise CredentialsError(f"the program {command!r} answers with neither a token nor a certificate and its key")
    # The answer has certificates as they are, a kubeconfig has them in base64.
    return {name: value if name == "token" else _base64(value) for name, value in found.items()}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
