"""A real registry that asks for a login: what is pushed with one is found with it, and not without."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest

from embedded import images as builder
from embedded.images import Destination, Recipe
from embedded.instance import DEFAULT_HOME
from stacks.cluster import ClusterFacts
from stacks.images import Image, ImageError
from stacks.lookup import HttpLookup

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]  # the builder needs what a node needs

HOME: Final = Path(os.environ.get("KNOBLESS_HOME") or DEFAULT_HOME)
PASS_WORD: Final = "$2b$04$YIzEqb7Lev01.b/RvUQJIe2F/cNE/rMOPak4veypB9AGoucZ95Z4G"  # bcrypt of pass:word
CONFIG: Final = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: 127.0.0.1:{port}}}
auth: {{htpasswd: {{realm: here, path: {folder}/htpasswd}}}}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """`host:port` of a registry that lets in `user` with `pass:word` alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "htpasswd").write_text(f"user:{PASS_WORD}\n")
    (tmp_path / "config.yml").write_text(CONFIG.format(folder=tmp_path, port=port))
    argv = ("docker-registry", "serve", str(tmp_path / "config.yml"))
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _await(f"http://127.0.0.1:{port}/v2/")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def _await(url: str) -> None:
    deadline_s = time.monotonic() + 20
    while True:
        try:
            assert httpx.get(url, trust_env=False).status_code == httpx.codes.UNAUTHORIZED
            return
        except httpx.TransportError:
            assert time.monotonic() < deadline_s, "the registry does not start"
            time.sleep(0.1)


def logins(folder: Path, registry: str, login: str) -> Path:
    file = folder / f"{login.partition(':')[2]}.json"
    file.write_text(json.dumps({"auths": {registry: {"auth": base64.b64encode(login.encode()).decode()}}}))
    return file


def test_what_is_pushed_with_a_login_is_found_with_it_and_not_without(
    registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = tmp_path / "context"
    context.mkdir()
    (context / "Containerfile").write_text("FROM scratch\nCOPY note /note\n")
    (context / "note").write_text("a login was asked for")
    recipe = Recipe("logintest", context / "Containerfile", context, builder.inputs_digest((context,), {}))
    image = Image(f"{registry}/team", recipe.repository, recipe.tag)
    facts = ClusterFacts(kubeconfig="", registry=image.registry, registry_plain_http=True, model_registry="")
    lookup = HttpLookup(facts, embedded=False)
    right, wrong = logins(tmp_path, registry, "user:pass:word"), logins(tmp_path, registry, "user:other")

    with pytest.raises(builder.ImageError, match="buildah push failed"):
        builder.publish(HOME, recipe, Destination(image.registry, plain_http=True, auth_file=wrong))
    builder.publish(HOME, recipe, Destination(image.registry, plain_http=True, auth_file=right))

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(right))
    assert lookup.digest(image).startswith(f"{registry}/team/knobless/logintest@sha256:")
    for other in (wrong, tmp_path / "nowhere"):
        monkeypatch.setenv("REGISTRY_AUTH_FILE", str(other))
        with pytest.raises(ImageError, match=r"answers 401 for .*: log in with `buildah login"):
            lookup.digest(image)
