"""The servers that interface_cost compares.

python -m tests.bench.interface_servers NAME PORT BEHIND
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator

import uvicorn

from runtimes.interface import serving
from runtimes.interface.engine import About, Call, CalledEngine, Reply
from runtimes.interface.hooks import Record
from runtimes.interface.metrics import Metrics
from runtimes.interface.settings import Settings
from runtimes.proxy.engine import ProxyEngine
from runtimes.proxy.settings import ProxySettings

SERVERS = ("bare", "constant", "hooks", "proxy")
EVENTS = 200


class Constant:
    """An engine that answers a constant, or a stream of them."""

    about = About("m", "7", "none", "1", frozenset({"/invocations", "/v1/completions"}))
    ready = live = True

    def __init__(self) -> None:
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def answer(self, call: Call) -> Reply:
        return Reply(b'{"predictions": [1]}') if call.path == "/invocations" else Reply(pieces=events(0.01))


class Keeps:
    """A hook that keeps what it is told for a while."""

    def __init__(self) -> None:
        self.kept: list[Record] = []

    def ended(self, record: Record) -> None:
        self.kept.append(record)
        if len(self.kept) > 1000:
            self.kept.clear()


async def events(pause_s: float) -> AsyncGenerator[bytes, None]:
    for _ in range(EVENTS):
        yield b'data: {"choices": [{"text": "word"}]}\n\n'
        await asyncio.sleep(pause_s)  # so that each is a packet of its own, as tokens are


async def bare(scope: dict[str, str], receive: object, send: object) -> None:
    """No interface at all."""
    assert callable(receive)
    assert callable(send)
    await receive()
    streams = scope["path"] == "/v1/completions"
    kind = b"text/event-stream" if streams else b"application/json"
    headers = [(b"content-type", kind)] + ([] if streams else [(b"content-length", b"20")])
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if streams:
        async for piece in events(0.001):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"" if streams else b'{"predictions": [1]}'})


def constant(metrics: Metrics) -> CalledEngine:
    return Constant()


def main(name: str, port: int, behind: int) -> None:
    if name == "bare":
        uvicorn.run(bare, port=port, loop="uvloop", http="httptools", log_level="error", access_log=False)
    elif name == "proxy":
        proxy = ProxySettings(host="127.0.0.1", port=port, upstream_port=behind, protocol=("mlflow", "openai"))
        serving.run(proxy, lambda _: ProxyEngine(proxy))
    else:
        own = Settings(host="127.0.0.1", port=port)
        serving.run(own, constant, [Keeps(), Keeps()] if name == "hooks" else ())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
