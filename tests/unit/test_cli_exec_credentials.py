"""A context whose user is a program's word is reached as kubectl reaches it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from controllers.kube.credentials import CredentialsError
from stacks.cli import exec_credentials

TOKEN = {"status": {"token": "t0ken"}}


def kubeconfig(folder: Path, user: dict[str, Any]) -> Path:
    file = folder / "config"
    document = {
        "contexts": [
            {"name": "other", "context": {"cluster": "c"}},
            {"name": "mine", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "http://10.0.0.1:8080/"}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(yaml.safe_dump(document))
    return file


def program(folder: Path, script: str, **more: Any) -> dict[str, Any]:
    path = folder / "login"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./login", **more}}


def token(file: Path) -> str | None:
    return exec_credentials.load(file, "mine").token.value(0.0)


def test_a_user_with_a_token_of_its_own_is_read_as_ever(tmp_path: Path) -> None:
    assert token(kubeconfig(tmp_path, {"token": "fixed"})) == "fixed"
    assert exec_credentials.load(kubeconfig(tmp_path, {}), "other").server == "http://10.0.0.1:8080"


def test_a_program_is_asked_in_the_protocol_s_words_and_its_token_is_used(tmp_path: Path) -> None:
    script = (
        'test "$1" = get-token || exit 3; test "$REGION" = eu || exit 4; echo "$KUBERNETES_EXEC_INFO" > "$0.asked"; '
    )
    user = program(
        tmp_path, f"{script} echo '{json.dumps(TOKEN)}'", args=["get-token"], env=[{"name": "REGION", "value": "eu"}]
    )
    assert token(kubeconfig(tmp_path, user)) == "t0ken"
    asked = json.loads((tmp_path / "login.asked").read_text())
    assert (asked["apiVersion"], asked["kind"]) == ("client.authentication.k8s.io/v1", "ExecCredential")
    assert asked["spec"] == {"interactive": False}


def test_the_answer_is_kept_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    file = kubeconfig(tmp_path, program(tmp_path, f"echo '{json.dumps(TOKEN)}'"))
    before = file.read_text()
    assert token(file) == "t0ken"
    assert list(scratch.iterdir()) == [] and file.read_text() == before


def test_a_certificate_is_an_answer_too() -> None:
    answer = {"status": {"clientCertificateData": "PEM", "clientKeyData": "KEY"}}
    assert exec_credentials.fields(json.dumps(answer), "login") == {
        "client-certificate-data": base64.b64encode(b"PEM").decode(),
        "client-key-data": base64.b64encode(b"KEY").decode(),
    }


@pytest.mark.parametrize(
    "answer", ["", "[]", "{}", '{"status": null}', '{"status": {}}', '{"status": {"clientKeyData": "K"}}']
)
def test_an_answer_that_lets_nobody_in_is_named(answer: str) -> None:
    with pytest.raises(CredentialsError, match="'login' answers with neither a token nor a certificate and its key"):
        exec_credentials.fields(answer, "login")


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, program(tmp_path, "echo 'the session has ended' >&2; exit 1"))
    with pytest.raises(CredentialsError, match=r"'\./login', which knows the user, failed: the session has ended"):
        token(file)


def test_a_program_that_is_missing_comes_with_its_hint(tmp_path: Path) -> None:
    user = {"exec": {"command": "no-such-login-program", "installHint": "Install it from its vendor."}}
    with pytest.raises(CredentialsError, match=r"is not here\. Install it from its vendor\."):
        token(kubeconfig(tmp_path, user))
