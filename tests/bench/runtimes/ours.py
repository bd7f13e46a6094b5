"""Runs in our front's environment: our interface with the hooks of a whole platform, or without.

python ours.py model PORT MODEL MODEL_PYTHON    one predictor, as the pod of a small model has
python ours.py constant PORT                    the same interface and hooks before an engine that answers a constant
python ours.py silent PORT                      that without hooks and without metrics
"""

# ruff: noqa: E402
import sys
from pathlib import Path

from runtimes.mlflow import launch
from runtimes.mlflow import settings as mlflow


def of_model(port: str, model: str, python: str) -> mlflow.Settings:
    own = {"host": "127.0.0.1", "port": int(port), "predictors": 1}
    return mlflow.Settings(model=Path(model), model_python=Path(python), **own)


# As in the runtime's own entrance: the predictor begins before all that the front imports.
BEGUN = launch.first(of_model(*sys.argv[2:])) if sys.argv[1:2] == ["model"] else None

import asyncio
from collections import deque

import orjson

from runtimes.interface import serving
from runtimes.interface.engine import About, Call, Reply
from runtimes.interface.hooks import Record
from runtimes.interface.metrics import Metrics
from runtimes.interface.settings import Settings
from runtimes.mlflow.engine import MlflowEngine

SAMPLED_ONE_IN = 100
KEPT = 1000


class Constant:
    """An engine that answers a constant."""

    about = About("m", "7", "none", "1")
    ready = live = True

    def __init__(self) -> None:
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def answer(self, call: Call) -> Reply:
        return Reply(b'{"predictions":[0]}')


class Trace:
    """A span of one request in so many, in OpenTelemetry's JSON."""

    def __init__(self) -> None:
        self._seen = 0
        self._kept: deque[bytes] = deque(maxlen=KEPT)

    def ended(self, record: Record) -> None:
        self._seen += 1
        if self._seen % SAMPLED_ONE_IN == 0:
            began_ns = int(record.began_s * 1e9)
            attributes = {"http.response.status_code": record.status, "url.path": record.path, "id": record.request_id}
            span = {
                "name": record.path,
                "startTimeUnixNano": began_ns,
                "endTimeUnixNano": began_ns + int(record.duration_s * 1e9),
                "parent": None if record.traceparent is None else record.traceparent.decode(errors="replace"),
                "attributes": [{"key": key, "value": value} for key, value in attributes.items()],
            }
            self._kept.append(orjson.dumps(span))


class Payloads:
    """A line of every request with both bodies, as a log that another process takes on would get it."""

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque(maxlen=KEPT)

    def ended(self, record: Record) -> None:
        row = {
            "databricks_request_id": record.request_id,
            "client_request_id": record.client_request_id,
            "timestamp_ms": int(record.began_s * 1000),
            "execution_time_ms": int(record.duration_s * 1000),
            "status_code": record.status,
            "request": record.request.decode(errors="replace"),
            "response": record.response.decode(errors="replace"),
            "request_cut": record.request_cut,
            "response_cut": record.response_cut,
        }
        self._kept.append(orjson.dumps(row))


def main(which: str, port: str, *model: str) -> int:
    if which == "model":
        own = of_model(port, *model)
        return serving.run(own, lambda metrics: MlflowEngine(own, metrics, BEGUN), [Trace(), Payloads()])
    place = Settings(host="127.0.0.1", port=int(port))
    if which == "constant":
        return serving.run(place, lambda _: Constant(), [Trace(), Payloads()])
    Metrics.count = lambda *_: None  # type: ignore[method-assign]
    return serving.run(place, lambda _: Constant())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
