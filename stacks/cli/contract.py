"""What a container of one's own must do to be served, as a list of checks with one line each.

Leaves starting and stopping it to `check_image`. One idea: each check says what the platform relies on, and what to
change where it does not hold; a check that could not be tried says so, and is no success.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import httpx

from spec.container import Container

FAST_S: Final = 0.5  # the interface looks at the health path several times a second
ANSWER_S: Final = 60.0
_WRONG_PATH: Final = "/no-such-path-of-knobless"
_NO_MODEL: Final = "none"
_BROKEN: Final = b'{"'
_JSON: Final = {"Content-Type": "application/json"}
_LISTENING: Final = "0A"  # the state's number in /proc/net/tcp
_EVERYWHERE: Final = frozenset({"00000000", "0" * 32})


class Verdict(Enum):
    OK = "ok"
    FAILED = "FAILED"
    UNTRIED = "not tried"


@dataclass(frozen=True)
class Finding:
    """One check: what it was about, and what was seen or has to change."""

    about: str
    verdict: Verdict
    said: str

    def __str__(self) -> str:
        return f"{self.verdict.value:<10} {self.about:<10} {self.said}"


@dataclass(frozen=True)
class Asked:
    """A request that a model answers, where the user gave one."""

    path: str
    body: bytes
    content_type: str = "application/json"


def judged(about: str, holds: bool, said: str, otherwise: str) -> Finding:
    return Finding(about, Verdict.OK, said) if holds else Finding(about, Verdict.FAILED, otherwise)


def user(stated: int | None, written: str, number: int | None) -> Finding:
    """The kubelet starts a container only if it can tell that it is not root. `written` is the image's USER."""
    if stated is not None:
        return Finding("user", Verdict.OK, f"runs as {stated}, as stated")
    name = written.partition(":")[0]
    if not name or number == 0:
        return Finding(
            "user", Verdict.FAILED, "the image's user is root: set USER to a number above 0 in its Containerfile"
        )
    if not name.isdecimal():
        told = f"write USER {number}" if number is not None else "write its number"
        return Finding(
            "user", Verdict.FAILED, f"USER {name} is a name, which a node can't judge: {told}, or state user"
        )
    return Finding("user", Verdict.OK, f"runs as {name}")


def address(port: int, tables: Mapping[str, str]) -> Finding:
    """Whether the port is open to the kubelet; `tables` are /proc/net/tcp and tcp6."""
    rows = [line.split() for text in tables.values() for line in text.splitlines()[1:]]
    found = {
        row[1].partition(":")[0] for row in rows if row[3] == _LISTENING and int(row[1].partition(":")[2], 16) == port
    }
    if not found:
        return Finding("port", Verdict.FAILED, f"nothing listens on {port}: state the port that it listens on")
    said = f"listens on {port}, on all addresses"
    return judged("port", bool(found & _EVERYWHERE), said, f"listens on {port} of loopback alone: bind it to 0.0.0.0")


def tables() -> dict[str, str]:
    """Sockets of this network, as the kernel lists them."""
    return {name: path.read_text() for name in ("tcp", "tcp6") if (path := Path("/proc/net") / name).is_file()}


def default_path(container: Container) -> str:
    """Where a request goes, if it is not said; empty where only the user knows."""
    if container.paths:
        return container.paths[0]
    return "" if container.protocol == "v2" else container.asked_at(_NO_MODEL)


def answering(container: Container, client: httpx.Client, asked: Asked | None) -> Iterator[Finding]:
    """All checks of a server that is up; the client has its address."""
    yield _health(container, client)
    yield from _PROTOCOL[container.protocol](client)
    yield _prediction(container, client, asked)
    path = container.paths[0] if container.paths else container.asked_at(_NO_MODEL)
    yield _broken(client, asked.path if asked is not None else path)
    yield _unknown_path(client)
    yield _still_healthy(container, client)


def _health(container: Container, client: httpx.Client) -> Finding:
    began = time.monotonic()
    status = _status(lambda: client.get(container.health_path))
    took_s = time.monotonic() - began
    slow = f"{container.health_path} took {took_s:.1f} s: it must answer within {FAST_S:g} s, also while it predicts"
    if status != "200":
        return Finding("health", Verdict.FAILED, f"{container.health_path} answers {status}, and must answer 200")
    return judged("health", took_s < FAST_S, f"{container.health_path} answers 200 in {took_s * 1000:.0f} ms", slow)


