"""Whether an endpoint is served, asked of the gateway: patience with what is on its way, none with anything else."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacks.cli import waiting
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.predict import Answer, Request

UNREACHABLE = CliError("no answer", code=ExitCode.NOT_FOUND)


class Gateway:
    """Answers as told, the last for ever; a wait moves its clock."""

    def __init__(self, *answers: int | CliError) -> None:
        self._answers = list(answers)
        self.now_s = 0.0
        self.asked = 0
        self.console = Console(err=io.StringIO(), out=io.StringIO(), clock=lambda: self.now_s)

    def send(self) -> Answer:
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, CliError):
            raise answer
        return Answer(answer, {}, "", 1.0)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def served(self) -> int:
        return waiting.served(self.send, self.console, self.sleep).status


def test_pods_keys_and_the_gateway_itself_may_be_on_their_way() -> None:
    gateway = Gateway(UNREACHABLE, 404, 401, 503, 200)
    assert (gateway.served(), gateway.asked) == (200, 5)


@pytest.mark.parametrize("status", [200, 400, 413, 429, 500, 504])
def test_any_other_answer_is_the_answer(status: int) -> None:
    gateway = Gateway(status)
    assert (gateway.served(), gateway.asked) == (status, 1)


def test_patience_has_a_bound_and_the_last_answer_is_told() -> None:
    gateway = Gateway(503)
    assert gateway.served() == 503
    assert gateway.now_s == pytest.approx(waiting.SERVED_BOUND_S)


def test_a_gateway_that_never_answers_is_an_error_after_the_bound() -> None:
    gateway = Gateway(UNREACHABLE)
    with pytest.raises(CliError, match="no answer"):
        gateway.served()
    assert gateway.now_s == pytest.approx(waiting.SERVED_BOUND_S)


@pytest.mark.parametrize(
    ("change", "begins"),
    [
        ({}, "curl -sS --cacert '/a b/ca.crt' https://g:8443/serving-endpoints/wine/invocations "),
        ({"past_proxies": True}, "curl -sS --noproxy '*' --cacert "),
        ({"ca": None}, "curl -sS https://g:8443/"),
        ({"ca": None, "path": "/generate"}, "curl -sS https://g:8443/serving-endpoints/wine/generate "),
        ({"ca": None, "path": "generate"}, "curl -sS https://g:8443/serving-endpoints/wine/generate "),
    ],
)
def test_the_curl_line_says_what_this_machine_needs_and_no_more(change: dict[str, object], begins: str) -> None:
    make: Callable[..., Request] = Request
    given = {"gateway": "https://g:8443", "endpoint": "wine", "key_file": Path("/k"), "payload_file": Path("/p")}
    assert make(**{**given, "ca": Path("/a b/ca.crt"), **change}).curl_line().startswith(begins)


def endpoint(declared: str, serving: str | None, phase: str = "Failed") -> dict[str, Any]:
    revisions = [
        {"name": "kept-1", "phase": "Serving", "modelVersion": "1"},
        {"name": "kept-2", "phase": phase, "modelVersion": "2", "reason": "ModelLoadFailed", "message": "no numpy"},
    ]
    status = {"observedGeneration": 3, "declaredRevision": declared, "trafficRevision": serving, "revisions": revisions}
    return {"metadata": {"generation": 3}, "status": status}


@pytest.mark.case("pulumi-C6")
def test_a_version_that_cannot_serve_is_told_with_what_still_does_and_the_way_back() -> None:
    assert waiting.refusal(endpoint("kept-2", "kept-1"), "stacks/x/kept.yaml") == (
        "ModelLoadFailed: no numpy\n"
        "kept-1 (version 1) still serves. To go back: undo the change of stacks/x/kept.yaml, `knobless up`"
    )


@pytest.mark.parametrize("serving", [None, "kept-2"])
def test_where_nothing_else_serves_there_is_no_way_back_to_tell(serving: str | None) -> None:
    assert waiting.refusal(endpoint("kept-2", serving), "kept.yaml") == "ModelLoadFailed: no numpy"


def test_a_revision_that_may_still_start_is_no_refusal() -> None:
    assert waiting.refusal(endpoint("kept-2", "kept-1", "Starting"), "kept.yaml") is None
