"""Where the API server is and who we are there: a pod's service account, or the file that KUBECONFIG names.

Its one idea: a token is read when it is needed, since a pod's token is replaced on disk every hour or so.
Exec plug-ins are refused with a sentence: in a cluster nothing of ours needs one.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TOKEN_MAX_AGE_S = 60.0


class CredentialsError(Exception):
    """No usable way to reach an API server; the text says what is missing."""


class Token:
    """A bearer token, fixed or in a file. A file is read again after a minute, or at once when refused."""

    def __init__(self, *, value: str | None = None, path: Path | None = None) -> None:
        self._value = value
        self._path = path
        self._read_at_s = float("-inf")

    def value(self, now_s: float, *, refused: bool = False) -> str | None:
        if self._path is not None and (refused or now_s - self._read_at_s > _TOKEN_MAX_AGE_S):
            self._value = self._path.read_text().strip()
            self._read_at_s = now_s
        return self._value


@dataclass(frozen=True)
class Credentials:
    """`server` is `https://host:port`; `namespace` the one we live in, where there is one."""

    server: str
    tls: ssl.SSLContext | None
    token: Token
    namespace: str | None = None


def from_environment(environ: Mapping[str, str] | None = None) -> Credentials:
    """KUBECONFIG where it is set, the pod's service account otherwise."""
    env = os.environ if environ is None else environ
    if env.get("KUBECONFIG"):
        return from_kubeconfig(Path(env["KUBECONFIG"]))
    if env.get("KUBERNETES_SERVICE_HOST"):
        return _in_cluster(env)
    raise CredentialsError("neither KUBECONFIG is set nor is this a pod with a service account")


def _in_cluster(env: Mapping[str, str]) -> Credentials:
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    host = f"[{host}]" if ":" in host else host
    return Credentials(
        server=f"https://{host}:{port}",
        tls=ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt")),
        token=Token(path=SERVICE_ACCOUNT / "token"),
        namespace=(SERVICE_ACCOUNT / "namespace").read_text().strip(),
    )


def from_kubeconfig(path: Path, context: str | None = None) -> Credentials:
    """One context of a kubeconfig: the named one, or the current one."""
    config = yaml.safe_load(path.read_text()) or {}
    name = context or config.get("current-context")
    chosen = _named(config, "contexts", "context", name)
    cluster = _named(config, "clusters", "cluster", chosen.get("cluster"))
    user = _named(config, "users", "user", chosen.get("user")) if chosen.get("user") else {}
    if "exec" in user or "auth-provider" in user:
        raise CredentialsError(f"{path}: user {chosen['user']}: exec plug-ins are not supported here")
    return Credentials(
        server=str(cluster["server"]).rstrip("/"),
        tls=_tls(cluster, user, path.parent) if str(cluster["server"]).startswith("https") else None,
        token=_token(user, path.parent),
        namespace=chosen.get("namespace"),
    )


def _named(config: Mapping[str, Any], section: str, key: str, name: object) -> dict[str, Any]:
    for entry in config.get(section) or []:
        if entry.get("name") == name:
            return dict(entry.get(key) or {})
    raise CredentialsError(f"kubeconfig: no {key} named {name!r}")


def _token(user: Mapping[str, Any], folder: Path) -> Token:
    if user.get("tokenFile"):
        return Token(path=folder / str(user["tokenFile"]))
    return Token(value=user.get("token"))


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    ca = _pem(cluster, "certificate-authority", folder)
    tls = ssl.create_default_context(cadata=ca.decode() if ca else None)
    if cluster.get("insecure-skip-tls-verify"):
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    certificate, key = _pem(user, "client-certificate", folder), _pem(user, "client-key", folder)
    if certificate and key:
        _load_client_certificate(tls, certificate, key)
    return tls


def _pem(section: Mapping[str, Any], key: str, folder: Path) -> bytes | None:
    if section.get(f"{key}-data"):
        return base64.b64decode(section[f"{key}-data"])
    return (folder / str(section[key])).read_bytes() if section.get(key) else None


def _load_client_certificate(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """The ssl module takes a client's key from a file only; ours lives as long as this call, mode 0600."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        tls.load_cert_chain(file.name)
