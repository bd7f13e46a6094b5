"""Pull secrets: which namespace needs which, what is told of a missing one, and that no login is shown."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any, cast

import pytest

from controllers.kube import Conflict, Gvr, KubeClient, NotFound
from spec.platform import PlatformSpec, load_platform
from stacks.cli import pull_secrets
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.session import Session
from stacks.cli.workspace import Workspace

PLATFORM = """
environment: prod
cluster: {context: mine}
registry: r.example/ml
model_registry: https://m.example
gateway: {expose: NodePort, port: 30443}
pull_secrets: [login]
teams: {alpha: {}, beta: {pull_secrets: [of-beta]}, gamma: {pull_secrets: []}}
"""
NAMESPACES = ["knobless-system", "team-alpha", "team-beta"]


class Cluster:
    """Objects by kind, namespace and name. What is `kept` is another's."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str | None, str], dict[str, Any]] = {}
        self.kept: set[str] = set()

    async def get(self, gvr: Gvr, namespace: str | None, name: str) -> dict[str, Any]:
        try:
            return self.objects[gvr.kind, namespace, name]
        except KeyError:
            raise NotFound(404, "NotFound", name) from None

    async def apply(
        self, gvr: Gvr, namespace: str | None, name: str, manager: str, body: dict[str, Any], force: bool = True
    ) -> None:
        assert not force, "what another keeps is never taken"
        if name in self.kept:
            raise Conflict(409, "Conflict", f"{name} is owned by another")
        self.objects[gvr.kind, namespace, name] = body

    def have(self, namespace: str, name: str, kind: str = pull_secrets.TYPE) -> None:
        self.objects["Secret", namespace, name] = {"type": kind}

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)


def platform() -> PlatformSpec:
    return load_platform(PLATFORM, "platform.yaml", "prod")


def check(cluster: Cluster) -> str:
    """What stops `up`: nothing where all is there."""
    try:
        asyncio.run(pull_secrets.check(cluster.client, platform()))
    except CliError as error:
        assert error.code is ExitCode.NOT_FOUND and "knobless pull-secret NAME" in error.hint
        return error.message
    return ""


def test_the_platform_and_each_team_pull_with_the_secrets_in_force() -> None:
    assert pull_secrets.wanted(platform()) == {
        "knobless-system": ("login",),
        "team-alpha": ("login",),
        "team-beta": ("of-beta",),
    }


def test_each_missing_secret_is_named_with_its_namespace_before_anything_is_applied() -> None:
    cluster = Cluster()
    cluster.have("knobless-system", "login")
    assert check(cluster).splitlines() == [
        "nodes could not pull images:",
        "- Secret login is missing in team-alpha",
        "- Secret of-beta is missing in team-beta",
    ]
    assert [name for kind, _, name in cluster.objects if kind == "Namespace"] == NAMESPACES


def test_a_secret_of_another_type_is_told_since_the_kubelet_would_pass_it_over() -> None:
    cluster = Cluster()
    for namespace in NAMESPACES[:2]:
        cluster.have(namespace, "login", "Opaque" if namespace == "team-alpha" else pull_secrets.TYPE)
    cluster.have("team-beta", "of-beta", "kubernetes.io/dockercfg")
    (line,) = check(cluster).splitlines()[1:]
    assert line == "- Secret login in team-alpha has the type Opaque, and must have kubernetes.io/dockerconfigjson"


def test_where_all_secrets_are_there_nothing_is_said() -> None:
    cluster = Cluster()
    cluster.have("knobless-system", "login")
    cluster.have("team-alpha", "login")
    cluster.have("team-beta", "of-beta")
    assert check(cluster) == ""


@pytest.fixture
def session(tmp_path: Path) -> Session:
    folder = tmp_path / "stacks" / "prod"
    folder.mkdir(parents=True)
    (folder / "platform.yaml").write_text(PLATFORM)
    workspace = Workspace(tmp_path, tmp_path / "stacks", tmp_path / "home", "prod", "default")
    return Session(workspace, Console(err=io.StringIO(), out=io.StringIO()))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    monkeypatch.setattr(Session, "with_kube", lambda _, __, work: asyncio.run(work(found.client)))
    return found


@pytest.fixture
def logins(tmp_path: Path) -> Path:
    file = tmp_path / "logins.json"
    entries = {"r.example": {"auth": base64.b64encode(b"robot:pass:word").decode()}, "other": {"auth": "eDp5"}}
    file.write_text(json.dumps({"auths": entries}))
    return file


def said(session: Session) -> str:
    return cast(io.StringIO, session.console.err).getvalue() + cast(io.StringIO, session.console.out).getvalue()


def test_the_login_of_the_registry_alone_is_written_wherever_git_names_the_secret(
    session: Session, cluster: Cluster, logins: Path
) -> None:
    pull_secrets.write(session, "login", logins)
    written = [place for kind, place, name in cluster.objects if (kind, name) == ("Secret", "login")]
    assert written == ["knobless-system", "team-alpha"]
    secret = cluster.objects["Secret", "team-alpha", "login"]
    assert secret["type"] == "kubernetes.io/dockerconfigjson"
    assert json.loads(base64.b64decode(secret["data"][".dockerconfigjson"])) == {
        "auths": {"r.example": {"auth": base64.b64encode(b"robot:pass:word").decode()}}
    }


def test_who_logs_in_is_told_and_the_password_is_not(session: Session, cluster: Cluster, logins: Path) -> None:
    pull_secrets.write(session, "login", logins)
    told = said(session)
    assert "the login of robot to r.example/ml" in told and "team-alpha" in told
    assert "pass" not in told and "cm9ib3Q" not in told


def test_a_secret_that_git_does_not_name_is_not_written(session: Session, cluster: Cluster, logins: Path) -> None:
    with pytest.raises(CliError, match=r"names no pull secret 'logn' \(there: login, of-beta\)"):
        pull_secrets.write(session, "logn", logins)
    assert cluster.objects == {}


def test_without_a_login_to_the_registry_there_is_one_message(session: Session, cluster: Cluster, logins: Path) -> None:
    logins.write_text('{"auths": {"other": {"auth": "eDp5"}}}')
    with pytest.raises(CliError, match=r"no login to r\.example/ml in") as caught:
        pull_secrets.write(session, "login", logins)
    assert caught.value.hint.startswith("`buildah login r.example`")
    assert cluster.objects == {}


def test_a_secret_that_something_else_keeps_is_left_to_it(session: Session, cluster: Cluster, logins: Path) -> None:
    cluster.kept.add("login")
    with pytest.raises(CliError, match="is kept by something else"):
        pull_secrets.write(session, "login", logins)
