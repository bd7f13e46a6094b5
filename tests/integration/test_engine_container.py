"""A container of one's own behind the interface, started as its pod starts it: with servers shaped like TGI, Ollama,
TensorFlow Serving and TorchServe. They are stubs; the declaration of each is what its users would write."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from components.manifests import endpoint
from components.manifests.served import ServedImage
from spec.endpoint import load_endpoint
from spec.platform import Rollout
from tests.integration.runtime_process import JSON, Runtime, free_port, process_of_ours

pytestmark = pytest.mark.process
DIGEST = "@sha256:" + "a" * 64


@dataclass(frozen=True)
class Shape:
    """A foreign server: what its users would declare, and requests with the answers that they would get."""

    container: str
    answers: tuple[tuple[str, Any, Any], ...]  # path, body, answer
    refused: tuple[str, Any]


SHAPES = {
    "tgi": Shape(
        "{protocol: openai, paths: [/generate, /generate_stream]}",
        (
            ("/generate", {"inputs": "hi"}, {"generated_text": "hi!"}),
            ("/v1/chat/completions", {"messages": []}, {"choices": [{"message": {"content": "a"}}]}),
        ),
        ("/generate", {"input": "hi"}),
    ),
    "ollama": Shape(
        "{protocol: openai, health: /, paths: [/api/chat]}",
        (("/v1/chat/completions", {"messages": []}, {"choices": [{"message": {"content": "a"}}]}),),
        ("/api/generate", {}),
    ),
    "tensorflow-serving": Shape(
        "{protocol: http, health: /v1/models/m, paths: ['/v1/models/m:predict']}",
        (("/v1/models/m:predict", {"instances": [[1.5]]}, {"predictions": [[1.5]]}),),
        ("/v1/models/other:predict", {"instances": []}),
    ),
    "torchserve": Shape(
        "{protocol: http, health: /ping, paths: [/predictions/m]}",
        (("/predictions/m", {"a": 1}, {"bytes": 8}),),
        ("/predictions/other", {}),
    ),
}


def arguments(container: str) -> list[str]:
    """The proxy's command line in the pod that this declaration makes, but for its two ports."""
    text = f"endpoint: own\nimage: r.io/own:1\ncontainer: {container}\nconcurrency: {{min: 1, max: 8}}\n"
    spec = load_endpoint(text, "own.yaml", "alpha")
    served = ServedImage("r.io/own:1", "1", f"r.io/own{DIGEST}", f"r.io/proxy{DIGEST}", 8)
    pod = endpoint.pod_template(spec, served, "http://models:5500", Rollout())["spec"]
    args: list[str] = pod["containers"][0]["args"]
    return [
        word for flag, value in zip(args[::2], args[1::2], strict=True) if "port" not in flag for word in (flag, value)
    ]


@contextlib.contextmanager
def behind_the_interface(name: str, folder: Path) -> Iterator[Runtime]:
    port = free_port()
    stub = [sys.executable, str(Path(__file__).with_name("foreign_stub.py")), name, str(port)]
    with subprocess.Popen(stub) as server:
        try:
            command = ["runtimes.proxy", "--upstream-port", str(port), *arguments(SHAPES[name].container)]
            with process_of_ours(folder, command) as runtime:
                runtime.wait_ready()
                yield runtime
        finally:
            server.kill()


@pytest.fixture(scope="module", params=SHAPES)
def shaped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Runtime, Shape]]:
    with behind_the_interface(request.param, tmp_path_factory.mktemp(request.param)) as runtime:
        yield runtime, SHAPES[request.param]


def test_a_declared_path_is_answered_as_the_server_answers_it(shaped: tuple[Runtime, Shape]) -> None:
    runtime, shape = shaped
    for path, body, expected in shape.answers:
        answer = runtime.ask("POST", path, json.dumps(body).encode(), JSON)
        assert (answer.status, answer.json) == (200, expected)
        assert answer.headers["x-request-id"]


def test_a_client_s_mistake_is_a_4xx_of_the_interface_s_shape(shaped: tuple[Runtime, Shape]) -> None:
    runtime, shape = shaped
    path, body = shape.refused
    answer = runtime.ask("POST", path, json.dumps(body).encode(), JSON)
    assert 400 <= answer.status < 500
    assert answer.json["error"]["message"]


def test_readiness_is_the_interface_s_and_nothing_undeclared_is_reached(shaped: tuple[Runtime, Shape]) -> None:
    runtime, _ = shaped
    assert [runtime.ask("GET", path).status for path in ("/health", "/live")] == [200, 200]
    assert [runtime.ask("GET", path).status for path in ("/info", "/api/tags", "/models")] == [404, 404, 404]


def test_streams_of_events_and_of_lines_arrive_whole(tmp_path: Path) -> None:
    with behind_the_interface("tgi", tmp_path / "tgi") as tgi:
        stream = tgi.ask("POST", "/generate_stream", b'{"inputs": "x"}', JSON).body
        assert stream.count(b"data: ") == 2
        chat = tgi.ask("POST", "/v1/chat/completions", b'{"messages": [], "stream": true}', JSON).body
        assert chat.rstrip().endswith(b"data: [DONE]")
    with behind_the_interface("ollama", tmp_path / "ollama") as ollama:
        lines = ollama.ask("POST", "/api/chat", b'{"messages": []}', JSON).body.splitlines()
        assert [json.loads(line)["done"] for line in lines] == [False, True]


def test_a_body_of_any_type_reaches_a_server_that_takes_it(tmp_path: Path) -> None:
    with behind_the_interface("torchserve", tmp_path) as runtime:
        answer = runtime.ask("POST", "/predictions/m", b"\x89PNG" + bytes(1000), {"content-type": "image/png"})
        assert (answer.status, answer.json) == (200, {"bytes": 1004})
