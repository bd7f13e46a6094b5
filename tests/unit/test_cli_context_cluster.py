"""A cluster of one's own: how it is reached, whose certificate is touched, what `down` takes away."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from controllers.kube import Gvr, KubeClient, NotFound
from spec import names
from spec.platform import PlatformSpec, load_platform
from stacks.cli import building, context_cluster, pulumi_cli, tls
from stacks.cli.console import Console
from stacks.cli.context_cluster import Standing
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.workspace import Workspace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PLATFORM = (
    "environment: prod\ncluster: {context: mine}\nregistry: r.example\nmodel_registry: https://m.example\n"
    "gateway: {expose: NodePort, port: 30443}\n"
)
NODE = {
    "metadata": {"name": "a"},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    },
}


def platform(expose: str = "NodePort") -> PlatformSpec:
    return load_platform(PLATFORM.replace("NodePort", expose), "platform.yaml", "prod")


class Cluster:
    """The objects of a cluster, by kind and name; what the command line writes is among them afterwards."""

    def __init__(self, *objects: tuple[str, dict[str, Any]]) -> None:
        self.objects = {(kind, body["metadata"]["name"]): body for kind, body in objects}

    async def get(self, gvr: Gvr, namespace: str | None, name: str) -> dict[str, Any]:
        try:
            return self.objects[gvr.kind, name]
        except KeyError:
            raise NotFound(404, "NotFound", name) from None

    async def list(self, gvr: Gvr, labels: str = "") -> list[dict[str, Any]]:
        """`labels` is one `name=value`, or nothing."""
        name, _, value = labels.partition("=")
        found = [body for (kind, _), body in self.objects.items() if kind == gvr.kind]
        return [body for body in found if not name or body["metadata"].get("labels", {}).get(name) == value]

    async def apply(self, gvr: Gvr, namespace: str | None, name: str, manager: str, body: dict[str, Any]) -> None:
        self.objects[gvr.kind, name] = {**body, "metadata": {**body["metadata"], "name": name}}

    async def delete(self, gvr: Gvr, namespace: str | None, name: str) -> None:
        del self.objects[gvr.kind, name]

    @property
    def client(self) -> KubeClient:
        return cast(KubeClient, self)


def secret(certificate: bytes) -> tuple[str, dict[str, Any]]:
    data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": "a2V5"}
    return "Secret", {"metadata": {"name": names.SECRET_GATEWAY_TLS}, "data": data}


def ensure(cluster: Cluster, ca_dir: Path, expose: str = "NodePort", now: datetime = NOW) -> str | None:
    return asyncio.run(context_cluster.ensure_certificate(cluster.client, platform(expose), ca_dir, now))


def entrance(cluster: Cluster, ca_dir: Path, expose: str = "NodePort") -> context_cluster.Entrance:
    return asyncio.run(context_cluster.entrance_of(cluster.client, platform(expose), ca_dir))


# the certificate


def test_a_gateway_on_the_nodes_ports_gets_a_certificate_for_their_addresses(tmp_path: Path) -> None:
    cluster = Cluster(("Node", NODE))
    assert "have to trust" in (ensure(cluster, tmp_path) or "")
    found = entrance(cluster, tmp_path)
    assert (found.url, found.ca) == ("https://10.0.0.1:30443", tls.ca_file(tmp_path))
    assert ensure(cluster, tmp_path) is None, "a second run finds it"


def test_a_certificate_of_ours_is_renewed_and_the_restart_that_it_takes_is_told(tmp_path: Path) -> None:
    cluster = Cluster(("Node", NODE))
    ensure(cluster, tmp_path)
    later = NOW + timedelta(days=tls.LEAF_DAYS - 1)
    assert "rollout restart deployment gateway" in (ensure(cluster, tmp_path, now=later) or "")


@pytest.mark.parametrize("expose", ["NodePort", "LoadBalancer"])
@pytest.mark.parametrize("content", ["of another authority", "no certificate at all"])
def test_the_owner_s_certificate_is_never_touched(tmp_path: Path, expose: str, content: str) -> None:
    tls.authority(tmp_path / "ours", NOW)
    theirs, _ = tls.issue(tls.authority(tmp_path / "theirs", NOW), ["models.example"], NOW)
    name, body = secret(theirs if content == "of another authority" else b"?")
    cluster = Cluster(("Node", NODE), (name, body))
    assert ensure(cluster, tmp_path / "ours", expose) is None
    assert cluster.objects["Secret", names.SECRET_GATEWAY_TLS] is body
    assert entrance(cluster, tmp_path / "ours").ca is None


def test_behind_a_load_balancer_the_certificate_must_be_there_and_the_message_says_how_to_make_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(CliError, match="the Secret gateway-tls in knobless-system") as caught:
        ensure(Cluster(("Node", NODE)), tmp_path, "LoadBalancer")
    assert "kubectl -n knobless-system create secret tls gateway-tls --cert FILE --key FILE" in caught.value.hint


def test_the_url_has_the_owner_s_name_where_the_certificate_is_for_no_address(tmp_path: Path) -> None:
    theirs, _ = tls.issue(tls.authority(tmp_path, NOW), ["models.example"], NOW)
    given = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}
    service = {"metadata": {"name": "gateway"}, "status": given}
    assert entrance(Cluster(secret(theirs), ("Service", service)), tmp_path, "LoadBalancer").url == (
        "https://models.example:30443"
    )


def test_a_gateway_without_a_service_has_no_url_yet(tmp_path: Path) -> None:
    assert entrance(Cluster(), tmp_path, "LoadBalancer").url is None


# how it is reached


def test_a_wrong_context_names_those_that_there_are(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump({"contexts": [{"name": "b"}, {"name": "a"}]}))
    with pytest.raises(CliError, match=r"no context 'mine' in .*config: contexts there: a, b") as caught:
        context_cluster.credentials(file, "mine")
    assert caught.value.code is ExitCode.NOT_FOUND


@pytest.mark.parametrize("text", [None, "", "[]", "contexts: 7", "{", "contexts: [{}]"])
def test_a_kubeconfig_that_is_none_is_one_message(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "config"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CliError, match="it has no contexts, or is not there"):
        context_cluster.credentials(file, "mine")


@pytest.mark.parametrize("contexts", [[{"name": "mine"}], [{"name": "mine", "context": {"cluster": "gone"}}]])
def test_a_context_that_leads_nowhere_is_one_message(tmp_path: Path, contexts: list[dict[str, Any]]) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump({"contexts": contexts}))
    with pytest.raises(CliError, match=r"the context 'mine' in .* can't be used: kubeconfig: no cluster"):
        context_cluster.credentials(file, "mine")


def workspace(root: Path) -> Workspace:
    return Workspace(root, root / "stacks", root / "home", "prod", "default")


def test_the_context_is_known_while_the_platform_s_file_can_t_be_read(tmp_path: Path) -> None:
    place = workspace(tmp_path)
    assert context_cluster.context_of(place) is None
    file = place.stacks / "prod" / names.PLATFORM_FILE
    file.parent.mkdir(parents=True)
    file.write_text(PLATFORM)
    assert context_cluster.context_of(place) == "mine"
    context_cluster.note_facts(place, "mine", "https://g")
    for broken in (PLATFORM + "nonsense: 1\n", "{", ""):
        file.write_text(broken)
        assert context_cluster.context_of(place) == "mine", "or `down` would take it for the embedded cluster"
    file.write_text("environment: prod\n")
    assert context_cluster.context_of(place) is None, "what Git says stands above what was once"


def test_what_is_noted_holds_no_way_into_the_cluster(tmp_path: Path) -> None:
    place = workspace(tmp_path)
    context_cluster.note_facts(place, "mine", "https://g")
    assert json.loads(place.cluster_file.read_text()) == {"context": "mine", "gateway_url": "https://g"}


# down


def test_down_means_the_stacks_of_this_environment_alone() -> None:
    known = ["prod.platform", "prod.b.two", "prod.a.one", "prod-eu.platform", "local.a.one", "theirs", "a.b.c.d"]
    assert context_cluster.stacks_of(known, "prod") == ("prod.platform", ("prod.a.one", "prod.b.two"))
    assert context_cluster.stacks_of(known, "other") == (None, ())


def test_down_says_what_it_takes_away_and_what_it_leaves() -> None:
    text = context_cluster.removal("mine", Standing("prod.platform", ("prod.a.one",), ("team-a", "team-b")))
    for part in ("'mine'", "prod.a.one", "knobless-system, team-a, team-b", "every key", "Images and models stay"):
        assert part in text
    assert "namespaces" not in context_cluster.removal("mine", Standing(None, ("prod.a.one",), ()))


def test_a_platform_goes_after_all_that_stands_on_it() -> None:
    gone: list[str] = []

    class Noting:
        def destroy(self, stack: str, *_: object) -> None:
            gone.append(stack)

    standing = Standing("prod.platform", ("prod.a.one", "prod.b.two"), ())
    context_cluster.remove(cast(Pulumi, Noting()), standing, Console(err=io.StringIO(), out=io.StringIO()))
    assert sorted(gone[:2]) == ["prod.a.one", "prod.b.two"] and gone[2:] == ["prod.platform"]


OURS = {"metadata": {"name": names.SYSTEM_NAMESPACE, "labels": {names.LABEL_MANAGED_BY: names.MANAGED_BY}}}
THEIRS = {"metadata": {"name": names.SYSTEM_NAMESPACE}}
KIND = ("CustomResourceDefinition", {"metadata": {"name": names.CRD}})


@pytest.mark.parametrize(
    ("objects", "stays"),
    [
        ((("Namespace", OURS),), False),
        ((("Namespace", OURS), KIND), True),  # a platform that another machine's state knows
        ((("Namespace", THEIRS),), True),
        ((), False),
    ],
)
def test_a_namespace_is_cleared_only_where_it_is_ours_and_no_platform_stands(objects: Any, stays: bool) -> None:
    cluster = Cluster(*objects)
    asyncio.run(context_cluster.clear_leftovers(cluster.client))
    assert (("Namespace", names.SYSTEM_NAMESPACE) in cluster.objects) is stays


def test_namespaces_of_teams_that_were_made_for_their_pull_secrets_are_cleared_too() -> None:
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY}
    named = ("team-alpha", "somebody-elses")
    cluster = Cluster(*(("Namespace", {"metadata": {"name": name, "labels": labels}}) for name in named))
    asyncio.run(context_cluster.clear_leftovers(cluster.client))
    assert set(cluster.objects) == {("Namespace", "somebody-elses")}


# building


def test_a_machine_that_can_build_lacks_nothing() -> None:
    assert building.lacks(0, lambda _: True) == []


def test_a_machine_that_can_t_build_is_told_all_that_it_lacks() -> None:
    user, programs = building.lacks(1000, lambda program: program == "runc")
    assert "not root" in user
    assert programs == "missing: buildah, debootstrap (apt-get install buildah debootstrap)"


def test_a_model_s_image_is_the_same_from_whatever_mirror_debian_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[2]
    before = building.recipe_digest(root)
    monkeypatch.setattr("embedded.debian.host_mirror", lambda: pytest.fail("the host's mirror was asked"))
    assert building.recipe_digest(root) == before


@pytest.mark.parametrize("path", ["/usr/bin:/bin", "/tools/bin:/usr/bin:/bin"])
def test_the_tools_come_first_on_path_once_however_often_they_were_put_there(tmp_path: Path, path: str) -> None:
    told = pulumi_cli.variables(workspace(tmp_path), Path("/tools/bin"), {"PATH": path})
    assert told["PATH"] == "/tools/bin:/usr/bin:/bin"
