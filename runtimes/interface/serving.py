"""A process with the interface in front of an engine, from its first socket to its exit.

Owns the listening socket, the event loop, uvicorn's settings, the signals and the order of the end: not ready, accept a
little longer, finish, exit. Leaves requests to app. One idea: it starts listening before the model loads, so probes get
an answer from the first moment, and it is the last process to go.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn
import uvloop

from runtimes.interface.app import Interface
from runtimes.interface.drain import POLL_S, Phase, finish_s, keeps_accepting
from runtimes.interface.engine import CalledEngine, Engine, UpstreamEngine
from runtimes.interface.hooks import Hook
from runtimes.interface.http import MOST_CONNECTIONS, HttpProtocol
from runtimes.interface.memory import give_back_large_blocks
from runtimes.interface.metrics import Metrics
from runtimes.interface.settings import KEEP_ALIVE_S, Settings
from runtimes.termination import EXIT_FAILED, write_reason

Build = Callable[[Metrics], CalledEngine | UpstreamEngine]
_BACKLOG = 2048
_log = logging.getLogger("runtimes.interface.serving")


def run(settings: Settings, build: Build, hooks: Sequence[Hook] = ()) -> int:
    """Serve until told to end; the process's exit status. ``build`` is called on the event loop."""
    give_back_large_blocks()
    _open_enough_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, build, hooks))


def _open_enough_files() -> None:
    """Where nobody says otherwise a process may open 1024, which is less than it may have connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MOST_CONNECTIONS)), hard))


def listener(host: str, port: int) -> socket.socket:
    """The listening socket; what it accepts inherits its options, whatever the event loop does about them."""
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_gone_peers(sock)
        sock.bind((host, port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _notice_gone_peers(sock: socket.socket) -> None:
    """A peer that is gone without a word is noticed, whatever is on its way to it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # not on a Mac, whose own time is two hours
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEP_ALIVE_S)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the signals are ours: uvicorn would close its socket at once


async def _serve(settings: Settings, build: Build, hooks: Sequence[Hook]) -> int:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, uvloop.Loop):
        raise RuntimeError("the event loop is not uvloop's; without it every answer can wait for a delayed ACK")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # we say ourselves when we begin and end
    told = _signals(loop)
    metrics = Metrics(settings.name, settings.version)
    engine = build(metrics)
    app = Interface(settings, engine, metrics, hooks)
    server = _Server(_config(settings, app))
    serving = asyncio.create_task(server.serve(sockets=[listener(settings.host, settings.port)]))
    starting = asyncio.create_task(engine.start())
    _log.info("listening", extra={"port": settings.port, "endpoint": settings.name, "version": settings.version})
    telling = asyncio.create_task(told.wait())
    try:
        await asyncio.wait((serving, engine.failed, telling), return_when=asyncio.FIRST_COMPLETED)
        if engine.failed.done():
            return _failed(engine.failed.result())
        await drain(app, engine, settings)
        return 0
    finally:
        starting.cancel()
        telling.cancel()
        app.state.phase = Phase.CLOSING
        server.should_exit = True
        server.force_exit = engine.failed.done()
        await asyncio.gather(serving, return_exceptions=True)
        await engine.stop()
        _log.info("ended")


async def drain(app: Interface, engine: Engine, settings: Settings) -> None:
    """After SIGTERM: not ready from now on; returns once nothing new has to be accepted any more."""
    state = app.state
    _log.info("told to end", extra={"in_flight": state.in_flight})
    state.phase = Phase.DRAINING
    began = time.perf_counter()
    while engine.about is not None and not engine.failed.done():
        now = time.perf_counter()
        if not keeps_accepting(now - began, now - state.last_request_s, state.in_flight, settings.linger_s):
            break
        await asyncio.sleep(POLL_S)
    _log.info("accepts nothing any more", extra={"in_flight": state.in_flight})


def _signals(loop: asyncio.AbstractEventLoop) -> asyncio.Event:
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    return told


def _config(settings: Settings, app: Interface) -> uvicorn.Config:
    application: Any = app
    return uvicorn.Config(
        application,
        http=HttpProtocol,
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=int(finish_s(settings.deadline_s)),
    )


def _failed(reason: str) -> int:
    _log.error("the model can't be served", extra={"reason": reason})
    write_reason(reason)
    return EXIT_FAILED
