"""Secrets that variables name: what is told of a missing one, and that no value is ever looked at."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from controllers.kube import Gvr, KubeClient, NotFound
from spec.endpoint import EndpointSpec, load_endpoint
from stacks.cli import env_secrets
from stacks.cli.errors import CliError, ExitCode


class Keys(dict[str, str]):
    """The data of a Secret, of which only the keys may be asked for."""

    def __getitem__(self, key: str) -> str:
        raise AssertionError("a value was read")

    values = items = get = __getitem__  # type: ignore[assignment]


class Cluster:
    def __init__(self, secrets: dict[tuple[str, str], list[str]]) -> None:
        self.secrets = secrets
        self.namespaces: list[str] = []

    async def get(self, gvr: Gvr, namespace: str, name: str) -> dict[str, Any]:
        assert gvr.kind == "Secret"
        if (namespace, name) not in self.secrets:
            raise NotFound(404, "NotFound", name)
        return {"data": Keys.fromkeys(self.secrets[namespace, name])}

    async def apply(self, gvr: Gvr, _: None, name: str, manager: str, body: dict[str, Any], force: bool) -> None:
        assert gvr.kind == "Namespace"
        assert not force
        self.namespaces.append(name)

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)


def endpoint(name: str, env: str, team: str = "alpha") -> EndpointSpec:
    text = f"endpoint: {name}\nmodel: models:/{name}/1\nconcurrency: {{min: 1, max: 8}}\nenv: {env}\n"
    return load_endpoint(text, f"stacks/local/endpoints/{team}/{name}.yaml", team)


ONE = endpoint("one", "{A: {secret: s, key: a}, B: {secret: s, key: b}, C: text}")
TWO = endpoint("two", "{A: {secret: t, key: a}}", "beta")


def problems(cluster: Cluster, *specs: EndpointSpec) -> list[str]:
    return asyncio.run(env_secrets.problems(cluster.client, specs))


def test_an_endpoint_without_references_asks_for_nothing() -> None:
    assert env_secrets.wanted([endpoint("plain", "{A: text}")]) == {}


def test_a_secret_that_is_there_with_all_its_keys_is_no_problem() -> None:
    cluster = Cluster({("team-alpha", "s"): ["a", "b"], ("team-beta", "t"): ["a", "more"]})
    assert problems(cluster, ONE, TWO) == []


def test_what_is_missing_names_the_variable_the_secret_and_the_key() -> None:
    cluster = Cluster({("team-alpha", "s"): ["b"], ("team-alpha", "t"): ["a"]})
    assert problems(cluster, ONE, TWO) == [
        "one: env.A: Secret s in team-alpha has no key 'a'",
        "two: env.A: Secret t is missing in team-beta",
    ]


def test_up_makes_the_namespaces_and_stops_where_a_secret_is_missing() -> None:
    cluster = Cluster({("team-alpha", "s"): ["a", "b"]})
    asyncio.run(env_secrets.check(cluster.client, [ONE]))
    with pytest.raises(CliError, match=r"two: env\.A: Secret t is missing in team-beta") as caught:
        asyncio.run(env_secrets.check(cluster.client, [ONE, TWO]))
    assert caught.value.code is ExitCode.NOT_FOUND
    assert set(cluster.namespaces) == {"team-alpha", "team-beta"}
