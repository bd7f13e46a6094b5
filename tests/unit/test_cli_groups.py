"""What replicas over several nodes ask of a cluster: told where it lacks it, brought where the cluster is ours."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from controllers.kube import CUSTOM_RESOURCE_DEFINITIONS, Gvr, KubeClient, NotFound
from spec.endpoint import EndpointSpec, load_endpoint
from stacks.cli import groups
from stacks.cli.errors import CliError, ExitCode

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ESTABLISHED = {"conditions": [{"type": "Established", "status": "True"}]}


class Cluster:
    """Objects by name; a definition is established as soon as it was looked at once."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.written: list[str] = []

    async def get(self, gvr: Gvr, namespace: str | None, name: str) -> dict[str, Any]:
        if name not in self.objects:
            raise NotFound(404, "NotFound", name)
        found = dict(self.objects[name])
        if gvr == CUSTOM_RESOURCE_DEFINITIONS:
            self.objects[name]["status"] = ESTABLISHED
        return found

    async def list(self, gvr: Gvr) -> list[dict[str, Any]]:
        if groups.KIND not in self.objects:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        assert gvr.plural == "leaderworkersets"
        return [obj for name, obj in self.objects.items() if name.startswith("group-")]

    async def apply(self, gvr: Gvr, namespace: str | None, name: str, manager: str, body: dict[str, Any]) -> None:
        self.objects[name] = body
        self.written.append(name)

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)


def endpoint(name: str, nodes: int) -> EndpointSpec:
    text = (
        f"endpoint: {name}\nmodel: models:/{name}/1\nconcurrency: {{min: 1, max: 8}}\nresources: {{nodes: {nodes}}}\n"
    )
    return load_endpoint(text, f"stacks/local/endpoints/alpha/{name}.yaml", "alpha")


ONE, TWO, THREE = endpoint("one", 1), endpoint("two", 2), endpoint("three", 3)


def test_only_a_replica_of_more_than_one_node_asks_for_it() -> None:
    assert not groups.wanted([ONE])
    assert groups.wanted([ONE, TWO])


def test_groups_that_run_are_seen_whatever_the_files_say_and_a_cluster_without_the_kind_has_none() -> None:
    cluster = Cluster()
    assert not asyncio.run(groups.standing(cluster.client))
    cluster.objects[groups.KIND] = {}
    assert not asyncio.run(groups.standing(cluster.client))
    cluster.objects["group-of-yesterday"] = {}
    assert asyncio.run(groups.standing(cluster.client))


def test_a_cluster_of_one_s_own_without_the_kind_is_told_who_needs_it_and_what_to_install() -> None:
    cluster = Cluster()
    with pytest.raises(CliError) as caught:
        asyncio.run(groups.check(cluster.client, [ONE, TWO, THREE]))
    assert caught.value.code == ExitCode.NOT_FOUND
    assert "replicas of two, three span nodes: install LeaderWorkerSet" in caught.value.message
    cluster.objects[groups.KIND] = {}
    asyncio.run(groups.check(cluster.client, [TWO]))
    assert cluster.written == []


def test_the_embedded_cluster_gets_the_kinds_once_and_again_when_they_are_others(tmp_path: Path) -> None:
    cluster = Cluster()

    def ensure(version: str) -> list[str]:
        file = tmp_path / version
        file.write_text(f"metadata: {{name: sets.example}}\nspec: {{group: {version}}}\n")
        cluster.written.clear()
        asyncio.run(groups.ensure(cluster.client, {"sets.example": file}, tmp_path / "ca", NOW))
        return list(cluster.written)

    assert ensure("one") == ["sets.example", "leaderworkerset-tls"]
    assert cluster.objects["sets.example"]["spec"] == {"group": "one"}
    assert ensure("one") == []
    assert ensure("two") == ["sets.example"]
    assert cluster.objects["sets.example"]["spec"] == {"group": "two"}


def test_a_kind_that_is_never_established_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_PAUSE_S", 0.0)
    monkeypatch.setitem(ESTABLISHED["conditions"][0], "status", "False")
    file = tmp_path / "one"
    file.write_text("metadata: {name: sets.example}\n")
    with pytest.raises(CliError, match=r"has not established sets\.example"):
        asyncio.run(groups.ensure(Cluster().client, {"sets.example": file}, tmp_path / "ca", NOW))
