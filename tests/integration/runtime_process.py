"""The runtime's real processes for its tests: models logged once a run, servers on free ports, a small HTTP client."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stacks.cli import mlflow_env, workspace

ROOT = Path(__file__).parents[2]
JSON = {"content-type": "application/json"}
START_S = 90  # a predictor imports MLflow and pandas, on a machine that may be busy


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_constant=lambda name: f"not JSON: {name}")

    @property
    def error(self) -> dict[str, str]:
        assert self.headers["content-type"] == "application/json"
        (error,) = self.json.values()
        assert set(error) - {"field"} == {"code", "message", "request_id"}
        assert error["request_id"] == self.headers["x-request-id"]
        return dict(error)


class Connection:
    """One keep-alive HTTP/1.1 connection, and nothing clever about it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield cls(reader, writer)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        await self.send(method, path, body, headers)
        return await self.receive()

    async def send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: pod"]
        if body or method == "POST":
            lines.append(f"content-length: {len(body)}")
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        await self.writer.drain()

    async def receive(self) -> Answer:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        status, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await self.reader.readexactly(int(headers["content-length"]))
        return Answer(int(status.split()[1]), headers, body)


@dataclass
class Runtime:
    """One running server."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    host: str = "127.0.0.1"

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = (self.folder / "log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    @property
    def reason(self) -> str:
        return (self.folder / "termination-log").read_text()

    def ask(self, method: str, path: str, body: bytes | Any = b"", headers: Mapping[str, str] | None = None) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())

    def post(self, document: Any, **headers: str) -> Answer:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return self.ask("POST", "/invocations", body, {**JSON, **own})

    def metric(self, name: str, **labels: str) -> float:
        """The sum over all series of this name that carry these labels."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        text = self.ask("GET", "/metrics").body.decode()
        lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(label in line for label in wanted))

    def wait_ready(self) -> Runtime:
        until(lambda: self.ask("GET", "/health").status == 200, "readiness", self.process)
        return self

    def predictors(self) -> list[int]:
        """Pids of the predictor processes; the one that they may be copies of is none."""
        return [pid for pid in self.children() if comm(pid) != "template"]

    def children(self) -> list[int]:
        """Pids of all that the front started or adopted."""
        return list(map(int, Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()))

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()
        return self.process.wait()


@contextlib.contextmanager
def serve(model: str | Path, folder: Path, *flags: str) -> Iterator[Runtime]:
    """A server for this model, one of the tests' or a folder; it may not be ready yet, or ever."""
    command = ["runtimes.mlflow", "--model", str(models() / model), "--model-python", str(model_python())]
    with process_of_ours(folder, [*command, *flags]) as runtime:
        yield runtime


@contextlib.contextmanager
def process_of_ours(folder: Path, command: list[str]) -> Iterator[Runtime]:
    """A module of the runtime's as a process; it may not be ready yet, or ever."""
    site = folder / "site"
    site.mkdir(parents=True)
    (site / "runtimes").symlink_to(ROOT / "runtimes")  # as in the image: nothing else of ours can be imported
    port = free_port()
    module, *flags = command
    where = ["--host", "127.0.0.1", "--port", str(port), "--name", "test", "--version", "7"]
    own = {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1", "KNOBLESS_TERMINATION_LOG": str(folder / "termination-log")}
    with listening([sys.executable, "-m", module, *where, *flags], {**os.environ, **own}, port, folder) as runtime:
        yield runtime


@contextlib.contextmanager
def listening(
    command: list[str], environment: Mapping[str, str], port: int, folder: Path, host: str = "127.0.0.1"
) -> Iterator[Runtime]:
    """A process from its first socket, or its end, to when it is no longer needed; its log lies in the folder."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
        )
    runtime = Runtime(process, port, folder, host)
    try:
        until(lambda: process.poll() is not None or listens(port, host), "the first socket")
        yield runtime
    finally:
        runtime.stop()


def comm(pid: int) -> str:
    """What a process calls itself; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(met: Any, what: str, process: subprocess.Popen[bytes] | None = None, most_s: float = START_S) -> None:
    """Wait for a condition; the bound is a safety net, never what is asserted."""
    end = time.monotonic() + most_s
    while not met():
        assert process is None or process.poll() is None, f"the server ended while {what} was awaited"
        assert time.monotonic() < end, f"no {what} within {most_s} s"
        time.sleep(0.05)


@functools.cache
def model_python() -> Path:
    """The interpreter of MLflow's environment, made where it is missing: the models' own here."""
    return mlflow_env.ensure(workspace.from_process("local", "tests"), lambda _: None)


@functools.cache
def models() -> Path:
    """The tests' models, logged with the real MLflow once a run."""
    folder = Path(tempfile.mkdtemp(prefix="knobless-models-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = Path(__file__).with_name("runtime_models.py")
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [str(model_python()), str(script), str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folder
