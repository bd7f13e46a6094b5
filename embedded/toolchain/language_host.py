# ruff: noqa: N802 (the methods are named by the protocol)
"""Starts Pulumi programs and policy packs that are written in Python.

Stands in for upstream's ``pulumi-language-python``, which is no Go module of its own: a small gRPC server
that Pulumi starts, whose first line of output is its port. It is installed alone, beside ``pulumi`` and
upstream's ``pulumi-language-python-exec`` (the script that runs a program inside its interpreter), so it
imports nothing of ours. It installs no packages and downloads no plugins: knobless has made both ready.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import IO, NoReturn, Protocol

try:
    import grpc  # type: ignore[import-untyped]
    import yaml
    from google.protobuf import empty_pb2  # type: ignore[import-untyped]
    from pulumi.runtime.proto import language_pb2 as messages
    from pulumi.runtime.proto import language_pb2_grpc, plugin_pb2
except ImportError as error:
    sys.exit(f"pulumi-language-python: {sys.executable} has no Pulumi SDK ({error}); name one in KNOBLESS_PYTHON")

# The exit status by which a program says that it has already shown what went wrong.
SHOWN_TO_USER = 32
PARENT_POLL_S = 1.0
MESSAGE_BYTES = 400 * 1024 * 1024  # as upstream: whole program states travel in one message
VIRTUALENV_OPTION = "virtualenv"
LIST_PACKAGES = (
    "import importlib.metadata as m, json; "
    "print(json.dumps(sorted({(d.metadata['Name'], d.version) for d in m.distributions()})))"
)

Environment = Mapping[str, str]


class Context(Protocol):
    """What we need of grpc.ServicerContext, which has no types."""

    def add_callback(self, callback: Callable[[], None]) -> bool: ...
    def abort(self, code: object, details: str) -> NoReturn: ...


def interpreter(info: messages.ProgramInfo, environment: Environment) -> tuple[str, Environment]:
    """The Python of a program and the environment to start it in.

    ``virtualenv`` of the runtime's options counts from the folder of Pulumi.yaml or PulumiPolicy.yaml.
    """
    option = info.options.fields[VIRTUALENV_OPTION].string_value if info.options.fields else ""
    if not option:
        return environment.get("PULUMI_PYTHON_CMD") or sys.executable, environment
    folder = Path(info.root_directory) / option
    python = folder / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(f"the virtualenv option names {folder}, and there is no {python}")
    path = os.pathsep.join((str(python.parent), environment.get("PATH", os.defpath)))
    activated = {**environment, "VIRTUAL_ENV": str(folder), "PATH": path}
    activated.pop("PYTHONHOME", None)
    return str(python), activated


def run_arguments(request: messages.RunRequest, engine: str) -> list[str]:
    """Command line of pulumi-language-python-exec."""
    options = {
        "monitor": request.monitor_address,
        "engine": engine,
        "project": request.project,
        "stack": request.stack,
        "pwd": request.pwd,
        "dry_run": "true" if request.dryRun else "",
        "parallel": str(request.parallel),
        "organization": request.organization,
        "root_directory": request.info.root_directory,
    }
    given = [word for name, value in options.items() if value for word in (f"--{name}", value)]
    return [*given, request.info.entry_point or ".", *request.args]


def policy_program(info: messages.ProgramInfo) -> Path:
    """The pack's folder or file; the engine leaves ``main`` of PulumiPolicy.yaml to us.

    Checked here, since runpy would look for a ``__main__`` elsewhere and find the one of the program.
    """
    folder = Path(info.program_directory)
    settings = yaml.safe_load((folder / "PulumiPolicy.yaml").read_text())
    program = folder / (settings.get("main") or ".")
    if not (program.is_file() or (program / "__main__.py").is_file()):
        raise FileNotFoundError(f"the policy pack {folder} has no program in {program}")
    return program


def plugin_arguments(request: messages.RunPluginRequest) -> list[str]:
    """What the interpreter is given to serve a policy pack, or a component provider."""
    if request.kind == "analyzer":
        return ["-u", "-m", "pulumi.policy", *request.args, str(policy_program(request.info))]
    return ["-u", request.info.program_directory, *request.args]


def configuration(request: messages.RunRequest) -> dict[str, str]:
    return {
        "PULUMI_CONFIG": json.dumps(dict(request.config)),
        "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
    }


class Children:
    """The interpreters that are running now, so that none outlives the host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    @contextlib.contextmanager
    def start(
        self, command: Sequence[str], folder: str, environment: Environment, streams: int | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Runs a command for the time of the block; leaving it early ends the command."""
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=streams, stderr=streams
        )
        with self._lock:
            self._running.add(process)
        try:
            yield process
        finally:
            stop(process)
            with self._lock:
                self._running.discard(process)

    def stop_all(self) -> None:
        with self._lock:
            running = tuple(self._running)
        for process in running:
            stop(process)


def stop(process: subprocess.Popen[bytes], grace_s: float = 2.0) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(grace_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def output_of(process: subprocess.Popen[bytes]) -> Iterator[messages.RunPluginResponse]:
    """What the process writes, as it comes, and its exit status at the end."""
    chunks: queue.SimpleQueue[messages.RunPluginResponse | None] = queue.SimpleQueue()

    def pump(stream: IO[bytes], wrap: Callable[[bytes], messages.RunPluginResponse]) -> None:
        while chunk := os.read(stream.fileno(), 65536):
            chunks.put(wrap(chunk))
        chunks.put(None)

    assert process.stdout is not None and process.stderr is not None
    threads = (
        threading.Thread(target=pump, args=(process.stdout, as_stdout), daemon=True),
        threading.Thread(target=pump, args=(process.stderr, as_stderr), daemon=True),
    )
    for thread in threads:
        thread.start()
    for _ in threads:
        yield from iter(chunks.get, None)
    yield messages.RunPluginResponse(exitcode=process.wait())


def as_stdout(chunk: bytes) -> messages.RunPluginResponse:
    return messages.RunPluginResponse(stdout=chunk)


def as_stderr(chunk: bytes) -> messages.RunPluginResponse:
    return messages.RunPluginResponse(stderr=chunk)


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Pulumi's LanguageRuntime service (proto/pulumi/language.proto), as far as it is needed."""

    def __init__(self, engine: str, executor: Path) -> None:
        self._engine, self._executor = engine, executor
        self.children = Children()

    def Handshake(
        self, request: messages.LanguageHandshakeRequest, context: Context
    ) -> messages.LanguageHandshakeResponse:
        self._engine = request.engine_address or self._engine
        return messages.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: Context) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo()

    def GetRequiredPackages(
        self, request: messages.GetRequiredPackagesRequest, context: Context
    ) -> messages.GetRequiredPackagesResponse:
        return messages.GetRequiredPackagesResponse()

    def InstallDependencies(
        self, request: messages.InstallDependenciesRequest, context: Context
    ) -> Iterator[messages.InstallDependenciesResponse]:
        return iter(())

    def RuntimeOptionsPrompts(
        self, request: messages.RuntimeOptionsRequest, context: Context
    ) -> messages.RuntimeOptionsResponse:
        return messages.RuntimeOptionsResponse()

    def About(self, request: messages.AboutRequest, context: Context) -> messages.AboutResponse:
        python, environment = interpreter(request.info, os.environ)
        version = subprocess.run([python, "--version"], env=environment, capture_output=True, text=True, check=True)
        return messages.AboutResponse(executable=python, version=version.stdout.removeprefix("Python ").strip())

    def GetProgramDependencies(
        self, request: messages.GetProgramDependenciesRequest, context: Context
    ) -> messages.GetProgramDependenciesResponse:
        python, environment = interpreter(request.info, os.environ)
        listing = subprocess.run(
            [python, "-c", LIST_PACKAGES], env=environment, capture_output=True, text=True, check=True
        )
        found = (messages.DependencyInfo(name=name, version=version) for name, version in json.loads(listing.stdout))
        return messages.GetProgramDependenciesResponse(dependencies=found)

    def Run(self, request: messages.RunRequest, context: Context) -> messages.RunResponse:
        try:
            python, environment = interpreter(request.info, os.environ)
        except FileNotFoundError as error:
            return messages.RunResponse(error=str(error))
        command = [python, "-u", str(self._executor), *run_arguments(request, self._engine)]
        with self.children.start(command, request.pwd, {**environment, **configuration(request)}) as program:
            context.add_callback(lambda: stop(program))
            status = program.wait()
        if status == SHOWN_TO_USER:
            return messages.RunResponse(bail=True)
        return messages.RunResponse(error=f"Program exited with non-zero exit code: {status}" if status else "")

    def RunPlugin(self, request: messages.RunPluginRequest, context: Context) -> Iterator[messages.RunPluginResponse]:
        given = dict(entry.partition("=")[::2] for entry in request.env)
        try:
            python, environment = interpreter(request.info, given or os.environ)
            command = [python, *plugin_arguments(request)]
        except FileNotFoundError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        with self.children.start(command, request.pwd, environment, subprocess.PIPE) as plugin:
            context.add_callback(lambda: stop(plugin))
            yield from output_of(plugin)

    def Cancel(self, request: empty_pb2.Empty, context: Context) -> empty_pb2.Empty:
        self.children.stop_all()
        return empty_pb2.Empty()


def serve(engine: str, executor: Path) -> None:
    """Serves until a signal comes or its Pulumi is gone, and then ends without a word."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    host = LanguageHost(engine, executor)
    # A policy pack holds its thread for as long as it serves.
    options = [
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=64), options=options)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    parent = os.getppid()
    while not ended.wait(PARENT_POLL_S) and os.getppid() == parent:
        pass  # a Pulumi that was killed says no goodbye
    host.children.stop_all()
    server.stop(None).wait(1.0)
    sys.stdout.flush()
    os._exit(0)  # threads that wait for a child's output have nothing left to say


if __name__ == "__main__":
    addresses = [word for word in sys.argv[1:] if not word.startswith("-")]
    serve(addresses[-1] if addresses else "", Path(os.environ["KNOBLESS_LANGUAGE_EXEC"]))
