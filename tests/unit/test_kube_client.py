"""The Kubernetes client against a pretended API server: paths, parameters, pages, tokens, typed errors."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from controllers.kube import (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    LEASES,
    MODEL_ENDPOINTS,
    NAMESPACES,
    PODS,
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeClient,
    NotFound,
    Throttled,
    Unauthorized,
    Unreachable,
)
from controllers.kube.credentials import Credentials, CredentialsError, Token, from_environment, from_kubeconfig

Answer = Callable[[httpx.Request], httpx.Response]


def client(answer: Answer, token: Token | None = None) -> KubeClient:
    credentials = Credentials("http://api", None, token or Token(value="secret"))
    return KubeClient(credentials, httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns", "p"), "/api/v1/namespaces/ns/pods/p"),
        (DEPLOYMENTS.path("ns", "d", "scale"), "/apis/apps/v1/namespaces/ns/deployments/d/scale"),
        (
            MODEL_ENDPOINTS.path("ns", "e", "status"),
            "/apis/knobless.dev/v1alpha1/namespaces/ns/modelendpoints/e/status",
        ),
        (NAMESPACES.path(None, "team-a"), "/api/v1/namespaces/team-a"),
        (NAMESPACES.path("ignored", "team-a"), "/api/v1/namespaces/team-a"),
    ],
)
def test_a_resource_knows_its_path(path: str, expected: str) -> None:
    assert path == expected


def test_a_namespaced_object_without_a_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="a namespace is needed"):
        PODS.path(None, "p")


async def test_a_list_follows_its_pages_and_names_the_kind_of_each_item() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        second = request.url.params.get("continue") == "next"
        name, metadata = (
            ("b", {"resourceVersion": "7"}) if second else ("a", {"resourceVersion": "7", "continue": "next"})
        )
        return httpx.Response(200, json={"metadata": metadata, "items": [{"metadata": {"name": name}}]})

    async with client(answer) as kube:
        objects, version = await kube.list_with_version(PODS, "ns", "a=b")
    assert [(o["metadata"]["name"], o["kind"]) for o in objects] == [("a", "Pod"), ("b", "Pod")]
    assert version == "7"


async def test_a_list_whose_pages_expire_half_way_is_read_whole() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.params.get("continue"):
            return httpx.Response(410, json={"reason": "Expired"})
        metadata = {"resourceVersion": "7"} | ({"continue": "n"} if request.url.params["limit"] != "0" else {})
        return httpx.Response(200, json={"metadata": metadata, "items": [{"metadata": {"name": "a"}}]})

    async with client(answer) as kube:
        assert len(await kube.list(PODS)) == 1


async def test_one_object_is_selected_by_its_name() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.params["fieldSelector"] == "metadata.name=gateway-keys"
        return httpx.Response(200, json={"metadata": {"resourceVersion": "1"}, "items": []})

    async with client(answer) as kube:
        assert await kube.list(PODS, "ns", name="gateway-keys") == []


async def test_apply_sends_exactly_the_owned_fields_under_its_manager_with_force() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    async with client(answer) as kube:
        await kube.apply(DEPLOYMENTS, "ns", "d", "me", {"spec": {"paused": False}})
        await kube.apply_status(MODEL_ENDPOINTS, "ns", "e", "me", {"status": {"x": 1}}, force=False)
    assert [r.method for r in seen] == ["PATCH", "PATCH"]
    assert dict(seen[0].url.params) == {"fieldManager": "me", "force": "true"}
    assert dict(seen[1].url.params) == {"fieldManager": "me", "force": "false"}
    assert seen[1].url.path.endswith("/modelendpoints/e/status")
    assert seen[0].headers["content-type"] == "application/apply-patch+yaml"
    body = json.loads(seen[0].content)
    assert body == {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"paused": False}}


async def test_replicas_go_through_the_scale_subresource_alone_and_rest_on_a_version() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/apis/apps/v1/namespaces/ns/deployments/d/scale"
        assert request.url.params["fieldManager"] == "knobless-autoscaler"
        body = json.loads(request.content)
        assert (body["kind"], body["spec"], body["metadata"]["resourceVersion"]) == ("Scale", {"replicas": 3}, "42")
        return httpx.Response(200, json={"spec": {"replicas": 3}})

    async with client(answer) as kube:
        assert await kube.patch_scale("ns", "d", 3, "42") == {"spec": {"replicas": 3}}


async def test_replicas_of_a_custom_kind_are_its_own_field_applied_and_nothing_beside_it() -> None:
    """Its scale sub-resource takes no apply, and without one nobody is noted as the field's owner."""

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/apis/leaderworkerset.x-k8s.io/v1/namespaces/ns/leaderworkersets/d"
        assert request.headers["content-type"] == "application/apply-patch+yaml"
        assert dict(request.url.params) == {"fieldManager": "knobless-autoscaler", "force": "true"}
        body = json.loads(request.content)
        assert (body["spec"], body["metadata"]) == ({"replicas": 3}, {"name": "d", "resourceVersion": "42"})
        return httpx.Response(200, json={"spec": {"replicas": 3}})

    async with client(answer) as kube:
        assert await kube.patch_scale("ns", "d", 3, "42", gvr=LEADER_WORKER_SETS) == {"spec": {"replicas": 3}}


