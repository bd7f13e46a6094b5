"""`knobless serve`: a model on this machine, behind the same interface as in its pod, without a cluster.

Owns finding the model, the process and what a person is told. Leaves environments to `served_env` and serving to the
runtime. One idea: the processes and packages are those of the model's image, so what answers here answers there too.
"""

from __future__ import annotations

import http.client
import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from runtimes import images
from runtimes.selection import Runtime, SelectionError, Wish, select
from runtimes.selection_card import Card, UnreadableModelError, parse_card
from stacks.cli import inspect_model, interruption, mlflow_env, served_env
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.outcome import command
from stacks.cli.session import Session

HOST = "127.0.0.1"
LOOK_S = 0.1
LINGER_S = "0.1"  # no gateway has to learn that this replica ends
EXAMPLE = "serving_input_example.json"
NOT_A_MODEL = "{} is neither a folder with an MLmodel file nor an MLflow URI such as models:/fraud/1"


@dataclass(frozen=True)
class Model:
    """A model's folder on this machine, and what it says of itself."""

    folder: Path
    card: Card


@contextmanager
def found(session: Session, model: str, env: Mapping[str, str]) -> Iterator[Model]:
    """The model of a folder or an MLflow URI; what was downloaded for it goes with it. CliError where there is none."""
    folder = Path(model)
    if (folder / "MLmodel").is_file():
        yield Model(folder.resolve(), _card(folder))
    elif ":" not in model or folder.exists():
        raise CliError(NOT_A_MODEL.format(model), code=ExitCode.NOT_FOUND)
    else:
        place = session.workspace.home / "models"
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="served-", dir=place) as scratch:
            yield _downloaded(session, model, env, scratch)


def _downloaded(session: Session, uri: str, env: Mapping[str, str], scratch: str) -> Model:
    registry = env.get("MLFLOW_TRACKING_URI") or _registry(session)
    mlflow_env.ensure(session.workspace, session.console.note)
    session.console.note(f"downloading {uri}")
    script = Path(inspect_model.__file__)
    answer = mlflow_env.last_json(mlflow_env.run_script(session.workspace, script, registry, uri, scratch))
    if "error" in answer:
        raise CliError(f"{uri}: {answer['error']}", code=ExitCode.NOT_FOUND)
    return Model(Path(str(answer["path"])), parse_card(str(answer["card"])))


def _registry(session: Session) -> str:
    try:
        return session.facts().model_registry
    except CliError:
        hint = "set MLFLOW_TRACKING_URI to your model registry's address, or start the platform's own: `knobless up`"
        raise CliError("no model registry is known here", hint=hint, code=ExitCode.NOT_FOUND) from None


def _card(folder: Path) -> Card:
    try:
        return inspect_model.card(folder)
    except UnreadableModelError as error:
        raise CliError(str(error), code=ExitCode.SPEC) from None


def environment(model: Model) -> images.Environment:
    """The environment that the model asks for; CliError where the platform would not serve it by this runtime."""
    try:
        choice = select(model.card, Wish())
        if choice.runtime is Runtime.MLFLOW:
            return images.environment(images.read_files(model.folder))
    except SelectionError as error:
        raise CliError("\n".join(each.message for each in error.refusals), code=ExitCode.SPEC) from None
    except images.UnsupportedModelError as error:
        raise CliError(str(error), code=ExitCode.SPEC) from None
    hint = f"{choice.why}; `knobless up` serves it"
    raise CliError(f"this model is one for {choice.runtime}, which `serve` does not start", hint=hint)


@contextmanager
def running(session: Session, model: Model, name: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """The runtime's process, once it answers; CliError with its own reason where it can't."""
    report = session.console.note
    wanted = environment(model)
    _check_free(port)
    front = served_env.front(session.workspace, report)
    own = served_env.of_model(session.workspace, wanted, report)
    with tempfile.TemporaryDirectory(prefix="knobless-serve-") as scratch:
        (Path(scratch) / "site").mkdir()
        (Path(scratch) / "site" / "runtimes").symlink_to(session.workspace.root / "runtimes")
        why = Path(scratch) / "reason"
        words = ["--model", model.folder, "--model-python", own, "--name", name, "--version", "local"]
        words += ["--host", HOST, "--port", port, "--linger-s", LINGER_S]
        with subprocess.Popen(
            [str(front), "-m", "runtimes.mlflow", *map(str, words)],
            env={**os.environ, **_variables(Path(scratch) / "site", why)},
            stdin=subprocess.DEVNULL,
        ) as process:
            try:
                _wait_ready(process, port, why)
                yield process
                raise CliError(_reason(why, process.wait()))
            finally:
                process.terminate()
                interruption.finish()  # before its files go


def _check_free(port: int) -> None:
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            raise CliError(f"port {port} is taken on this machine", hint="name another: --port", code=ExitCode.MACHINE)


def _variables(site: Path, why: Path) -> dict[str, str]:
    """As in the image: nothing else of ours can be imported, and nobody reports to a vendor."""
    quiet = {"DO_NOT_TRACK": "true", "MLFLOW_DISABLE_TELEMETRY": "true", "ORT_DISABLE_TELEMETRY": "1"}
    return {**quiet, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1", "KNOBLESS_TERMINATION_LOG": str(why)}


def _wait_ready(process: subprocess.Popen[bytes], port: int, why: Path) -> None:
    while not _healthy(port):
        if process.poll() is not None:
            raise CliError(_reason(why, process.returncode))
        time.sleep(LOOK_S)


def _healthy(port: int) -> bool:
    with closing(http.client.HTTPConnection(HOST, port, timeout=2)) as connection:
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False


def _reason(why: Path, status: int) -> str:
    told = why.read_text().strip() if why.is_file() else ""
    return f"the model can't be served: {told or f'the server ended with status {status}'}"


def curl(folder: Path, port: int) -> str:
    """The line that sends the model's own example, or a body of one's own where it was logged without one."""
    body = folder / EXAMPLE
    data = shlex.quote(f"@{body if body.is_file() else 'body.json'}")
    return f"curl -H 'Content-Type: application/json' -d {data} http://{HOST}:{port}/invocations"


@click.command()
@click.argument("model")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="On 127.0.0.1.")
@click.option("--name", default="model", show_default=True, help="Its name in v2 and OpenAI's API.")
@click.pass_obj
@command
def serve(session: Session, model: str, port: int, name: str) -> None:
    """Serve MODEL (a folder, or an MLflow URI) on this machine as its pod would; Ctrl-C ends it."""
    try:
        with found(session, model, os.environ) as chosen, running(session, chosen, name, port) as process:
            session.console.result(curl(chosen.folder, port))
            session.console.note("ready; Ctrl-C ends it")
            process.wait()
    except KeyboardInterrupt:
        session.console.note("ended")


COMMANDS: tuple[click.Command, ...] = (serve,)
