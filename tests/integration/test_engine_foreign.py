"""The real MLServer, KServe and BentoML behind the interface: their users' requests are answered, their mistakes are
4xx in one shape, and a pod's end loses nothing although none of these servers drains as a pod must."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.runtime_process import JSON, Connection, Runtime, process_of_ours
from tests.integration.test_engine_container import arguments
from tests.runtime_lab import foreign_servers

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Server:
    """What its users would declare, a request with its answer, and one that is wrong."""

    container: str
    path: str
    body: Any
    answer: Any
    wrong: Any


def tensor(name: str, *values: float) -> dict[str, Any]:
    return {"name": name, "shape": [len(values)], "datatype": "FP64", "data": list(values)}


SERVERS = {
    "mlserver": Server(
        "{protocol: v2}",
        "/v2/models/m/infer",
        {"inputs": [tensor("x", 1, 2.5)]},
        [2.0, 5.0],
        {"inputs": [{"name": "x"}]},
    ),
    "kserve": Server(
        "{protocol: v2, paths: ['/v1/models/m:predict']}",
        "/v2/models/m/infer",
        {"inputs": [tensor("x", 1, 2.5)]},
        [2.0, 5.0],
        {"inputs": [{"name": "x"}]},
    ),
    "bentoml": Server(
        "{protocol: http, health: /readyz, paths: [/double]}", "/double", {"rows": [1, 2.5]}, [2.0, 5.0], {"rows": "x"}
    ),
}


@contextlib.contextmanager
def behind_the_interface(name: str, folder: Path) -> Iterator[Runtime]:
    with foreign_servers.running(name, folder / "server") as (port, _):
        command = ["runtimes.proxy", "--upstream-port", str(port), *arguments(SERVERS[name].container)]
        with process_of_ours(folder, command) as runtime:
            runtime.wait_ready()
            yield runtime


@pytest.fixture(scope="module", params=SERVERS)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Runtime, Server]]:
    with behind_the_interface(request.param, tmp_path_factory.mktemp(request.param)) as runtime:
        yield runtime, SERVERS[request.param]


def predicted(document: Any) -> Any:
    return document["outputs"][0]["data"] if isinstance(document, dict) else document


def test_a_request_is_answered_as_the_server_answers_it(served: tuple[Runtime, Server]) -> None:
    runtime, server = served
    answer = runtime.ask("POST", server.path, json.dumps(server.body).encode(), JSON | {"x-request-id": "mine"})
    assert (answer.status, predicted(answer.json)) == (200, server.answer)
    assert answer.headers["x-request-id"] == "mine"


def test_a_wrong_or_broken_request_is_a_4xx_in_the_interface_s_shape(served: tuple[Runtime, Server]) -> None:
    runtime, server = served
    for body in (json.dumps(server.wrong).encode(), b'{"'):
        answer = runtime.ask("POST", server.path, body, JSON)
        assert 400 <= answer.status < 500, (body, answer.status, answer.body)
        assert answer.json["error"]


def test_v2_s_metadata_and_health_are_reached(served: tuple[Runtime, Server]) -> None:
    runtime, server = served
    wanted = 200 if "v2" in server.path else 404
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/m", "/v2/models/m/ready"):
        assert runtime.ask("GET", path).status == wanted, path


def test_kserve_s_first_protocol_passes_where_its_path_is_declared(tmp_path: Path) -> None:
    with behind_the_interface("kserve", tmp_path) as runtime:
        answer = runtime.ask("POST", "/v1/models/m:predict", b'{"instances": [[1, 2]]}', JSON)
        assert (answer.status, answer.json) == (200, {"predictions": [[2, 4]]})


@pytest.mark.case("runtimes-C10", "runtimes-C11", "runtimes-C19")
def test_requests_go_on_until_the_interface_has_left_and_all_are_answered(served: tuple[Runtime, Server]) -> None:
    """As in a pod: SIGTERM comes to the interface first, and to the server only once the interface is gone."""
    runtime, server = served

    async def asked() -> list[int]:
        async with Connection.open(runtime.port) as connection:
            found = []
            for index in range(20):
                if index == 5:
                    runtime.process.terminate()
                answer = await connection.ask("POST", server.path, json.dumps(server.body).encode(), JSON)
                found.append(answer.status)
                if answer.headers.get("connection") == "close":
                    break
            return found

    statuses = asyncio.run(asked())
    assert set(statuses) == {200}
    assert len(statuses) > 5
    assert runtime.process.wait(30) == 0