async def test_a_delete_names_how_it_spreads_and_whom_it_means() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert (body["propagationPolicy"], body["preconditions"]) == ("Foreground", {"uid": "u1"})
        return httpx.Response(200, json={})

    async with client(answer) as kube:
        await kube.delete(DEPLOYMENTS, "ns", "d", "Foreground", uid="u1")


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", Throttled),
        (500, "InternalError", ApiError),
        (401, "Unauthorized", Unauthorized),
        (503, "ServiceUnavailable", Unreachable),
    ],
)
async def test_an_error_has_a_type_of_its_own(status: int, reason: str, kind: type[Exception]) -> None:
    async with client(lambda _: httpx.Response(status, json={"reason": reason, "message": "why"})) as kube:
        with pytest.raises(kind, match="why"):
            await kube.get(PODS, "ns", "p")


@pytest.mark.case("autoscaler-A10")
async def test_an_answer_that_is_no_object_is_an_error_not_an_empty_state() -> None:
    async with client(lambda _: httpx.Response(500, text="<html>proxy</html>")) as kube:
        with pytest.raises(ApiError, match="proxy"):
            await kube.list(PODS)


async def test_no_answer_is_unreachable() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    async with client(answer) as kube:
        with pytest.raises(Unreachable, match="refused"):
            await kube.get(LEASES, "ns", "l")


async def test_a_refused_token_is_read_again_from_its_file_once(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        file.write_text("new\n")
        return httpx.Response(200 if seen[-1] == "Bearer new" else 401, json={})

    async with client(answer, Token(path=file)) as kube:
        await kube.get(PODS, "ns", "p")
    assert seen == ["Bearer old", "Bearer new"]


def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    token = Token(path=file)
    assert token.value(0.0) == "one"
    file.write_text("two")
    assert token.value(59.0) == "one"
    assert token.value(61.0) == "two"


KUBECONFIG = """
current-context: a
contexts:
- {name: a, context: {cluster: c, user: u, namespace: team-a}}
- {name: cloud, context: {cluster: c, user: exec}}
clusters:
- {name: c, cluster: {server: "http://127.0.0.1:6443/"}}
users:
- {name: u, user: {token: abc}}
- {name: exec, user: {exec: {command: aws}}}
"""


def test_a_kubeconfig_gives_server_token_and_namespace(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    found = from_environment({"KUBECONFIG": str(file)})
    assert (found.server, found.token.value(0.0), found.namespace) == ("http://127.0.0.1:6443", "abc", "team-a")


def test_an_exec_plug_in_is_refused_with_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    with pytest.raises(CredentialsError, match="exec plug-ins"):
        from_kubeconfig(file, "cloud")


def test_an_unknown_context_is_named(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(KUBECONFIG)
    with pytest.raises(CredentialsError, match="no context named 'b'"):
        from_kubeconfig(file, "b")


def test_nowhere_to_go_is_an_error() -> None:
    with pytest.raises(CredentialsError, match="neither KUBECONFIG"):
        from_environment({})
