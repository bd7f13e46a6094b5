"""The benchmark of the runtimes: what its numbers are made of."""

from __future__ import annotations

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.bench.runtimes import goals, load, measuring
from tests.bench.runtimes.goals import Goal
from tests.bench.runtimes.load import Request, Seen
from tests.bench.runtimes.measuring import Alone, Point, Turns
from tests.bench.runtimes.servers import CONSTANT, KSERVE_, MLFLOW, MLSERVER, OURS, SILENT, SPLIT, V2


def turns(**cpu_us: tuple[float, ...]) -> Turns:
    return {
        (name, count): [Point(cpu, 1e6 / cpu, 1, 2) for cpu in each]
        for name, each in cpu_us.items()
        for count in measuring.CONNECTIONS
    }


def test_a_ratio_is_that_of_the_turns_because_a_machine_that_slows_down_slows_both() -> None:
    found = turns(ours=(10, 40, 100), mlflow=(200, 400, 3000))
    assert measuring.cpu_ratio(found, (MLFLOW, 8), (OURS, 8)) == 20
    assert measuring.rps_ratio(found, (OURS, 8), (MLFLOW, 8)) == 20
    assert measuring.median(found[OURS, 8]).cpu_us == 40


def test_every_goal_is_told_from_its_own_side() -> None:
    found = turns(ours=(100,), mlflow=(1999,), kserve=(150,), mlserver=(300,), constant=(35,), silent=(5,))
    met = [goal.met for goal in goals.of_model("m", found)]
    assert met == [True, False, False, True, False, False, True, True, True, True]
    alone = {OURS: Alone(4.0, 200.0), MLFLOW: Alone(10.0, 500.0), MLSERVER: Alone(5.0, 199.0)}
    assert [goal.met for goal in goals.of_process("m", alone)] == [True, False]
    assert goals.telemetry(found) == Goal(goals.telemetry(found).about, 30.0, 30.0, least=False)
    assert {CONSTANT, SILENT, KSERVE_} <= {name for name, _ in found}


@pytest.fixture
def port() -> Iterator[int]:
    class Server(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200 if body == SPLIT.body.encode() else 400)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None: ...

        def handle_one_request(self) -> None:
            with contextlib.suppress(ConnectionError):  # a client that ends at an error just leaves
                super().handle_one_request()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


WITHOUT_WRK = pytest.mark.skipif(load.WRK is None, reason="there is no wrk here")
DRIVES = [pytest.param(load._wrk, marks=WITHOUT_WRK), load._own]


@pytest.mark.parametrize("drive", DRIVES)
def test_both_clients_count_what_was_answered_and_stop_at_an_error(
    drive: Callable[[int, Request, int, float], Seen], port: int
) -> None:
    assert drive(port, SPLIT, 2, 0.1).requests > 0
    with pytest.raises(RuntimeError):
        drive(port, Request(SPLIT.path, V2.body), 2, 0.1)