def _status(ask: Callable[[], httpx.Response]) -> str:
    try:
        return str(ask().status_code)
    except httpx.HTTPError as error:
        return f"nothing ({type(error).__name__})"


def _v2(client: httpx.Client) -> Iterator[Finding]:
    for path in ("/v2/health/live", "/v2/health/ready"):
        status = _status(lambda path=path: client.get(path))  # type: ignore[misc]
        yield judged(
            "protocol", status == "200", f"{path} answers 200", f"{path} answers {status}, and must answer 200"
        )
    yield _document(client, "/v2", "name")


def _openai(client: httpx.Client) -> Iterator[Finding]:
    yield _document(client, "/v1/models", "data")


def _nothing(client: httpx.Client) -> Iterator[Finding]:
    yield from ()


_PROTOCOL: Final[dict[str, Callable[[httpx.Client], Iterator[Finding]]]] = {
    "v2": _v2,
    "openai": _openai,
    "mlflow": _nothing,
    "http": _nothing,
}


def _document(client: httpx.Client, path: str, field: str) -> Finding:
    try:
        answer = client.get(path)
        found: Any = answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        found = None
    said = f"GET {path} answers an object with `{field}`"
    right = isinstance(found, dict) and field in found
    return judged("protocol", right, said, f"GET {path} must answer 200 and an object with `{field}`")


def _prediction(container: Container, client: httpx.Client, asked: Asked | None) -> Finding:
    if asked is None:
        return Finding("answer", Verdict.UNTRIED, "give a request with --data FILE (and --to PATH)")
    try:
        answer = client.post(asked.path, content=asked.body, headers={"Content-Type": asked.content_type})
    except httpx.HTTPError as error:
        return Finding("answer", Verdict.FAILED, f"{asked.path} does not answer: {type(error).__name__}")
    if answer.status_code != 200:
        return Finding("answer", Verdict.FAILED, f"{asked.path} answers {answer.status_code}: {answer.text[:200]}")
    problem = _shape(container, answer)
    said = f"{asked.path} answers 200 in {answer.elapsed.total_seconds() * 1000:.0f} ms"
    return judged("answer", problem is None, said, f"{asked.path}: {problem}")


def _shape(container: Container, answer: httpx.Response) -> str | None:
    """What is wrong with a 200; None where nothing is."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        whole = answer.text.rstrip().endswith("data: [DONE]")
        return None if container.protocol != "openai" or whole else "the stream does not end with `data: [DONE]`"
    if container.protocol == "http":
        return None
    try:
        found = json.loads(answer.content)
    except ValueError:
        return "the answer is no JSON"
    wanted = {"mlflow": "predictions", "v2": "outputs"}.get(container.protocol)
    if wanted == "predictions" and isinstance(found, dict) and "choices" in found:
        return None  # a model of language answers as OpenAI's does
    if wanted is not None and not (isinstance(found, dict) and wanted in found):
        return f"the answer has no `{wanted}`"
    return None


def _broken(client: httpx.Client, path: str) -> Finding:
    status = _status(lambda: client.post(path, content=_BROKEN, headers=_JSON))
    said = f"a broken body is answered {status}"
    return judged("errors", status.startswith("4"), said, f"{said}: a client's mistake must be a 4xx")


def _unknown_path(client: httpx.Client) -> Finding:
    status = _status(lambda: client.post(_WRONG_PATH, content=b"{}", headers=_JSON))
    said = f"an unknown path is answered {status}"
    return judged("errors", status.startswith("4"), said, f"{said}, and must be a 404")


def _still_healthy(container: Container, client: httpx.Client) -> Finding:
    status = _status(lambda: client.get(container.health_path))
    otherwise = f"after wrong requests {container.health_path} answers {status}"
    return judged("errors", status == "200", "it is healthy after wrong requests", otherwise)


def ended(container: Container, status: int | None, took_s: float) -> Finding:
    """How it took SIGTERM; `status` None means that it was still there."""
    if status is None:
        said = f"it is still there {container.stop_s} s after SIGTERM: as process 1 it must handle it (or state stop_s)"
        return Finding("end", Verdict.FAILED, said)
    return Finding("end", Verdict.OK, f"ends {took_s:.1f} s after SIGTERM, with status {status}")
