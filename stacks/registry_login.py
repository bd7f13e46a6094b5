"""Owns logins to an image registry: where people keep them, and how a registry asks for one.

Leaves pushing to the builder, which is given the same file. One idea: nothing is sent before the registry asks, and
then only over the connection that the registry itself uses, so a password never goes in the clear by accident.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from stacks.images import ImageError

_PARAMETER = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Login:
    """A user and a password, and the file they are from."""

    user: str
    password: str
    file: Path

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


def files(variables: Mapping[str, str], user_id: int) -> list[Path]:
    """Where buildah, podman and docker keep logins, in the order in which they are asked."""
    if variables.get("REGISTRY_AUTH_FILE"):
        return [Path(variables["REGISTRY_AUTH_FILE"])]
    home = Path(variables.get("HOME", "/"))
    run = variables.get("XDG_RUNTIME_DIR")
    return [
        (Path(run) if run else Path("/run/containers") / str(user_id))
        / ("containers/auth.json" if run else "auth.json"),
        home / ".config" / "containers" / "auth.json",
        Path(variables.get("DOCKER_CONFIG") or home / ".docker") / "config.json",
    ]


def find(registry: str, variables: Mapping[str, str], user_id: int | None = None) -> Login | None:
    """The login for `registry` (host[:port][/path]), or None where no file has one. ImageError: it can't be used."""
    for file in files(variables, os.getuid() if user_id is None else user_id):
        if file.is_file():
            found = _in_file(file, registry)
            if found is not None:
                return found
    return None


def _in_file(file: Path, registry: str) -> Login | None:
    try:
        document = json.loads(file.read_bytes())
        entries: Mapping[str, Any] = document.get("auths") or {}
        named = {_place(key): entry for key, entry in entries.items()}
        entry = next((named[place] for place in _places(registry) if place in named), None)
        host = registry.partition("/")[0]
        helper = (document.get("credHelpers") or {}).get(host) or (document.get("credsStore") if entry == {} else None)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ImageError(f"{file} is no file of logins: {error}") from None
    if helper:
        raise ImageError(f"{file} leaves the login to the helper {helper!r}, which is not asked here: {_remedy(host)}")
    return _login(file, host, entry) if entry else None


def _login(file: Path, host: str, entry: Mapping[str, Any]) -> Login:
    if entry.get("identitytoken"):
        raise ImageError(f"{file} has an identity token for {host}, which is not used here: {_remedy(host)}")
    try:
        user, colon, password = base64.b64decode(entry["auth"], validate=True).decode().rstrip("\0").partition(":")
    except (KeyError, TypeError, binascii.Error, UnicodeDecodeError):
        user = colon = password = ""
    if not user or not colon:
        raise ImageError(f"{file} has no user and password for {host}: {_remedy(host)}")
    return Login(user, password, file)


def _remedy(host: str) -> str:
    return f"`buildah login --authfile FILE {host}` writes a file of its own, which REGISTRY_AUTH_FILE then names"


def _places(registry: str) -> Iterator[str]:
    """The registry with its whole path first, then with less of it, its host alone last."""
    parts = registry.split("/")
    return ("/".join(parts[:count]) for count in range(len(parts), 0, -1))


def _place(key: str) -> str:
    """Old files have whole addresses as keys: `https://host/v2/`."""
    bare = key.removeprefix("https://").removeprefix("http://").rstrip("/")
    return bare.removesuffix("/v1").removesuffix("/v2")


class Challenge(httpx.Auth):
    """Answers a registry's 401: with the login itself where it asks for that, or with a token that it is good for."""

    requires_response_body = True

    def __init__(self, login: Login | None, *, plain_http: bool) -> None:
        self._login = login
        self._plain_http = plain_http

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        answer = yield request
        challenge = answer.headers.get("WWW-Authenticate", "")
        if answer.status_code != httpx.codes.UNAUTHORIZED:
            return
        if challenge.lower().startswith("bearer "):
            answer = yield self._token_request(challenge)
            request.headers["Authorization"] = f"Bearer {_token(answer)}"
            yield request
        elif challenge.lower().startswith("basic ") and self._login is not None:
            request.headers["Authorization"] = self._login.basic
            yield request

    def _token_request(self, challenge: str) -> httpx.Request:
        asked = dict(_PARAMETER.findall(challenge))
        realm = asked.pop("realm", "")
        if not realm.startswith("https://" if not self._plain_http else ("https://", "http://")):
            raise ImageError(f"the registry sends us to {realm!r} for a token; that is no place to send a login to")
        headers = {"Authorization": self._login.basic} if self._login is not None else {}
        wanted = {key: value for key, value in asked.items() if key in ("service", "scope")}
        return httpx.Request("GET", realm, params=wanted, headers=headers)


def _token(answer: httpx.Response) -> str:
    """The token in the answer of the place that gives them out."""
    try:
        body = answer.json()
        token = body.get("token") or body.get("access_token")
    except (ValueError, AttributeError):
        token = None
    if answer.status_code != httpx.codes.OK or not isinstance(token, str):
        place = answer.url.copy_with(query=None)
        raise ImageError(f"{place} gives us no token for the registry (it answers {answer.status_code}): log in again")
    return token
