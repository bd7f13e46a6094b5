"""What the interface and an engine say to each other.

Owns the two kinds of engine and the values between them; leaves everything a client sees to the interface and
everything about predicting to the engine. One idea: an engine never learns of limits, deadlines or clients that leave.
It is asked, and where nobody wants the answer any more, what it awaits is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

JSON = b"application/json"
EVENTS = b"text/event-stream"


class Api(Enum):
    """Which protocol a request speaks, known by its path; it also decides an error's shape."""

    MLFLOW = "mlflow"  # POST /invocations
    V2 = "v2"  # the Open Inference Protocol
    OPENAI = "openai"  # /v1/...


@dataclass(slots=True)
class Call:
    """One request, read whole, within its limits and unpacked; written once, by the interface."""

    request_id: str
    api: Api
    media: str  # of the body: json, csv, parquet, arrow; v2 is json, with tensors behind it where ``json_bytes`` is set
    body: bytes
    due_at: float  # time.perf_counter(): when the answer must be there; waiting past it is cancelled anyway
    path: str = "/invocations"
    wants: str = "json"  # the form of the answer that the client asked for: json or arrow
    json_bytes: int | None = None  # v2's Inference-Header-Content-Length: where the JSON ends and the tensors begin
    traceparent: bytes | None = None
    method: str = "POST"
    query: bytes = b""
    headers: Sequence[Header] = ()  # as they came; for an engine that passes the request on


@dataclass(slots=True)
class Reply:
    """A successful answer: whole in ``body``, or piece by piece.

    ``pieces`` yields server-sent events, framed (see sse); it is closed with ``aclose`` where the client leaves.
    """

    body: bytes = b""
    content_type: bytes = JSON
    headers: Sequence[Header] = ()
    non_finite: int = 0  # NaN and infinite values that left as null
    client_request_id: str | None = None  # of the body, where it had one: echoed and logged
    pieces: AsyncGenerator[bytes, None] | None = None
    status: int = 200  # another success where an engine that passes requests on said so


@dataclass(slots=True)
class Forwarded:
    """What another HTTP application answered, as it is; ``pieces`` where it streams events."""

    status: int
    headers: Sequence[Header]  # names in lower case
    body: bytes = b""
    pieces: AsyncGenerator[bytes, None] | None = None


@dataclass(frozen=True)
class About:
    """What an engine serves, known once it has started.

    ``paths`` are those of the interface's routes that it answers: /invocations, /v2 (all below it), /v1/embeddings and
    so on. All others are 404. ``inputs`` and ``outputs`` are v2's tensor metadata: name, datatype, shape.
    """

    name: str
    version: str
    platform: str  # v2's word for what predicts: mlflow_sklearn, vllm, ...
    engine_version: str  # answered on /version, as MLflow's own server does
    paths: frozenset[str] = frozenset({"/invocations"})
    inputs: Sequence[Mapping[str, Any]] = ()
    outputs: Sequence[Mapping[str, Any]] = ()
    tells_itself: bool = False  # answers v2's metadata and /v1/models on its own


class Engine(Protocol):
    """What both kinds of engine have: a life, and a word about it."""

    failed: asyncio.Future[str]  # set once, with one line, where the engine can't serve and the process has to end

    @property
    def about(self) -> About | None:
        """None until the model has loaded and answered its self-test; from then on requests are taken."""

    @property
    def ready(self) -> bool:
        """Whether a request that comes now has somebody to run it."""

    @property
    def live(self) -> bool:
        """False where only a new process can help, such as when every slot has been stuck for too long."""

    async def start(self) -> None:
        """Load and self-test; sets ``failed`` where that can't be done."""

    async def stop(self) -> None:
        """End everything, whatever still runs."""


class CalledEngine(Engine, Protocol):
    """An engine that takes a whole request and returns one result."""

    async def answer(self, call: Call) -> Reply:
        """The answer, or RefusedError; anything else it raises is a 500 and a line in the log.

        Runs in the request's own task. It is cancelled where the deadline passes or the client leaves: a waiting call
        must then be gone, and a running one that can't be stopped must stay counted until it returns.
        """


class UpstreamEngine(Engine, Protocol):
    """An engine that is an HTTP application itself, in this process or behind a loopback address."""

    async def forward(self, call: Call) -> Forwarded:
        """Pass the request on; cancelling must reach the application within a second."""
