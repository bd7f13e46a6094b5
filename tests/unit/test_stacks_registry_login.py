"""A login is found where buildah and docker keep it, and shown only where and how the registry asks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from stacks import images, registry_login
from stacks.images import Image, ImageError
from stacks.registry_login import Challenge, Login

DIGEST = "sha256:" + "0" * 64
IMAGE = Image("r.example/team", "knobless/model", "abc")
LOGIN = Login("user", "pass:word", Path("/auth.json"))


def basic(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def told(folder: Path, document: Any) -> dict[str, str]:
    file = folder / "auth.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return {"REGISTRY_AUTH_FILE": str(file), "HOME": "/nowhere"}


# where it is kept


def test_a_named_file_is_the_only_one_asked() -> None:
    assert registry_login.files({"REGISTRY_AUTH_FILE": "/f", "HOME": "/h"}, 7) == [Path("/f")]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HOME": "/h"}, ["/run/containers/7/auth.json", "/h/.config/containers/auth.json", "/h/.docker/config.json"]),
        (
            {"HOME": "/h", "XDG_RUNTIME_DIR": "/run/user/7", "DOCKER_CONFIG": "/d"},
            ["/run/user/7/containers/auth.json", "/h/.config/containers/auth.json", "/d/config.json"],
        ),
    ],
)
def test_files_are_asked_in_the_order_of_buildah(variables: dict[str, str], expected: list[str]) -> None:
    assert [str(file) for file in registry_login.files(variables, 7)] == expected


def test_the_first_file_that_has_the_registry_is_taken(tmp_path: Path) -> None:
    for name, auths in (
        ("run/containers", {"other": {"auth": basic("a:b")}}),
        ("d", {"r.example": {"auth": basic("c:d")}}),
    ):
        (tmp_path / name).mkdir(parents=True)
        file = tmp_path / name / ("config.json" if name == "d" else "auth.json")
        file.write_text(json.dumps({"auths": auths}))
    variables = {"HOME": "/nowhere", "XDG_RUNTIME_DIR": str(tmp_path / "run"), "DOCKER_CONFIG": str(tmp_path / "d")}
    found = registry_login.find("r.example", variables)
    assert found == Login("c", "d", tmp_path / "d" / "config.json")


@pytest.mark.parametrize(
    ("key", "registry"),
    [
        ("r.example", "r.example"),
        ("r.example", "r.example/team/models"),
        ("r.example/team", "r.example/team/models"),
        ("r.example:5000", "r.example:5000/a"),
        ("https://r.example/v2/", "r.example"),
        ("https://r.example", "r.example/a"),
    ],
)
def test_a_key_is_the_registry_or_a_part_of_its_path_or_its_whole_address(
    tmp_path: Path, key: str, registry: str
) -> None:
    found = registry_login.find(registry, told(tmp_path, {"auths": {key: {"auth": basic("user:pass:word")}}}))
    assert found is not None and (found.user, found.password) == ("user", "pass:word")


def test_the_longest_key_is_taken(tmp_path: Path) -> None:
    auths = {"r.example": {"auth": basic("wide:1")}, "r.example/team": {"auth": basic("narrow:2")}}
    found = registry_login.find("r.example/team/models", told(tmp_path, {"auths": auths}))
    assert found is not None and found.user == "narrow"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"auths": {}},
        {"auths": {"r.example:5000": {"auth": "YTpi"}}},
        {"auths": {"r.example.org": {"auth": "YTpi"}}},
        {"auths": {"r.example/other": {"auth": "YTpi"}}},
        {"credsStore": "desktop"},
    ],
)
def test_another_registry_s_login_is_none_of_this_one(tmp_path: Path, document: dict[str, Any]) -> None:
    assert registry_login.find("r.example/team", told(tmp_path, document)) is None


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"credHelpers": {"r.example": "ecr-login"}}, "helper 'ecr-login', which is not asked here: `buildah login"),
        ({"auths": {"r.example": {}}, "credsStore": "desktop"}, "helper 'desktop'"),
        ({"auths": {"r.example": {"auth": basic("a:"), "identitytoken": "t"}}}, "has an identity token for r.example"),
        ({"auths": {"r.example": {"auth": "%%"}}}, "no user and password for r.example"),
        ({"auths": {"r.example": {"auth": basic("nobody")}}}, "no user and password for r.example"),
        ({"auths": []}, None),
        ("{", "is no file of logins"),
        ("[]", "is no file of logins"),
    ],
)
def test_a_login_that_can_t_be_used_says_why_and_what_to_do(tmp_path: Path, document: Any, message: str | None) -> None:
    variables = told(tmp_path, document)
    if message is None:
        assert registry_login.find("r.example", variables) is None
        return
    with pytest.raises(ImageError, match=message):
        registry_login.find("r.example", variables)


# how it is shown


class Registry:
    """A registry that challenges, and the place that gives tokens out; it notes who said what to whom."""

    def __init__(self, challenge: str, accepts: str, token: httpx.Response | None = None) -> None:
        self._challenge, self._accepts = challenge, accepts
        self._token = token or httpx.Response(200, json={"token": "t0ken"})
        self.seen: list[tuple[str, str | None]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        said = request.headers.get("Authorization")
        self.seen.append((f"{request.method} {request.url}", said))
        if request.url.host == "auth.example":
            return self._token
        if said == self._accepts:
            return httpx.Response(200, headers={"Docker-Content-Digest": DIGEST})
        return httpx.Response(401, headers={"WWW-Authenticate": self._challenge} if self._challenge else {})


def ask(
    answering: Callable[[httpx.Request], httpx.Response], login: Login | None, plain_http: bool = False
) -> str | None:
    auth = Challenge(login, plain_http=plain_http)
    with httpx.Client(transport=httpx.MockTransport(answering), auth=auth) as client:
        return images.find(client, IMAGE, "http" if plain_http else "https")


MANIFEST = "HEAD https://r.example/v2/team/knobless/model/manifests/abc"
BEARER = 'Bearer realm="https://auth.example/token",service="r.example",scope="repository:team/knobless/model:pull"'
FOUND = f"r.example/team/knobless/model@{DIGEST}"


def test_a_registry_that_asks_for_nothing_is_told_nothing() -> None:
    registry = Registry("", accepts="")
    seen: list[str | None] = []

    def open_to_all(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(200, headers={"Docker-Content-Digest": DIGEST})

    assert ask(open_to_all, LOGIN) == FOUND
    assert seen == [None] and not registry.seen


def test_a_registry_that_asks_for_a_password_gets_it_on_the_second_request() -> None:
    registry = Registry('Basic realm="r"', LOGIN.basic)
    assert ask(registry, LOGIN) == FOUND
    assert registry.seen == [(MANIFEST, None), (MANIFEST, LOGIN.basic)]


@pytest.mark.parametrize("field", ["token", "access_token"])
def test_a_registry_that_asks_for_a_token_gets_one_that_the_login_is_good_for(field: str) -> None:
    registry = Registry(BEARER, "Bearer t0ken", httpx.Response(200, json={field: "t0ken"}))
    assert ask(registry, LOGIN) == FOUND
    (_, (place, said), last) = registry.seen
    assert place.startswith("GET https://auth.example/token?service=r.example&scope=repository")
    assert said == LOGIN.basic and last == (MANIFEST, "Bearer t0ken")


def test_a_token_for_anybody_is_asked_for_without_a_login() -> None:
    registry = Registry(BEARER, "Bearer t0ken")
    assert ask(registry, None) == FOUND
    assert registry.seen[1][1] is None


@pytest.mark.parametrize("challenge", ["", 'Basic realm="r"', "Negotiate"])
def test_a_registry_that_stays_shut_names_the_login(challenge: str) -> None:
    with pytest.raises(ImageError, match=r"answers 401 for .*: log in with `buildah login r\.example`"):
        ask(Registry(challenge, accepts="nobody"), None)


@pytest.mark.parametrize(
    "answer", [httpx.Response(401), httpx.Response(200, text="hello"), httpx.Response(200, json=[])]
)
def test_a_place_that_gives_no_token_is_named(answer: httpx.Response) -> None:
    with pytest.raises(ImageError, match=f"https://auth.example/token gives us no token .* {answer.status_code}"):
        ask(Registry(BEARER, "Bearer t0ken", answer), LOGIN)


@pytest.mark.parametrize("realm", ["http://auth.example/token", "ftp://auth.example", ""])
def test_a_login_never_leaves_tls_for_the_clear(realm: str) -> None:
    registry = Registry(f'Bearer realm="{realm}"', "Bearer t0ken")
    with pytest.raises(ImageError, match="no place to send a login to"):
        ask(registry, LOGIN)
    assert [said for _, said in registry.seen] == [None]


def test_a_registry_without_tls_may_have_its_tokens_from_a_place_without() -> None:
    assert ask(Registry(BEARER.replace("https:", "http:"), "Bearer t0ken"), LOGIN, plain_http=True) == FOUND
