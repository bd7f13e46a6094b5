"""The serving interface inside vLLM's own server: a class for its `--middleware`.

Owns when the interface begins and how the process ends: not ready, accept a little longer, finish, then let vLLM stop.
Leaves requests to the interface and the engine's life to vLLM. One idea: it comes and goes with the application's
lifespan, whose start means that the model has loaded and whose end that no connection is left.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import multiprocessing
import os
import signal
from typing import Any

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric

from runtimes.interface.app import Interface
from runtimes.interface.engine import Message, Receive, Scope, Send
from runtimes.interface.metrics import Metrics
from runtimes.interface.serving import drain
from runtimes.vllm.engine import VllmEngine
from runtimes.vllm.inner import Application
from runtimes.vllm.process import LOST
from runtimes.vllm.records import hide_values
from runtimes.vllm.settings import SERVES_VARIABLE, VllmSettings, parse_settings

_log = logging.getLogger("runtimes.vllm.middleware")


class Inside:
    """vLLM's application with the interface around it."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self._running: _Running | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the application's life."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif self._running is not None:
            await self._running.interface(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def told(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._running = _Running(self._app, scope["app"], parse_settings())
            await send(message)

        try:
            await self._app(scope, receive, told)
        finally:
            if self._running is not None:
                await self._running.end()


class _Running:
    """The interface from the moment the model has loaded; ``served`` is vLLM's FastAPI application."""

    def __init__(self, application: Application, served: Any, settings: VllmSettings) -> None:
        metrics = Metrics(settings.name, settings.version)
        metrics.also(_Tokens())
        release = importlib.import_module("vllm").__version__
        client = served.state.engine_client
        self.engine = VllmEngine(application, served, client, settings, release)
        self.interface = Interface(settings, self.engine, metrics)
        self._settings = settings
        self._client = client
        self._args = served.state.args
        self._server = served.state.server
        self._starting = asyncio.create_task(self._start())
        self._ending = asyncio.create_task(self._until_told())
        _tell_that_we_serve()

    async def _start(self) -> None:
        await self.engine.start()
        hide_values()  # no client's request came before this

    async def _until_told(self) -> None:
        told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told.set)  # instead of vLLM's, which would abort what is in flight
        loop.add_signal_handler(LOST, _end_the_engine)
        telling = asyncio.create_task(told.wait())
        await asyncio.wait((telling, self.engine.failed), return_when=asyncio.FIRST_COMPLETED)
        if not self.engine.failed.done():
            await drain(self.interface, self.engine, self._settings)
        telling.cancel()
        self._server.should_exit = True

    async def end(self) -> None:
        """The server has closed; why it did is left where `runtimes.vllm.server` finds it."""
        if self.engine.failed.done():
            self._args.failed = self.engine.failed.result()
        elif self._client.errored:
            self._args.failed = "the engine's process ended"
        self._starting.cancel()
        self._ending.cancel()
        await self.engine.stop()


class _Tokens:
    """vLLM's own metrics beside ours: tokens, cache, queue, times to the first token and between two."""

    def collect(self) -> list[Metric]:
        return [metric for metric in REGISTRY.collect() if metric.name.startswith("vllm:")]


def _end_the_engine() -> None:
    """vLLM answers all that waits for it with an error then, and ends; it would wait minutes for a lost node."""
    for process in multiprocessing.active_children():
        process.kill()


def _tell_that_we_serve() -> None:
    told = os.environ.pop(SERVES_VARIABLE, None)
    if told is not None:
        os.close(int(told))
