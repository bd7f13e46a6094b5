"""`knobless check-image`: run an image as a pod of the platform would, and try what it promises.

Owns what is asked of the user, starting and ending. Leaves the checks to `contract` and the container to
`embedded.contained`. One idea: what fails here is told with what to change, in seconds and without a cluster.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import httpx

from embedded import contained
from embedded.images import ImageError
from embedded.services import SYSTEM_PATH
from spec.endpoint import EndpointSpec, load_endpoint
from spec.problems import Problem, SpecError
from stacks import registry_login
from stacks.cli import building, contract
from stacks.cli.contract import Asked, Finding, Verdict
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.outcome import command
from stacks.cli.session import Session
from stacks.cluster import ClusterFacts
from stacks.images import ImageError as RegistryError

LOOK_S = 0.2
HOST = "127.0.0.1"
_TRANSPORT = re.compile(r"(?:docker-daemon|docker-archive|oci-archive|oci|dir|containers-storage):.+")


@dataclass(frozen=True)
class Wanted:
    """What is checked: where the image is, what its file says of it, and a request where the user gave one."""

    reference: str
    spec: EndpointSpec
    start_timeout_s: float
    asked: Asked | None


def wanted(image: str, stated: Mapping[str, object], start_timeout_s: float, data: bytes | None, to: str) -> Wanted:
    """From a command line, by the rules of an endpoint's file; CliError with all problems."""
    local = _TRANSPORT.fullmatch(image) is not None
    container = {name: value for name, value in stated.items() if value not in (None, (), [])}
    env = container.pop("env", {})
    document = {
        "endpoint": "checked",
        "image": "localhost/checked:0" if local else image,
        "container": {key: list(value) if isinstance(value, tuple) else value for key, value in container.items()},
        "concurrency": {"min": 1, "max": 1},
        **({"env": env} if env else {}),
    }
    try:
        spec = load_endpoint(json.dumps(document), "checked.yaml", "checks")
    except SpecError as error:
        raise CliError("\n".join(map(_without_place, error.problems)), code=ExitCode.USAGE) from None
    return Wanted(image, spec, start_timeout_s, _asked(spec, data, to))


def _without_place(problem: Problem) -> str:
    allowed = f" (allowed: {problem.allowed})" if problem.allowed else ""
    return f"{problem.field.removeprefix('container.')}: {problem.message}{allowed}"


def of_endpoint(spec: EndpointSpec, start_timeout_s: float, data: bytes | None, to: str) -> Wanted:
    """From an endpoint's file. Its Secrets are not read: their variables stay unset."""
    if spec.image is None:
        raise CliError(f"{spec.endpoint} serves a model, not an image of its own", code=ExitCode.USAGE)
    return Wanted(str(spec.image), spec, start_timeout_s, _asked(spec, data, to))


def _asked(spec: EndpointSpec, data: bytes | None, to: str) -> Asked | None:
    assert spec.container is not None  # as it names an image
    if data is None:
        return None
    path = to or contract.default_path(spec.container)
    if not path:
        hint = "for v2 it is /v2/models/NAME/infer"
        raise CliError("--data needs --to PATH, where the request goes", hint=hint, code=ExitCode.USAGE)
    return Asked(path, data)


def run(session: Session, wanted: Wanted, facts: ClusterFacts | None) -> bool:
    """Print a line a check; whether none failed."""
    _check_machine(wanted)
    failed = False
    for finding in findings(session, wanted, facts):
        session.console.result(str(finding))
        failed = failed or finding.verdict is Verdict.FAILED
    return not failed


def _check_machine(wanted: Wanted) -> None:
    assert wanted.spec.container is not None
    lacking = building.lacks(os.geteuid(), lambda program: shutil.which(program, path=SYSTEM_PATH) is not None)
    if lacking:
        raise CliError(f"this machine can't run a container: {'; '.join(lacking)}", code=ExitCode.MACHINE)
    port = wanted.spec.container.port
    with socket.socket() as probe:
        if probe.connect_ex((HOST, port)) == 0:
            hint = "end what listens there, or set the server to another port"
            raise CliError(f"port {port} is taken on this machine", hint=hint, code=ExitCode.MACHINE)


def findings(session: Session, wanted: Wanted, facts: ClusterFacts | None) -> Iterator[Finding]:
    """Every check in turn."""
    container = wanted.spec.container
    assert container is not None
    plain, auth = _access(wanted, facts)
    try:
        with contained.image(session.workspace.home, wanted.reference, plain_http=plain, auth_file=auth) as image:
            number = image.user_id()
            yield contract.user(container.user, image.config.user, number)
            uid = container.user or number or contained.ANYBODY
            env = {"HOME": "/tmp"} | {name: text for name, text in wanted.spec.env.items() if isinstance(text, str)}
            with contained.running(image, contained.Run(uid, uid, env, container.writable)) as process:
                yield from _tried(wanted, process)
    except ImageError as error:
        raise CliError(str(error)) from error


