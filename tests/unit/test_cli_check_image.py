"""What a container of one's own must do, tried on servers that keep their promises and on servers that break one."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from embedded.contained import Config, Run, bundle
from spec.container import Container
from spec.endpoint import load_endpoint
from stacks.cli import check_image, contract
from stacks.cli.contract import Asked, Finding, Verdict
from stacks.cli.errors import CliError, ExitCode

Reply = tuple[int, str, bytes]
Handler = Callable[[str, str, bytes], Reply]
JSON = "application/json"


def right(method: str, path: str, body: bytes) -> Reply:
    """A server of all three protocols that keeps every promise."""
    documents = {
        "/health": {},
        "/v2/health/live": {},
        "/v2/health/ready": {},
        "/v2": {"name": "n"},
        "/v1/models": {"data": []},
    }
    if method == "GET" and path in documents:
        return 200, JSON, json.dumps(documents[path]).encode()
    if method == "GET" or path == "/no-such-path-of-knobless":
        return 404, JSON, b"{}"
    try:
        json.loads(body)
    except ValueError:
        return 400, JSON, b"{}"
    if path == "/v1/chat/completions":
        return 200, "text/event-stream", b'data: {"x": 1}\n\ndata: [DONE]\n\n'
    return 200, JSON, json.dumps({"predictions": [1], "outputs": []}).encode()


@contextmanager
def serving(handle: Handler) -> Iterator[httpx.Client]:
    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = handle(
                self.command, self.path, self.rfile.read(int(self.headers["content-length"] or 0))
            )
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{server.server_port}", trust_env=False) as client:
                yield client
        finally:
            server.shutdown()
            thread.join()


def findings(container: Container, handle: Handler, asked: Asked | None = None) -> list[Finding]:
    with serving(handle) as client:
        return list(contract.answering(container, client, asked))


def verdicts(found: list[Finding], about: str) -> set[Verdict]:
    return {finding.verdict for finding in found if finding.about == about}


def but(path: str, reply: Reply) -> Handler:
    """The right server, with another answer at one path."""
    return lambda method, asked, body: reply if asked == path else right(method, asked, body)


SCORING = Container(protocol="mlflow")
V2 = Container(protocol="v2")
OPENAI = Container(protocol="openai")
PLAIN = Container(protocol="http", health="/health", paths=("/rank",))


@pytest.mark.parametrize(
    ("container", "asked"),
    [
        (SCORING, Asked("/invocations", b"{}")),
        (V2, Asked("/v2/models/m/infer", b"{}")),
        (OPENAI, Asked("/v1/chat/completions", b"{}")),
        (PLAIN, Asked("/rank", b"{}")),
    ],
    ids=lambda value: getattr(value, "protocol", ""),
)
def test_a_server_that_keeps_its_promises_passes_every_check(container: Container, asked: Asked) -> None:
    found = findings(container, right, asked)
    assert {finding.verdict for finding in found} == {Verdict.OK}, [str(finding) for finding in found]


def test_an_answer_that_was_not_asked_for_is_no_success() -> None:
    assert verdicts(findings(SCORING, right), "answer") == {Verdict.UNTRIED}


@pytest.mark.parametrize(
    ("container", "handle", "asked", "about", "said"),
    [
        (SCORING, but("/health", (503, JSON, b"{}")), None, "health", "/health answers 503, and must answer 200"),
        (V2, but("/v2/health/live", (404, JSON, b"")), None, "protocol", "/v2/health/live answers 404"),
        (V2, but("/v2", (200, JSON, b"[]")), None, "protocol", "GET /v2 must answer 200 and an object with `name`"),
        (OPENAI, but("/v1/models", (200, "text/html", b"<p>")), None, "protocol", "GET /v1/models must answer 200"),
        (SCORING, but("/invocations", (500, JSON, b"oh")), Asked("/invocations", b"{}"), "answer", "answers 500: oh"),
        (SCORING, but("/invocations", (200, JSON, b"[1]")), Asked("/invocations", b"{}"), "answer", "no `predictions`"),
        (V2, but("/v2/models/m/infer", (200, JSON, b"{}")), Asked("/v2/models/m/infer", b"{}"), "answer", "`outputs`"),
        (SCORING, but("/invocations", (200, JSON, b"NaN,")), Asked("/invocations", b"{}"), "answer", "is no JSON"),
        (
            OPENAI,
            but("/v1/chat/completions", (200, "text/event-stream", b"data: {}\n\n")),
            Asked("/v1/chat/completions", b"{}"),
            "answer",
            "the stream does not end with `data: [DONE]`",
        ),
        (SCORING, but("/invocations", (500, JSON, b"")), None, "errors", "a broken body is answered 500"),
        (PLAIN, but("/rank", (200, JSON, b"{}")), None, "errors", "a broken body is answered 200"),
        (PLAIN, but("/no-such-path-of-knobless", (200, JSON, b"")), None, "errors", "an unknown path is answered 200"),
    ],
)
def test_a_broken_promise_is_told_with_what_is_wrong(
    container: Container, handle: Handler, asked: Asked | None, about: str, said: str
) -> None:
    first = next(finding for finding in findings(container, handle, asked) if finding.verdict is Verdict.FAILED)
    assert first.about == about
    assert said in first.said


def test_a_server_that_has_gone_is_a_failure_of_every_check_and_no_crash() -> None:
    with serving(right) as client:
        pass
    with httpx.Client(base_url=client.base_url, trust_env=False) as late:
        found = list(contract.answering(V2, late, Asked("/v2/models/m/infer", b"{}")))
    assert {finding.verdict for finding in found} == {Verdict.FAILED}


@pytest.mark.parametrize(
    ("stated", "written", "number", "verdict", "said"),
    [
        (None, "1000", 1000, Verdict.OK, "runs as 1000"),
        (None, "1000:1000", 1000, Verdict.OK, "runs as 1000"),
        (7, "", 0, Verdict.OK, "runs as 7, as stated"),
        (None, "", 0, Verdict.FAILED, "the image's user is root"),
        (None, "root", 0, Verdict.FAILED, "the image's user is root"),
        (None, "app", 100, Verdict.FAILED, "USER app is a name, which a node can't judge: write USER 100"),
        (None, "app", None, Verdict.FAILED, "USER app is a name, which a node can't judge: write its number"),
    ],
)
def test_an_image_says_by_number_that_it_is_not_root(
    stated: int | None, written: str, number: int | None, verdict: Verdict, said: str
) -> None:
    found = contract.user(stated, written, number)
    assert found.verdict is verdict
    assert said in found.said


HEAD = "  sl  local_address rem_address   st\n"
ANY4, LOOPBACK4 = f"{HEAD}   0: 00000000:1F90 00000000:0000 0A\n", f"{HEAD}   0: 0100007F:1F90 00000000:0000 0A\n"
ANY6 = f"{HEAD}   0: {'0' * 32}:1F90 {'0' * 32}:0000 0A\n"


@pytest.mark.parametrize(
    ("tables", "verdict", "said"),
    [
        ({"tcp": ANY4}, Verdict.OK, "listens on 8080, on all addresses"),
        ({"tcp": HEAD, "tcp6": ANY6}, Verdict.OK, "on all addresses"),
        ({"tcp": LOOPBACK4}, Verdict.FAILED, "loopback alone: bind it to 0.0.0.0"),
        ({"tcp": HEAD}, Verdict.FAILED, "nothing listens on 8080"),
        ({"tcp": ANY4.replace("0A", "01")}, Verdict.FAILED, "nothing listens on 8080"),
    ],
)
def test_the_port_is_open_to_the_kubelet(tables: dict[str, str], verdict: Verdict, said: str) -> None:
    found = contract.address(8080, tables)
    assert found.verdict is verdict
    assert said in found.said


def test_a_server_that_stays_after_sigterm_is_told_and_one_that_ends_with_any_status_is_right() -> None:
    assert contract.ended(SCORING, None, 15.0).verdict is Verdict.FAILED
    assert contract.ended(SCORING, 143, 0.3) == Finding("end", Verdict.OK, "ends 0.3 s after SIGTERM, with status 143")


def test_the_container_is_started_as_a_pod_would_start_it() -> None:
    config = Config("1000", ("serve", "--now"), ("A=1", "HOME=/root"), "/srv")
    made: dict[str, Any] = bundle(config, Run(1000, 1000, {"HOME": "/tmp"}, ("/cache",)))
    process = made["process"]
    assert (process["args"], process["cwd"]) == (["serve", "--now"], "/srv")
    assert process["user"] == {"uid": 1000, "gid": 1000}
    assert {"A=1", "HOME=/tmp"} <= set(process["env"])
    assert process["noNewPrivileges"] is True
    assert set(map(tuple, process["capabilities"].values())) == {()}
    assert made["root"]["readonly"] is True
    writable = {mount["destination"] for mount in made["mounts"] if mount["type"] == "tmpfs"}
    assert writable == {"/dev", "/dev/shm", "/tmp", "/cache"}


STATED = {"protocol": "v2", "port": None, "health": None, "paths": (), "writable": (), "user": None, "stop_s": None}


def test_a_command_line_is_read_by_the_rules_of_a_file() -> None:
    made = check_image.wanted("r.io/x:1", STATED | {"port": 9000, "env": {"A": "1"}}, 30, None, "")
    assert made.spec.container == Container(protocol="v2", port=9000)
    assert (made.reference, made.spec.env, made.asked) == ("r.io/x:1", {"A": "1"}, None)
    with pytest.raises(CliError, match="port: 80 is a port for root") as caught:
        check_image.wanted("r.io/x", STATED | {"port": 80}, 30, None, "")
    assert "image: 'r.io/x' may mean another image tomorrow" in caught.value.message
    assert caught.value.code is ExitCode.USAGE


@pytest.mark.parametrize("image", ["docker-daemon:x:1", "oci-archive:/tmp/x.tar", "containers-storage:localhost/x"])
def test_an_image_of_this_machine_needs_no_registry(image: str) -> None:
    assert check_image.wanted(image, STATED, 30, None, "").reference == image


@pytest.mark.parametrize(
    ("protocol", "to", "path"),
    [
        ("mlflow", "", "/invocations"),
        ("openai", "", "/v1/chat/completions"),
        ("openai", "/v1/embeddings", "/v1/embeddings"),
        ("v2", "/v2/models/m/infer", "/v2/models/m/infer"),
    ],
)
def test_a_request_goes_where_the_protocol_takes_it_or_where_the_user_says(protocol: str, to: str, path: str) -> None:
    assert check_image.wanted("r.io/x:1", STATED | {"protocol": protocol}, 30, b"{}", to).asked == Asked(path, b"{}")


def test_a_request_of_v2_needs_the_model_s_name() -> None:
    with pytest.raises(CliError, match="--data needs --to PATH"):
        check_image.wanted("r.io/x:1", STATED, 30, b"{}", "")


def test_an_endpoint_s_own_file_says_how_its_image_is_checked() -> None:
    text = "endpoint: e\nimage: r.io/x:1\ncontainer: {protocol: openai}\nconcurrency: {min: 1, max: 1}\n"
    assert check_image.of_endpoint(load_endpoint(text, "e.yaml", "alpha"), 30, b"{}", "").reference == "r.io/x:1"
    model = "endpoint: e\nmodel: models:/e/1\nconcurrency: {min: 1, max: 1}\n"
    with pytest.raises(CliError, match="e serves a model, not an image of its own"):
        check_image.of_endpoint(load_endpoint(model, "e.yaml", "alpha"), 30, None, "")