def _access(wanted: Wanted, facts: ClusterFacts | None) -> tuple[bool, Path | None]:
    """Whether the image's registry has no TLS, and the file with the login to it."""
    image = wanted.spec.image
    assert image is not None
    if facts is not None and image.registry == facts.registry.partition("/")[0] and facts.registry_plain_http:
        return True, None
    try:
        login = registry_login.find(image.registry, os.environ)
    except RegistryError as error:
        raise CliError(str(error)) from error
    return False, login.file if login is not None else None


def _tried(wanted: Wanted, process: contained.Process) -> Iterator[Finding]:
    container = wanted.spec.container
    assert container is not None
    with httpx.Client(base_url=f"http://{HOST}:{container.port}", timeout=contract.ANSWER_S, trust_env=False) as client:
        started = _started(wanted, process, client)
        yield started
        if process.status is None:
            yield contract.address(container.port, contract.tables())
        if started.verdict is not Verdict.OK:
            return
        yield from contract.answering(container, client, wanted.asked)
        yield from _end(wanted, process, client)


def _started(wanted: Wanted, process: contained.Process, client: httpx.Client) -> Finding:
    assert wanted.spec.container is not None
    path, began = wanted.spec.container.health_path, time.monotonic()
    said = "nothing"
    while (took_s := time.monotonic() - began) < wanted.start_timeout_s:
        if process.status is not None:
            told = f"it ended with status {process.status}; it last said:\n{process.last_words()}"
            return Finding("start", Verdict.FAILED, told)
        try:
            said = str(client.get(path, timeout=contract.FAST_S).status_code)
        except httpx.HTTPError:
            said = "nothing"
        if said == "200":
            return Finding("start", Verdict.OK, f"healthy after {took_s:.1f} s, read-only and without a capability")
        time.sleep(LOOK_S)
    told = f"{path} answers {said} after {wanted.start_timeout_s:g} s; it last said:\n{process.last_words()}"
    return Finding("start", Verdict.FAILED, told)


def _end(wanted: Wanted, process: contained.Process, client: httpx.Client) -> Iterator[Finding]:
    """Ended as its pod would end it: the interface has left, so nothing is in flight."""
    assert wanted.spec.container is not None
    client.close()
    began = time.monotonic()
    status = process.stop(wanted.spec.container.stop_s)
    yield contract.ended(wanted.spec.container, status, time.monotonic() - began)


@click.command("check-image")
@click.argument("image")
@click.option("--protocol", help="mlflow, v2, openai or http; not needed for an endpoint.")
@click.option("--port", type=int, help="Where it listens (8080).")
@click.option("--health", help="Answers 200 once it takes requests; the protocol's own by default.")
@click.option("--path", "paths", multiple=True, help="Takes requests beside the protocol's own paths (repeatable).")
@click.option("--writable", multiple=True, metavar="FOLDER", help="It writes there besides /tmp (repeatable).")
@click.option("--user", type=int, help="Run as this user instead of the image's own.")
@click.option("--stop-s", type=int, help="How long it may take to end (15).")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="A variable (repeatable).")
@click.option("-d", "--data", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="A request's body.")
@click.option("--to", default="", metavar="PATH", help="Where the request goes; else the protocol's own path.")
@click.option("--start-timeout-s", default=300.0, show_default=True, help="How long it may take to be healthy.")
@click.pass_obj
@command
def check_image(
    session: Session, /, image: str, variables: tuple[str, ...], data: Path | None, to: str, start_timeout_s: float,
    **stated: object,
) -> None:  # fmt: skip
    """Run IMAGE (or the image of an endpoint) as a pod would, and try whether it can be served."""
    body = data.read_bytes() if data is not None else None
    if "/" in image or ":" in image:
        env = dict(each.partition("=")[::2] for each in variables)
        chosen = wanted(image, {**stated, "env": env}, start_timeout_s, body, to)
    else:
        chosen = of_endpoint(_declared(session, image), start_timeout_s, body, to)
    try:
        facts: ClusterFacts | None = session.facts()
    except CliError:
        facts = None  # no cluster is needed, but for its registry
    sys.exit(0 if run(session, chosen, facts) else int(ExitCode.FAILED))


def _declared(session: Session, name: str) -> EndpointSpec:
    found = session.declared().endpoint(name)
    if found is None:
        raise CliError(f"{name} is no endpoint; an image is written with its registry", code=ExitCode.NOT_FOUND)
    return found


COMMANDS: tuple[click.Command, ...] = (check_image,)
